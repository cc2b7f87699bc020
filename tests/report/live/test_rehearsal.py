"""The live run beside its replay: differences, the table, the page and its files."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mark.domain.errors import Misconfigured
from mark.report.live.rehearsal import (
    agreement,
    comparison_document,
    comparison_page,
    comparison_rows,
    comparison_table,
    replay_series,
    write_comparison,
)
from mark.report.live.service_status import ModelStatus
from mark.report.runs.run_documents import simulate_document
from tests.report.fakes import fake_run
from tests.report.live.fakes import busy_model, empty_model
from tests.report.test_page import outline

RUN = fake_run(duration_s=630)
ORDERS = {(0, "launch", "c5.large:spot"): 5, (1, "launch", "c5.large:spot"): 7, (1, "drain", ""): 2}
OTHER_ORDERS = {(0, "launch", "c5.large:spot"): 8, (1, "launch", "c5.large:spot"): 4, (1, "drain", ""): 2}


def compared(live: ModelStatus | None = None, **changed: Any) -> dict[str, Any]:
    replayed = simulate_document([RUN])["runs"][0] | changed
    return comparison_document(live or busy_model(), replayed, live_orders=ORDERS, replayed_orders=OTHER_ORDERS)


def test_each_figure_is_live_replayed_and_their_difference() -> None:
    document = compared()
    total = document["cost_usd"]["total"]
    assert total["live"] == 2.3617
    assert total["replayed"] == pytest.approx(RUN.result.cost.total)
    assert total["difference"] == pytest.approx(2.3617 - RUN.result.cost.total)
    assert document["requests"]["live"] == 118_330 + 2_100 + 3_026 + 17 + 3 + 4
    assert document["requests"]["replayed"] == RUN.result.requests
    assert document["cold_start_rate"]["live"] == pytest.approx(7 / 3104)
    json.dumps(document, allow_nan=False)


def test_orders_are_summed_but_compared_by_ten_minutes() -> None:
    document = compared()
    launched = next(row for row in document["orders"] if row["kind"] == "launch")
    assert (launched["live"], launched["replayed"], launched["difference"]) == (12, 12, 0)
    assert document["orders_most_apart"] == 3


def test_what_is_not_known_has_no_difference() -> None:
    document = compared(empty_model())
    assert document["attained"]["difference"] is None
    rows = {row.name: row for row in comparison_rows(document)}
    assert rows["answered in time"].live == "-"
    assert rows["answered in time"].difference == "-"
    assert rows["Lambda started cold"].live == "0.00 %"


def test_rows_say_points_shares_and_signs() -> None:
    cost = {"instances": 1.7, "standby": 0.0, "lambda": 0.1, "serving": 1.8, "overhead": 0.4, "total": 2.2}
    slo = {"latency_ms": 600.0, "target": 0.98, "attained": 0.99}
    rows = {row.name: row for row in comparison_rows(compared(cost_usd=cost, slo=slo))}
    assert rows["answered in time"].difference == "+0.66 points"
    assert rows["total, USD"].difference == "+0.16 (+7.3 %)"
    assert rows["total, USD"].is_sum
    assert rows["standby, USD"].difference == "+0.0121"
    assert rows["ordered: launch c5.large:spot"].difference == "0"
    assert rows["failed"].difference == "+3"
    assert rows["rejected"].difference == "+4"


def test_the_agreement_is_said_in_one_sentence() -> None:
    cost = {"instances": 1.7, "standby": 0.0, "lambda": 0.1, "serving": 1.8, "overhead": 0.4, "total": 2.2}
    slo = {"latency_ms": 600.0, "target": 0.98, "attained": 0.99}
    assert agreement(compared(cost_usd=cost, slo=slo, cold_start_rate=0.0)) == (
        "Live against its replay: total +7.3 %, serving +8.3 %, standby -, in time +0.66 points, "
        "cold starts +0.23 points; orders in any ten minutes at most 3 instances apart."
    )
    assert "in time -," in agreement(compared(empty_model()))


def test_table_fits_100_columns() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(comparison_table(compared()), highlight=False)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert "ordered: launch c5.large:spot" in text


def test_replay_series_has_the_form_of_the_live_one() -> None:
    result = dataclasses.replace(RUN.result, speed=20.0)
    series = replay_series(result)
    arrivals = result.seconds.arrivals
    assert series.mean_rps[0] == pytest.approx(20 * arrivals[:60].mean())
    assert series.mean_rps[-1] == pytest.approx(20 * arrivals[600:].mean())
    assert series.max_rps[0] == pytest.approx(20 * arrivals[:60].reshape(12, 5).sum(axis=1).max() / 5)
    assert len(series.mean_rps) == len(series.capacity_rps) == 11
    assert series.capacity_rps == pytest.approx(list(result.minutes.capacity_rps.sum(axis=1)))


def test_page_is_self_contained_and_draws_both() -> None:
    series = replay_series(RUN.result)
    text = comparison_page(compared(), live=series, replayed=RUN.result, title="t", command="make demo")
    found = outline(text)
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert len(found.ids) == len(set(found.ids))
    assert "://" not in text
    assert text.count('class="replayed" d="M') == 4 + 2  # two figures, wide and narrow, and their legends
    assert "make demo" in text
    assert "differ by more than\n3 of a kind" in text
    assert "Live against its replay: total" in text


def test_page_escapes_names() -> None:
    evil = "<script>alert(1)</script>"
    document = compared(dataclasses.replace(busy_model(evil), notes=(evil,)), policy=evil, trace=evil)
    document["orders"][0]["offering"] = evil
    series = busy_model().series
    text = comparison_page(document, live=series, replayed=RUN.result, title=evil, command=evil)
    assert "<script" not in text


def test_a_live_series_of_another_time_or_none_is_drawn_as_nothing() -> None:
    nothing = dataclasses.replace(
        RUN.result,
        seconds=dataclasses.replace(RUN.result.seconds, arrivals=np.zeros(0, dtype=np.int64)),
        minutes=dataclasses.replace(
            RUN.result.minutes, capacity_rps=np.zeros((0, 5)), forecast_max_rps=np.zeros(0)
        ),
    )
    for result in (RUN.result, nothing):
        text = comparison_page(compared(), live=empty_model().series, replayed=result, title="t", command="c")
        assert "nan" not in text


def test_page_and_document_are_written(tmp_path: Path) -> None:
    series = replay_series(RUN.result)
    given: dict[str, Any] = {"live": series, "replayed": RUN.result, "title": "t", "command": "c"}
    assert write_comparison(tmp_path / "new", compared(), **given) == tmp_path / "new" / "live.html"
    assert json.loads((tmp_path / "new" / "live.json").read_text()) == compared()
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="--out"):
        write_comparison(tmp_path / "file", compared(), **given)
