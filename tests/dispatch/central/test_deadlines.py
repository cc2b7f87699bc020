"""One queue for all instances of a model with variants: the replay's batches, and what a replay does not know."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.central.deadlines import DeadlineQueue, Formed
from mark.dispatch.central.queue import Instance
from mark.dispatch.variants.serving import VariantDispatch
from mark.dispatch.variants.slackfit import VariantRule
from mark.simulator.engine import kernel_deadlines
from mark.simulator.engine.compiled import plain_kernel
from mark.simulator.engine.data_plane import Engine
from tests.planner.builders import offering
from tests.simulator.engines import engine
from tests.simulator.test_engine_variants import LOSSY, SLO, TYPE, serving

HORIZON_MS = 1000 * SLO.latency_s
NOW_S = 1.0
GIVE_UP_S = LOSSY.give_up_s
ONE = [Instance("0", TYPE)]


@cache
def made(dispatch: VariantDispatch) -> DeadlineQueue[int]:
    """Queries are numbers; those from 1000 on have the floor `large`, those from 2000 on name `middle`."""

    def wish(query: int) -> tuple[int, bool]:
        return (1, True) if query >= 2000 else (2 if query >= 1000 else 0, False)

    return DeadlineQueue(
        serving(dispatch), [TYPE], horizon_s=SLO.latency_s, give_up_s=GIVE_UP_S, wish=wish, holds=True
    )


def queue_of(dispatch: VariantDispatch, pool: list[Instance], *, holds: bool = True) -> DeadlineQueue[int]:
    """An empty queue; its tables are made once."""
    queue = made(dispatch)
    queue._holds = holds
    queue.remove_all(queue.waiting())
    for instances in ([], pool):
        queue.set_pool(0.0, instances)
    return queue


@cache
def replayed(dispatch: VariantDispatch) -> Engine:
    """The engine of a replay with four instances."""
    run = engine(plain_kernel(), np.zeros(0), dispatch=LOSSY, slo=SLO, duration_s=2.0, variants=serving(dispatch))
    for _ in range(4):
        run.add(offering(TYPE, batch=8, rps=32.0), standby=False)
    return run


CENTRAL = VariantDispatch(is_central=True)


def started(decided: Formed[int]) -> dict[str, tuple[int, str]]:
    return {batch.instance: (len(batch.queries), batch.variant) for batch in decided.batches}


@given(
    rule=st.sampled_from((VariantRule.SLACKFIT, VariantRule.MAXACC)),
    ages=st.lists(st.integers(0, 600), max_size=60),
    held=st.integers(0, 12),
    rests=st.lists(st.integers(0, 200), min_size=1, max_size=4),
    sheds=st.booleans(),
    waited=st.sampled_from((0.1, 0.9)),
)
def test_batches_are_those_of_a_replay(
    rule: VariantRule, ages: list[int], held: int, rests: list[int], sheds: bool, waited: float
) -> None:
    """ages: of who waits, in 1/1024 s; rests: time that is left of an instance's batch, 0 where it is idle."""
    dispatch = VariantDispatch(rule, is_central=True)
    live = queue_of(
        dispatch,
        [
            Instance(str(number), TYPE, 1000 * (NOW_S + rest / 1024) if rest else None)
            for number, rest in enumerate(rests)
        ],
        holds=not sheds,
    )
    run = replayed(dispatch)
    run._rules.shed_late = sheds
    fleet, central = run._fleet, run._fleet.central
    assert central is not None
    central.marks.waiting = central.marks.held = 0
    for number, rest in enumerate(rests):
        fleet.servers[number].in_service = int(rest > 0)
        fleet.servers[number].free_at = NOW_S + rest / 1024
    for number, age in enumerate(sorted(ages, reverse=True)):
        arrived_at = NOW_S - age / 1024
        kernel_deadlines._join(arrived_at, central)
        live.add(0.0, number, size=1, deadline_ms=1000 * arrived_at + HORIZON_MS)
    for number in range(0 if sheds else held):
        arrived_at = NOW_S - waited * GIVE_UP_S
        central.held[(central.marks.held_head + number) & (central.held.size - 1)] = arrived_at
        central.marks.held += 1
        live.hold(100 + number, size=1, deadline_ms=1000 * arrived_at + HORIZON_MS)
    rows = np.arange(len(rests))
    kernel_deadlines._decide(NOW_S, rows, run._rules, fleet, central, run._tally)
    names = ("small", "middle", "large")
    expected = {
        str(number): (int(fleet.servers[number].in_service), names[fleet.servers[number].variant])
        for number, rest in enumerate(rests)
        if not rest and fleet.servers[number].in_service
    }
    assert started(live.decide(1000 * NOW_S)) == expected
    assert len(live) == central.marks.waiting + central.marks.held
    assert live.held == central.marks.held


def test_deadlines_order_a_batch_and_what_is_late_waits_for_its_turn() -> None:
    live = queue_of(CENTRAL, ONE)
    for query, deadline_ms in enumerate((500.0, 300.0, 10.0, 400.0)):
        live.add(0.0, query, size=1, deadline_ms=deadline_ms)
    decided = live.decide(0.0)
    assert [batch.queries for batch in decided.batches] == [[2]]  # late already; whoever waits can wait for it
    assert (live.held, live.idle) == (0, 0)
    live.set_idle("0")
    assert [batch.queries for batch in live.decide(30.0).batches] == [[1, 3, 0]]
    assert len(live) == 0


def test_what_is_late_is_handed_on_where_the_policy_sheds_and_a_candidate_s_always() -> None:
    live = queue_of(CENTRAL, [*ONE, Instance("new", TYPE, None, is_candidate=True)], holds=False)
    live.add(0.0, 1, size=1, deadline_ms=1.0)
    live.add(0.0, 2, size=1, deadline_ms=1.0, is_candidate=True)
    live.add(0.0, 3, size=1, deadline_ms=450.0, is_candidate=True)
    assert live.waiting_for(is_candidate=True) == [2, 3]
    decided = live.decide(0.0)
    assert (decided.handed_on, decided.spilled) == ([1], [2])
    assert [(batch.queries, batch.instance) for batch in decided.batches] == [([3], "new")]


def test_a_floor_lifts_its_batch_and_a_named_variant_ends_one() -> None:
    live = queue_of(CENTRAL, ONE)
    for query, deadline_ms in ((0, 200.0), (1000, 210.0), (2000, 220.0), (2001, 230.0)):
        live.add(0.0, query, size=1, deadline_ms=deadline_ms)
    first = live.decide(0.0).batches
    live.set_idle("0")
    second = live.decide(1.0).batches
    assert [(batch.queries, batch.variant) for batch in (*first, *second)] == [
        ([0, 1000], "large"),
        ([2000, 2001], "middle"),
    ]


def test_a_machine_that_says_it_is_slow_has_less_slack() -> None:
    chosen = []
    for slower in (1.0, 3.0):
        live = queue_of(CENTRAL, ONE)
        live.set_pace("0", slower * 0.06)
        for query in range(4):
            live.add(0.0, query, size=1, deadline_ms=200.0)
        chosen.append(live.decide(0.0).batches[0].variant)
    assert chosen == ["large", "small"]


def test_whoever_leaves_is_in_no_batch_and_instances_that_stay_keep_what_is_known() -> None:
    live = queue_of(CENTRAL, [Instance("0", TYPE, 50.0)])
    for query in range(3):
        live.add(0.0, query, size=1, deadline_ms=400.0)
    assert live.remove_all((1, 7)) == [1]
    live.add(0.0, 1, size=1, deadline_ms=450.0)
    live.set_pool(0.0, [*ONE, Instance("1", TYPE)])
    assert [batch.instance for batch in live.decide(0.0).batches] == ["1"]
    assert (len(live), 1 in live, live.best_ms(1) > 0) == (0, False, True)
