"""Studies of Fang et al.: the order of the schedulers, on days that none learned from."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import Misconfigured
from mark.simulator.qos.judge import Jobs
from mark.simulator.traces.trace import Trace
from mark.studies.fang.cases import Scope
from mark.studies.fang.published import (
    FIXED,
    HEURISTIC,
    LEARNED,
    PERIODS,
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
    jobs=Jobs(count=1, job_s=60.0),
    seeds=1,
    iterations=2,
    learned_job_s=20.0,
    level_jobs=Jobs(count=1, job_s=60.0),
)


@pytest.fixture
def waves(context: StudyContext) -> StudyContext:
    rates = 50 + 10 * np.sin(np.arange(4 * 1440) / 229)
    trace = Trace(name="waves", start_at=0.0, bin_s=60.0, rates_rps=rates, whole_counts=False)
    return replace(context, trace=trace)


def test_table_2(waves: StudyContext) -> None:
    document = check_study(fang_table2(waves, SHORT))

    fixed, heuristic = (value(document, "quality", scheduler=name) for name in (FIXED, HEURISTIC))
    assert fixed < heuristic
    assert value(document, "over_fixed", scheduler=HEURISTIC) == pytest.approx(heuristic - fixed)
    for hours in PERIODS:
        small = [value(document, "small_percent", scheduler=name, hours=hours) for name in (FIXED, HEURISTIC)]
        assert small[1] < small[0]
    assert value(document, "fewer_actions_percent", scheduler=LEARNED) > 80
    assert any("reconstruction" in text for text in document["assumptions"])
    margins = [row for row in document["rows"] if row["quantity"] == "learned_over_heuristic"]
    assert [row["day"] for row in margins] == [2, 3]  # of four days the first two are learned from
    assert fang_table2(waves, SHORT).document() == document


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
