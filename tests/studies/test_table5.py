"""Table 5: the rate comes from SageMaker's cost alone, and every difference is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import Misconfigured
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.simulator.traces.trace import Trace, read_trace
from mark.studies import table5
from mark.studies.published import ONDEMAND, SAGEMAKER, SPOT, TABLE5
from mark.studies.ratio import mark_ratio
from mark.studies.study import StudyContext
from mark.studies.table5 import ShapedLoad, Table5Parameters, mark_table5, solve_rate
from tests.studies.documents import check_study, value

SHORT = Table5Parameters(models=("nasnet", "opennmt-ende"), duration_s=1800.0, days=1, tolerance=0.02)


def test_rate_is_found_where_cost_is_stepped() -> None:
    solved = solve_rate(lambda rate: 0.3 * (rate // 2 + 1), 30.0, first_rps=1.0, tolerance=0.01, tries=9)
    assert abs(solved.usd / 30.0 - 1) <= 0.01


def test_nearest_try_is_kept_where_none_is_close_enough() -> None:
    tried: list[float] = []

    def cost_at(rate: float) -> float:
        tried.append(rate)
        return 40.0 if rate > 7 else 10.0

    solved = solve_rate(cost_at, 30.0, first_rps=5.0, tolerance=0.01, tries=4)
    assert solved.usd == 40.0
    assert len(tried) == 4


def test_rate_is_solved_without_mark(context: StudyContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """MArk's runs refuse until the rate is there, and the rate is the same when MArk costs nothing."""
    run = Experiment.run
    order: list[str] = []

    def only_sagemaker(self: Experiment, policy: str, **rest: object) -> RunResult:
        order.append(policy)
        return run(self, "sagemaker" if policy == "mark" else policy)

    parameters = replace(SHORT, models=("lstm-ptb",), duration_s=900.0)
    honest = check_study(mark_table5(context, parameters))
    monkeypatch.setattr(Experiment, "run", only_sagemaker)
    blind = check_study(mark_table5(context, parameters))
    first_mark = order.index("mark")
    assert set(order[:first_mark]) == {"sagemaker"}
    assert set(order[first_mark:]) == {"mark"}
    assert value(honest, "mean_rps", model="lstm-ptb") == value(blind, "mean_rps", model="lstm-ptb")


def test_document_says_what_differs_and_contradicts(context: StudyContext) -> None:
    study = mark_table5(context, SHORT)
    document = check_study(study)
    assert [plot.name for plot in study.series] == ["mark-fig7-nasnet", "mark-fig7-opennmt-ende"]
    claims = {r["claim"] for r in document["rows"] if r["quantity"] == "mean_cut_percent"}
    assert claims == {
        f"section 5.2, figure 7: latency reduced by up to {cut} % against SageMaker" for cut in (57, 60)
    }
    for model in SHORT.models:
        per_hour = TABLE5[model, SAGEMAKER].total_usd / 8
        ours = value(document, "total_usd", model=model, system=SAGEMAKER)
        assert ours * 3600 / SHORT.duration_s == pytest.approx(per_hour, rel=0.02)
        assert value(document, "ratio", model=model, system=SAGEMAKER) == pytest.approx(1.0)
        for system in (ONDEMAND, SPOT):
            total = value(document, "total_usd", model=model, system=system)
            parts = (value(document, name, model=model, system=system) for name in ("ec2_usd", "lambda_usd"))
            assert sum(parts) == pytest.approx(total)
            assert value(document, "ratio", model=model, system=system) == pytest.approx(ours / total)
    said = " ".join(document["assumptions"])
    for word in ("x 1.4", "solved", "2025", "nasnet on lambda", "overhead", "generated", "one batch size"):
        assert word.lower() in said.lower()
    rows = document["rows"]
    notes = {(r["model"], r.get("instance_type") or r.get("system"), r["quantity"]): r["notes"] for r in rows}
    assert "takes 3100 ms, beyond the objective" in " ".join(notes["opennmt-ende", ONDEMAND, "total_usd"])
    assert "no batch keeps the objective" in " ".join(notes["opennmt-ende", "c5.xlarge", "n_batch"])
    assert "published N 16" in " ".join(notes["nasnet", "p2.xlarge", "n_batch"])
    published = {(r["model"], r.get("instance_type")): r["published"] for r in rows if r["quantity"] == "n_batch"}
    assert published["opennmt-ende", "c5.2xlarge"] == 2


def test_trace_that_is_too_short_is_refused(context: StudyContext, tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("timestamp_s,rate_rps\n0,5\n60,5\n", encoding="utf-8")
    with pytest.raises(Misconfigured, match=r"lasts 0\.0333 h; table 5 replays 8 h: give a longer one"):
        mark_table5(replace(context, trace=read_trace(path)))


def test_a_given_trace_is_replayed_up_to_its_end(context: StudyContext, tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    lines = [f"{60 * minute},{20 + minute % 7}" for minute in range(90)]
    path.write_text("\n".join(["timestamp_s,rate_rps", *lines]), encoding="utf-8")
    parameters = replace(SHORT, models=("lstm-ptb",))
    document = check_study(mark_table5(replace(context, trace=read_trace(path)), parameters))
    assert "the given trace given; 0.5 h from 3600 s on" in document["assumptions"][0]


@pytest.mark.slow
def test_the_ratio_by_what_it_hangs_on(context: StudyContext) -> None:
    document = check_study(mark_ratio(context, replace(SHORT, models=("inception-v3",))))
    base = {"model": "inception-v3", "part": "", "case": "as in table 5"}
    assert value(document, "over_base", **base) == 1
    found = {row["case"]: row["ours"] for row in document["rows"] if row["quantity"] == "ratio"}
    assert found["SageMaker's premium of 2026"] != found["as in table 5"]
    assert {row["part"] for row in document["rows"]} == {"", "load", "prices", "rival", "mechanism", "together"}


def test_a_smoothed_load_keeps_its_mean_and_loses_its_flood() -> None:
    rates = np.full(600, 10.0)
    rates[300:310] = 100.0
    trace = Trace(name="t", start_at=0.0, bin_s=1.0, rates_rps=rates, whole_counts=True)
    load = ShapedLoad(trace=trace, start_s=0.0, duration_s=600.0, seed=0, said="")
    smooth = load.smoothed(100.0).trace
    assert smooth.mean_rps == pytest.approx(trace.mean_rps)
    assert smooth.rates_rps.max() == pytest.approx(19.0)
    assert load.smoothed(0.5).trace.rates_rps.tolist() == rates.tolist()


def test_ratio_of_text_and_table_are_both_printed() -> None:
    assert table5._text_notes("lstm-ptb", SPOT) == ("the paper's text says 6.64, its table gives 6.54",)
    assert table5._text_notes("lstm-ptb", ONDEMAND) == ()
