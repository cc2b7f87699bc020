"""Changes of a pool: never above its budget, and as much kept serving as the change allows."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mark.controller.journal import Header, entry_line, header_line, read_journal
from mark.controller.plan_request import plan_fleet
from mark.controller.policy import ControllerPolicy
from mark.controller.replay_check import mismatches
from mark.controller.state import NoteKind
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import Drain, Fact, Launch, LaunchRefused, RefusalCause
from mark.domain.load.sizes import SizeDistribution, size_distribution
from mark.domain.offerings.offering import Market
from mark.domain.plan import Plan, PlannedCount
from mark.domain.plans.pool_policy import PoolPolicy
from tests.controller.builders import Stepped, drained, forecast, instances, launched, request_at, seen, unit
from tests.planner.builders import SLO, demand, offering

FAST = offering("fast", rps=10.0, usd_per_hour=0.5, points={1: 0.05, 4: 0.2})
SLOW = offering("slow", rps=2.0, usd_per_hour=0.1, points={1: 0.2, 4: 1.2})
SPOT = replace(offering("spare", rps=5.0, usd_per_hour=0.2, points={1: 0.1, 4: 0.4}), market=Market.SPOT)
MIXES = (
    size_distribution("small", {1: 0.9, 4: 0.1}),
    size_distribution("even", {1: 0.5, 4: 0.5}),
    size_distribution("large", {1: 0.1, 4: 0.9}),
)
PRICES = {item.name: item.usd_per_hour for item in (FAST, SLOW, SPOT)}
BUDGET = 2.0
TICK_S = 5.0


def policy(sizes: SizeDistribution = MIXES[0], budget: float = BUDGET) -> ControllerPolicy:
    return ControllerPolicy(
        name="kairos",
        planner="kairos",
        slo=SLO,
        offerings=(FAST, SLOW, SPOT),
        pool=PoolPolicy(budget_usd_per_hour=budget, sizes=sizes),
        cooldown_s=0.0,
        keep_observed=False,
        warm_lambda=False,
    )


def pool(**counts: int) -> Plan:
    kinds = {"fast": FAST, "slow": SLOW, "spare": SPOT}
    planned = tuple(
        PlannedCount(
            offering=kinds[name].name,
            count=count,
            kept=0,
            usable_rps=kinds[name].capacity_rps,
            usd_per_hour=kinds[name].usd_per_hour,
            launch_usd=0.0,
        )
        for name, count in counts.items()
    )
    return Plan(at=0.0, counts=planned, required_rps=1.0, capacity_rps=1.0)


def test_launches_take_the_rest_of_the_budget_and_only_what_they_need_leaves() -> None:
    made = Stepped(policy())
    there = instances(20, SLOW)
    orders = made.see(seen(0.0, there, wanted=pool(fast=2, slow=10)))
    assert launched(orders) == {}
    assert len(drained(orders)) == 10
    assert made.last.notes[0].kind is NoteKind.POOL_BUDGET
    some = instances(15, SLOW)
    made = Stepped(policy())
    orders = made.see(seen(0.0, some, wanted=pool(fast=2, slow=3)))
    assert launched(orders) == {FAST.name: 1}  # 0.5 USD/h are left
    assert len(drained(orders)) == 5  # and so many make room for the second one; seven more serve on


def test_what_drains_counts_until_it_is_gone() -> None:
    made = Stepped(policy())
    leaving = instances(4, FAST, state=InstanceState.DRAINING)
    assert launched(made.see(seen(0.0, leaving, wanted=pool(slow=20)))) == {}
    assert launched(made.see(seen(5.0, leaving[:2]))) == {SLOW.name: 10}
    assert launched(made.see(seen(10.0, leaving[:2]))) == {}


def test_the_rest_leaves_once_the_pool_is_ready() -> None:
    made = Stepped(policy())
    old, new = instances(5, SLOW), instances(2, FAST, state=InstanceState.PENDING, first=50)
    assert drained(made.see(seen(0.0, (*old, *new), wanted=pool(fast=2)))) == []
    ready = instances(2, FAST, first=50)
    assert len(drained(made.see(seen(5.0, (*old, *ready))))) == 5


def test_an_instance_without_a_known_price_leaves_before_anything_is_launched() -> None:
    made = Stepped(policy())
    unknown = instances(1, offering("gone"))
    orders = made.see(seen(0.0, unknown, wanted=pool(fast=1)))
    assert launched(orders) == {}
    assert drained(orders) == [unknown[0].id]


class World:
    """A cloud that boots, refuses and ends instances as it is told; `usd_per_hour` is all that was ordered."""

    def __init__(self, given_policy: ControllerPolicy) -> None:
        self.made = Stepped(given_policy)
        self.there: dict[str, Instance] = {}
        self.unseen: list[Instance] = []
        self.facts: list[Fact] = []
        self.now = 0.0
        self.number = 0

    @property
    def usd_per_hour(self) -> float:
        return sum(PRICES[i.offering] for i in (*self.there.values(), *self.unseen))

    def tick(self, mix: SizeDistribution, *, plans: bool = True) -> None:
        self.now += TICK_S
        made = self.made
        assert made.policy.pool is not None
        made.policy = replace(made.policy, pool=replace(made.policy.pool, sizes=mix))
        observed = seen(self.now, tuple(self.there.values()), facts=tuple(self.facts))
        self.facts = []
        if plans:
            asked = request_at(made.state, observed, made.policy, history=demand((1.0,)), forecast=forecast(1.0))
            observed = replace(observed, plan=plan_fleet(asked, made.policy))
        for order in made.see(observed):
            if isinstance(order, Launch):
                for _ in range(order.count):
                    self.number += 1
                    new = Instance(
                        id=f"i-{self.number:05d}",
                        offering=order.offering,
                        state=InstanceState.PENDING,
                        token=order.token,
                        launched_at=self.now,
                    )
                    self.unseen.append(new)
            elif isinstance(order, Drain):
                for name in order.instances:
                    self.there[name] = replace(self.there[name], state=InstanceState.DRAINING)

    def happens(self, event: str) -> None:
        if event == "appear":
            self.there |= {i.id: i for i in self.unseen}
            self.unseen = []
        elif event == "refuse" and self.unseen:
            lost = self.unseen.pop()
            cause = RefusalCause.CAPACITY
            fact = LaunchRefused(token=lost.token, offering=lost.offering, count=1, cause=cause, at=self.now)
            self.facts.append(fact)
        elif event == "boot":
            self._become(InstanceState.PENDING, InstanceState.READY)
        elif event == "end":
            self.there = {k: i for k, i in self.there.items() if i.state is not InstanceState.DRAINING}
        elif event == "interrupt" and self.there:
            self.there.pop(min(self.there))

    def _become(self, before: InstanceState, after: InstanceState) -> None:
        self.there = {k: replace(i, state=after) if i.state is before else i for k, i in self.there.items()}


EVENTS = ("appear", "refuse", "boot", "end", "interrupt")


@settings(max_examples=30, deadline=None)
@given(
    days=st.lists(
        st.tuples(st.sampled_from(MIXES), st.booleans(), st.lists(st.sampled_from(EVENTS), max_size=3)),
        min_size=1,
        max_size=25,
    ),
    budget=st.floats(0.5, 3.0),
)
def test_no_pool_is_ever_dearer_than_its_budget(
    days: list[tuple[SizeDistribution, bool, list[str]]], budget: float
) -> None:
    world = World(policy(budget=budget))
    for mix, plans, events in days:
        world.tick(mix, plans=plans)
        assert world.usd_per_hour <= budget * (1 + 1e-8)
        for event in events:
            world.happens(event)
            assert world.usd_per_hour <= budget * (1 + 1e-8)


@settings(max_examples=8, deadline=None)
@given(mixes=st.lists(st.sampled_from(MIXES), min_size=1, max_size=4), budget=st.floats(0.5, 3.0))
def test_every_change_of_pools_ends_with_the_pool_that_was_planned(
    mixes: list[SizeDistribution], budget: float
) -> None:
    world = World(policy(budget=budget))
    for mix in mixes:
        for _ in range(40):
            world.tick(mix)
            for event in ("appear", "boot", "end"):
                world.happens(event)
        plan = world.made.state.plan
        assert plan is not None
        there = {item.offering: item.count for item in plan.counts}
        assert {name: sum(i.offering == name for i in world.there.values()) for name in there} == there
        assert len(world.there) == sum(there.values())


def test_a_pool_follows_the_sizes_that_come_and_its_journal_folds_with_and_without_them() -> None:
    given = policy(budget=3.0)
    assert given.pool is not None
    given = replace(given, pool=replace(given.pool, size_window=200))
    header = Header(policy=given, catalogue="c", seed=1, history=demand((1.0,)))
    made, before, lines = Stepped(given), FleetView(), [header_line(header)]
    mixes = [((1, 90), (4, 10))] * 3 + [((1, 10), (4, 90))] * 3
    wanted: list[dict[str, int]] = []
    history = header.history
    for number, counts in enumerate(mixes, start=1):
        ended = replace(unit(1.0), start_at=60.0 * number, sizes=counts)
        history = history.followed_by(ended, given.history_units)
        observed = replace(seen(60.0 * number), demand=ended)
        asked = request_at(made.state, observed, given, history=history, forecast=forecast(1.0))
        observed = replace(observed, forecast=forecast(1.0), plan=plan_fleet(asked, given))
        made.see(observed)
        lines.append(entry_line(before, observed, made.last))
        assert observed.plan is not None
        wanted.append({item.offering: item.count for item in observed.plan.counts})
    assert wanted[0] == wanted[2] != wanted[-1]
    assert wanted[-1].get(FAST.name, 0) > wanted[0].get(FAST.name, 0)
    assert made.state.sizes.requests >= 100
    assert list(mismatches(*read_journal(lines))) == []
    older = [line.replace(b'"sizes":[[', b'"of another version":[[') for line in lines[1:]]
    assert [tick.seen.demand.sizes for tick in read_journal([lines[0], *older])[1] if tick.seen.demand] == [()] * 6
