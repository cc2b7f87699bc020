"""Studies of Fang et al.: the order of the schedulers, on days that none learned from."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.variants.qos import QosChoice, QosState
from mark.domain.errors import Misconfigured
from mark.simulator.qos.judge import Jobs
from mark.simulator.traces.trace import Trace
from mark.studies.fang.cases import Scope
from mark.studies.fang.equation2 import BETAS, Equation2, Reading
from mark.studies.fang.loads import LEVELS, fang_loads
from mark.studies.fang.published import (
    FIXED,
    HEURISTIC,
    LEARNED,
    PERIODS,
    SCHEDULERS,
    SIZES,
    TABLE2,
    TABLE4,
    THROUGHPUT_QPS,
    pool_of,
)
from mark.studies.fang.tables import fang_table2, fang_table4
from mark.studies.study import StudyContext
from tests.studies.documents import check_study, value

SHORT = Scope(
    jobs=Jobs(count=1, job_s=30.0),
    seeds=1,
    iterations=2,
    learned_job_s=10.0,
    level_jobs=Jobs(count=1, job_s=30.0),
    tuned_jobs=Jobs(count=1, job_s=10.0),
)


@pytest.fixture
def waves(context: StudyContext) -> StudyContext:
    rates = 50 + 10 * np.sin(np.arange(4 * 1440) / 229)
    trace = Trace(name="waves", start_at=0.0, bin_s=60.0, rates_rps=rates, whole_counts=False)
    return replace(context, trace=trace)


def test_table_2(waves: StudyContext) -> None:
    study = fang_table2(waves, SHORT)
    document = check_study(study)

    fixed, heuristic = (value(document, "quality", scheduler=name) for name in (FIXED, HEURISTIC))
    assert fixed < heuristic
    assert value(document, "over_fixed", scheduler=HEURISTIC) == pytest.approx(heuristic - fixed)
    for hours in PERIODS:
        small = [value(document, "small_percent", scheduler=name, hours=hours) for name in (FIXED, HEURISTIC)]
        assert small[1] < small[0]
    assert value(document, "fewer_actions_percent", scheduler=LEARNED) > 80
    assert any("Eq. 2, with the beta that is best" in text for text in document["assumptions"])
    for reading in Reading:
        tried = [row for row in document["rows"] if row.get("scheduler") == reading and "beta" in row]
        assert [float(row["beta"]) for row in tried] == list(BETAS)
        assert value(document, "quality", scheduler=reading) <= heuristic
    margins = [row for row in document["rows"] if row["quantity"] == "learned_over_heuristic"]
    assert [row["day"] for row in margins] == [2, 3]  # of four days the first two are learned from
    assert [plot.name.removeprefix("fang-table2-") for plot in study.series] == [
        "fig6a",
        "fig6b",
        *(f"fig7-{name}" for name in SCHEDULERS),
    ]
    for plot in study.series[:2]:
        assert {curve.label for curve in plot.curves} == set(SCHEDULERS)
        assert all(list(curve.x) == sorted(curve.x) for curve in plot.curves)


@pytest.mark.slow
def test_the_order_is_judged_on_other_traces_at_several_levels(waves: StudyContext) -> None:
    flat = Trace(name="flat", start_at=0.0, bin_s=60.0, rates_rps=np.ones(90), whole_counts=False)
    short = replace(SHORT, jobs=Jobs(count=1, job_s=20.0), learned_job_s=10.0)
    document = check_study(fang_loads(replace(waves, others=(flat,)), short))

    loads = {row["load"] for row in document["rows"] if "load" in row}
    assert loads == {"mean", *(f"{name} x{level:g}" for name in ("waves", "flat") for level in LEVELS)}
    for load in loads:
        quality = {name: value(document, "quality", load=load, scheduler=name) for name in SCHEDULERS}
        assert quality[HEURISTIC] >= quality[FIXED] - 0.002
        margin = value(document, "heuristic_over_fixed", load=load)
        assert margin == pytest.approx(quality[HEURISTIC] - quality[FIXED])


@given(
    left=st.lists(st.floats(-2, 1), min_size=1, max_size=80),
    rate_qps=st.floats(0, 100),
    beta=st.sampled_from(BETAS),
)
def test_equation_2_takes_the_smallest_batch_that_is_enough(
    left: list[float], rate_qps: float, beta: float
) -> None:
    pool = pool_of({"p2.xlarge": 1})
    state = QosState(kind=0, left_s=np.sort(np.array(left)), rate_qps=rate_qps, rest_s=np.zeros(1))
    for reading in Reading:
        batch, variant = Equation2(reading, beta)(state, pool)
        enough = [size >= (0.5 * pool.latency_s[0, 1, size] * rate_qps + 0.5 * len(left)) * beta for size in SIZES]
        assert batch == (SIZES[enough.index(True)] if any(enough) else SIZES[-1])
        assert variant == (0 if batch > 8 or (batch == 8 and reading is Reading.LITERAL) else 1)


def test_equation_2_as_it_is_computed_by_hand() -> None:
    """On p2.xlarge 4 take 4 / 24.2 s: (0.5 x 0.165 x 29.1 + 0.5 x 8) x 0.5 = 3.2, more than 2, at most 4."""
    state = QosState(kind=0, left_s=np.full(8, 0.8), rate_qps=29.1, rest_s=np.zeros(1))
    pool = pool_of({"p2.xlarge": 1})
    assert Equation2(Reading.LITERAL, 0.5)(state, pool) == QosChoice(4, 1)
    many = state._replace(left_s=np.full(14, 0.8))
    assert Equation2(Reading.LITERAL, 0.7)(many, pool) == QosChoice(8, 0)
    assert Equation2(Reading.ABOVE, 0.7)(many, pool) == QosChoice(8, 1)


@pytest.mark.slow
def test_table_4(waves: StudyContext) -> None:
    document = check_study(fang_table4(waves, replace(SHORT, jobs=Jobs(count=1, job_s=20.0), learned_job_s=10.0)))

    assert value(document, "quality", scheduler=FIXED) < value(document, "quality", scheduler=HEURISTIC)


def test_a_trace_is_asked_for(context: StudyContext) -> None:
    with pytest.raises(Misconfigured, match="--trace FILE"):
        fang_table2(context, SHORT)


def test_throughputs_of_full_batches_are_the_published_ones() -> None:
    pool = pool_of({"g2.2xlarge": 1, "p2.xlarge": 1})
    for kind, name in enumerate(pool.kinds):
        assert pool.throughput_qps[kind] == pytest.approx(np.nan_to_num(np.array(THROUGHPUT_QPS[name])))


def test_tables_are_those_of_the_collected_data(published_dir: Path) -> None:
    with (published_dir / "fang_table1_throughput.csv").open() as lines:
        for row in csv.DictReader(lines):
            variant = ("yolo_tiny", "yolo_full").index(row["model"])
            found = THROUGHPUT_QPS[row["gpu_instance"]][variant][SIZES.index(int(row["batch_size"]))]
            assert found == float(row["throughput_qps"])
    tables = {"single_p2": TABLE2, "5xg2_5xp2": TABLE4}
    names = {"fixed": FIXED, "heuristic": HEURISTIC, "rl": LEARNED}
    with (published_dir / "fang_tables2to5_results.csv").open() as lines:
        for row in csv.DictReader(lines):
            line = tables[row["cluster"]][names[row["scheduler"]]][
                PERIODS.index(row["sogouq_period"].removesuffix("hr"))
            ]
            assert line.quality == float(row["mean_response_quality"])
            assert line.deviation == float(row["sd_response_quality"])
            assert line.small_percent == float(row["percent_tiny_model"])
