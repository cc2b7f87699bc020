"""The rent of versions: all that ran is somebody's, and nothing is counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.version_costs import version_costs
from mark.domain.costs import Transition
from mark.domain.fleet import Role
from tests.serving.harness import served

MODEL = served()
[OFFERED] = MODEL.offerings
OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def life(name: str, version: str, began: float, ended: float | None) -> list[Transition]:
    one = Transition(
        instance=name,
        model=MODEL.name,
        offering=OFFERED.name,
        role=Role.SERVING,
        state="running",
        at=began,
        version=version,
    )
    return [one, *([] if ended is None else [replace(one, state="terminated", at=ended)])]


def test_each_version_pays_for_its_own_instances_while_it_is_rolled_out() -> None:
    lives = [*life("i-1", "", 0.0, None), *life("i-2", OLD, 0.0, 5400.0), *life("i-3", NEW, 4500.0, 6300.0)]
    old, new = version_costs(lives, MODEL, (OLD, NEW), since=3600.0, until=7200.0)
    assert (old.version, old.instance_hours) == (OLD, pytest.approx(1.5)), "what bears no version is the old one's"
    assert (new.version, new.instance_hours) == (NEW, pytest.approx(0.5))
    assert new.usd == pytest.approx(0.5 * OFFERED.usd_per_hour)


LIVES = st.lists(st.tuples(st.sampled_from(["", OLD, NEW]), st.floats(0.0, 1e4), st.floats(1.0, 1e4)), max_size=8)


@given(LIVES, st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_the_versions_together_are_the_fleet_and_two_spans_are_their_whole(
    lives: list[tuple[str, float, float]], first: float, second: float
) -> None:
    told = [
        one
        for number, (version, began, lasts) in enumerate(lives)
        for one in life(f"i-{number}", version, began, began + lasts)
    ]
    middle, end = sorted((first, second))
    parts = [
        *version_costs(told, MODEL, (OLD, NEW), since=0.0, until=middle),
        *version_costs(told, MODEL, (OLD, NEW), since=middle, until=end),
    ]
    whole = sum(max(0.0, min(began + lasts, end) - began) for _, began, lasts in lives) / 3600.0
    assert sum(one.instance_hours for one in parts) == pytest.approx(whole, abs=1e-6)
