"""The plug is pulled before and after each change that a leader makes of shared instances.

Whoever takes over goes on as if it never was: no model is left out, none sits twice, nothing is rented twice.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from mark.controller.hosts import host_controller
from mark.controller.hosts.placement_journal import placement_mismatches, read_placements
from mark.controller.hosts.sharing import Sharer, share_instances
from mark.domain.billing.spending import SpendingLimit
from mark.domain.commitments.owned import Commitments
from mark.domain.demand import Demand
from mark.domain.fleet.placement import Host
from mark.planner.shared.packing import Packing
from tests.scenarios.crash_world import Crash
from tests.scenarios.shared_crash_world import MODELS, Life, World

QUIET = dict.fromkeys(MODELS, 1.5)
BUSY = {"b and e leave": (0.5, 20.0, 1.5, 1.5, 20.0, 0.5), "e and f have no load": (1.5, 1.5, 1.5, 1.5, 0.0, 0.0)}
"""Requests/s of each model in the busy hour."""
SPANS = {
    "the first decision": (0.0, 450.0),
    "another load": (3705.0, 4155.0),
    "a notice": (4995.0, 5430.0),
    "the first load again": (8595.0, 8865.0),
    "a pause": (8985.0, 9180.0),
    "its end": (9495.0, 9945.0),
}


CASES = [("b and e leave", span) for span in SPANS] + [("e and f have no load", "a notice")]
PACKINGS: dict[object, Packing] = {}


def world_of(busy: str) -> World:
    return World(
        rates={0.0: QUIET, 3590.0: dict(zip(MODELS, BUSY[busy], strict=True)), 7190.0: QUIET},
        notices_at=(5000.0,),
        limits={0.0: SpendingLimit.NONE, 9000.0: SpendingLimit.PAUSE, 9500.0: SpendingLimit.NONE},
    )


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a world stands: who sits together, what was ever launched, what is rented."""

    seats: list[list[str]]
    made: int
    rented: int

    @classmethod
    def of(cls, world: World) -> Stand:
        return cls(seats=world.seats, made=world.made, rented=len(world.machines))


@cache
def worlds(busy: str) -> dict[str, World]:
    """The world at the beginning of each span, where nothing crashes."""
    world, found = world_of(busy), {}
    life = None
    for name, (start_at, _) in SPANS.items():
        if life is not None:
            life.run_until(start_at)
        found[name] = copy.deepcopy(world)
        life = life or Life(world)
    return found


def crash(world: World, until: float, place: int) -> bool:
    """True where a leader came to that place before `until`, and crashed."""
    try:
        Life(world, crash_at=place).run_until(until)
    except Crash:
        return True
    return False


def check(world: World) -> None:
    """The journal says what is, and nothing is told to who is gone."""
    header, decisions = read_placements(world.lines)
    assert not list(placement_mismatches(decisions, header.placement))
    assert world.told.keys() <= world.machines.keys()


@pytest.fixture(autouse=True)
def _packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided again and again, always from the same, is packed once."""
    monkeypatch.setattr(host_controller, "share_instances", _packed)


def _packed(
    sharers: Sequence[Sharer],
    histories: Sequence[Demand],
    *,
    there: Sequence[Host],
    refused: tuple[str, ...],
    owned: Commitments,
) -> Packing:
    key = len(sharers), tuple(one.max_rps[-1] for one in histories), tuple(there), refused
    if key not in PACKINGS:
        PACKINGS[key] = share_instances(sharers, histories, there=there, refused=refused, owned=owned)
    return PACKINGS[key]


@pytest.mark.parametrize(("busy", "span"), CASES)
def test_a_leader_that_crashes_at_any_change_leaves_no_model_out_and_none_twice(busy: str, span: str) -> None:
    """Some of those who take over crash as well."""
    rng, (_, until), before = np.random.default_rng(1), SPANS[span], worlds(busy)[span]
    usual = copy.deepcopy(before)
    life = Life(usual)
    life.run_until(until)
    for place in range(2 * life.calls):
        world = copy.deepcopy(before)
        assert crash(world, until, place)
        for _ in range(int(rng.integers(0, 3))):
            world.move_to(world.now + float(rng.uniform(3.0, 10.0)))
            crash(world, world.now + 60.0, int(rng.integers(0, 12)))
        world.move_to(world.now + float(rng.uniform(3.0, 10.0)))
        Life(world).run_until(until)
        assert Stand.of(world) == Stand.of(usual), f"place {place}"
        check(world)
