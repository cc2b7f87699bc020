"""Requests by version: all that came is somebody's, and what no version counted is the stable one's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.hourly_totals import (
    HourlyMark,
    dump_marks,
    first_mark,
    is_due,
    load_marks,
    next_mark,
    versions_between,
)
from mark.accounting.version_totals import VersionTotals
from mark.domain.demand import Demand
from mark.domain.load.traffic import ModelTraffic
from mark.domain.models.versions import VersionCounts

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
NO_DEMAND = Demand(end_at=0.0, mean_rps=(), max_rps=())
HOUR_S = 3600.0


def marks_of(*readings: tuple[float, ModelTraffic, str], began: str = OLD) -> tuple[HourlyMark, ...]:
    """Marks at these instants, with the stable version from each on."""
    marks = [first_mark(0.0, began)]
    for at, traffic, stable in readings:
        marks.append(next_mark(marks[-1], traffic, NO_DEMAND, at, stable))
    return tuple(marks)


def traffic(answered: int, *versions: VersionCounts, **counts: float) -> ModelTraffic:
    return ModelTraffic(model="m", instance=answered, versions=versions, **counts)  # type: ignore[arg-type]


def test_a_promotion_ends_what_the_old_version_is_told_to_have_answered() -> None:
    """100 before the rollout, in it 60 of the old and 40 of the new, and 200 after the promotion."""
    counted = (VersionCounts(version=OLD, answered=60), VersionCounts(version=NEW, answered=40, late=4))
    marks = marks_of(
        (HOUR_S, traffic(100), OLD),
        (1.5 * HOUR_S, traffic(200, *counted, late=4, shed=7), NEW),
        (2 * HOUR_S, traffic(400, *counted, late=4, shed=7), NEW),
    )
    whole = versions_between(marks, 0.0, 2 * HOUR_S)
    assert list(whole) == [OLD, NEW], "as they served"
    assert (whole[OLD].answered, whole[OLD].failed, whole[OLD].late) == (160.0, 7.0, 0.0)
    assert (whole[NEW].answered, whole[NEW].late) == (240.0, 4.0)
    assert versions_between(marks, 1.5 * HOUR_S, 9 * HOUR_S) == {NEW: VersionTotals(answered=200.0)}


def test_a_loss_is_its_versions_whoever_answers_then() -> None:
    counted = (VersionCounts(version=OLD, answered=10), VersionCounts(version=NEW, failed=3))
    whole = versions_between(marks_of((HOUR_S, traffic(10, *counted), OLD)), 0.0, HOUR_S)
    assert (whole[OLD].failed, whole[NEW].failed) == (0.0, 3.0)


def test_lambda_is_who_called_its_function() -> None:
    counted = VersionCounts(version=NEW, answered=1, lambda_calls=30, lambda_gib_us=45_000_000)
    whole = versions_between(marks_of((HOUR_S, traffic(5, counted, billed=100.0, gib_s=150.0), OLD)), 0.0, HOUR_S)
    assert (whole[OLD].lambda_calls, whole[OLD].lambda_gib_s) == (70.0, 105.0)
    assert (whole[NEW].lambda_calls, whole[NEW].lambda_gib_s) == (30.0, 45.0)


def test_counts_of_before_versions_were_noted_are_nobodys() -> None:
    """The store knows counts of rollouts long ago; marks of an older release name no version."""
    long_ago = VersionCounts(version=NEW, answered=1_000_000)
    marks = marks_of((HOUR_S, traffic(100, long_ago), OLD), (2 * HOUR_S, traffic(150, long_ago), OLD), began="")
    assert versions_between(marks, 0.0, 2 * HOUR_S) == {
        "": VersionTotals(answered=100.0),
        OLD: VersionTotals(answered=50.0),
    }


def test_a_mark_is_due_when_another_version_is_stable() -> None:
    marks = marks_of((HOUR_S, traffic(1), OLD))
    assert not is_due(marks, HOUR_S + 1.0, OLD)
    assert is_due(marks, HOUR_S + 1.0, NEW)


def test_marks_keep_versions_and_those_of_an_older_release_have_none() -> None:
    marks = marks_of((HOUR_S, traffic(8, VersionCounts(version=NEW, answered=8)), NEW))
    document = dump_marks(marks)
    assert load_marks(document) == marks
    for mark in document["marks"]:
        del mark["versions"], mark["stable"]
    assert versions_between(load_marks(document), 0.0, HOUR_S) == {"": VersionTotals(answered=8.0)}


def test_a_version_that_is_gone_is_kept_once() -> None:
    """A service of years has had many, and keeps forty days of hours."""
    gone = VersionCounts(version=OLD, answered=60)
    growing = [
        (HOUR_S * n, traffic(100 * n, gone, VersionCounts(version=NEW, answered=n)), NEW) for n in (1, 2, 3)
    ]
    marks = marks_of(*growing)
    document = dump_marks(marks)
    assert [sorted(mark["versions"]) for mark in document["marks"]] == [[], [OLD, NEW], [NEW], [NEW]]
    assert load_marks(document) == marks


STEP = st.tuples(
    st.floats(1.0, 7200.0),
    st.integers(0, 500),
    st.integers(0, 500),
    st.integers(0, 500),
    st.sampled_from([OLD, NEW]),
)


@given(st.lists(STEP, min_size=1, max_size=6), st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_versions_are_all_that_came_and_two_spans_are_their_whole(
    steps: list[tuple[float, int, int, int, str]], one: float, other: float
) -> None:
    at, told, readings = 0.0, ModelTraffic(model="m"), []
    old, new = VersionCounts(version=OLD), VersionCounts(version=NEW)
    for lasts, outside, by_old, by_new, stable in steps:
        at += lasts
        old, new = (replace(old, answered=old.answered + by_old), replace(new, answered=new.answered + by_new))
        told = replace(told, instance=told.instance + outside + by_old + by_new, versions=(old, new))
        readings.append((at, told, stable))
    marks = marks_of(*readings)
    middle, end = sorted((one, other))
    parts = [*versions_between(marks, 0.0, middle).values(), *versions_between(marks, middle, end).values()]
    whole = versions_between(marks, 0.0, end).values()
    assert sum(one.answered for one in parts) == pytest.approx(sum(one.answered for one in whole))
    everything = versions_between(marks, 0.0, at)
    assert sum(one.answered for one in everything.values()) == pytest.approx(told.instance)
    assert all(one.answered >= 0.0 for one in everything.values())
