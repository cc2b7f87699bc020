"""Faro's measures of a run, from its requests and its changes of replicas."""

from __future__ import annotations

import pandas as pd
import pytest

from scripts.judges.faro_world import measured


def requests(*rows: tuple[str, float, float, bool]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["cluster_name", "arrival_ts", "end_ts", "succeeded"])


def test_violations_average_minutes_and_jobs_while_in_time_counts_requests() -> None:
    tasks = requests(
        ("a", 0.0, 0.5, True),
        ("a", 1.0, 2.0, True),  # late
        ("a", 61.0, 61.2, True),
        ("b", 0.0, 0.1, True),
        ("b", 61.0, 61.1, False),  # refused
        ("b", 62.0, 62.1, True),
    )
    found = measured(tasks, [(0.0, "a", 1), (0.0, "b", 1)])
    assert found.violations == pytest.approx(100 * (0.5 + 0.0 + 0.0 + 0.5) / 4)
    assert found.in_time == pytest.approx(100 * 4 / 6)
    assert found.by_job == pytest.approx((25.0, 25.0))


def test_replicas_are_averaged_over_the_time_until_the_last_answer() -> None:
    tasks = requests(("a", 0.0, 100.0, True))
    found = measured(tasks, [(0.0, "a", 1), (50.0, "a", 3), (60.0, "b", 2), (200.0, "a", 9)])
    assert found.replicas == pytest.approx((50 * 1 + 10 * 3 + 40 * 5) / 100)
    assert found.most == 5
