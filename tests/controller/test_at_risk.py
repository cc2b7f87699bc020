"""What AWS recommends to replace: another is launched once, and it goes when that one is ready."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.controller.at_risk import with_risks
from mark.controller.journal import Header, entry_line, header_line, read_journal
from mark.controller.recovery import recover
from mark.controller.state import Decision, State
from mark.domain.demand import Demand
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import Fact, Launch, LaunchRefused, RebalanceAdvised, RefusalCause, SpotWarned
from tests.controller.builders import POLICY, SMALL, Stepped, drained, instances, plan, seen

READY, PENDING, DRAINING = InstanceState.READY, InstanceState.PENDING, InstanceState.DRAINING
WANTED, PERIOD_S = 3, 60.0
HISTORY = Demand(end_at=0.0, mean_rps=(30.0,), max_rps=(30.0,))
TICKS = st.lists(
    st.tuples(st.sampled_from(["advised", "warned", "refused", "nothing"]), st.integers(0, 9)), max_size=30
)


class Service:
    """A controller and its fleet, tick by tick: a launch boots for two, a notice lasts for two."""

    def __init__(self) -> None:
        self.made, self.tick, self.fleet = Stepped(), 0, FleetView()
        self.there = {one.id: one for one in instances(WANTED)}
        self.launched = WANTED
        self.step()

    def step(self, *facts: Fact, refuses: bool = False) -> list[str]:
        """The next tick; what it drained."""
        self.tick += 1
        now = self.tick * PERIOD_S
        for one in list(self.there.values()):
            if (one.terminates_at or now + 1.0) <= now or one.state is DRAINING:
                del self.there[one.id]
            elif one.state is PENDING and now >= one.launched_at + 2 * PERIOD_S:
                self.there[one.id] = replace(one, state=READY)
        for fact in facts:
            if isinstance(fact, SpotWarned) and fact.instance in self.there:
                one = self.there[fact.instance]
                self.there[one.id] = replace(one, terminates_at=fact.terminates_at)
        view = FleetView(instances=tuple(self.there[name] for name in sorted(self.there)))
        self.fleet = with_risks(view, self.fleet, facts)
        orders = self.made.see(seen(now, self.fleet.instances, wanted=plan(small=WANTED), facts=facts))
        for order in orders:
            if isinstance(order, Launch) and refuses:
                cause = RefusalCause.CAPACITY
                refused = LaunchRefused(
                    token=order.token, offering=SMALL.name, count=order.count, cause=cause, at=now
                )
                self.made.see(seen(now, self.fleet.instances, facts=(refused,)))
            elif isinstance(order, Launch):
                new = instances(
                    order.count, state=PENDING, token=order.token, first=self.launched + 1, launched_at=now
                )
                self.launched += order.count
                self.there |= {one.id: one for one in new}
        for name in drained(orders):
            self.there[name] = replace(self.there[name], state=DRAINING)
        return drained(orders)

    def serving(self) -> list[Instance]:
        return [one for one in self.there.values() if one.state is READY and one.terminates_at is None]

    def fact(self, what: str, number: int) -> tuple[Fact, ...]:
        now = (self.tick + 1) * PERIOD_S
        name = sorted(self.there)[number % len(self.there)] if self.there else "none"
        if what == "advised":
            return (RebalanceAdvised(instance=name, at=now),)
        warned = SpotWarned(instance=name, at=now, terminates_at=now + 2 * PERIOD_S)
        return (warned,) if what == "warned" else ()


def test_another_is_launched_at_once_and_the_one_at_risk_goes_when_that_is_ready() -> None:
    made = Service()
    advised = made.fact("advised", 0)
    assert made.step(*advised) == []
    assert (made.launched, len(made.serving())) == (WANTED + 1, WANTED)
    assert made.step(*advised) == [], "told again, it is not replaced again"
    assert made.step() == ["i-0001"], "whether it was interrupted or not"
    assert (made.launched, len(made.serving())) == (WANTED + 1, WANTED)


def test_a_controller_that_takes_over_knows_what_was_at_risk() -> None:
    fleet = FleetView(instances=instances(2))
    advised = RebalanceAdvised(instance="i-0002", at=60.0)
    marked = with_risks(fleet, FleetView(), (advised,))
    header = Header(policy=POLICY, catalogue="test", seed=0, history=HISTORY)
    line = entry_line(FleetView(), seen(60.0, marked.instances, facts=(advised,)), Decision(state=State()))
    recovered = recover(*read_journal([header_line(header), line]))
    assert recovered is not None
    assert with_risks(fleet, recovered.fleet, ()) == marked
    assert (marked.staying, marked.ready) == ({SMALL.name: 1}, {SMALL.name: 2})


@given(ticks=TICKS)
def test_never_fewer_than_wanted_and_never_twice_replaced(ticks: list[tuple[str, int]]) -> None:
    made = Service()
    for what, number in [*ticks, *[("nothing", 0)] * 40]:
        gone = made.step(*made.fact(what, number), refuses=what == "refused")
        assert not gone or len(made.serving()) >= WANTED, "what was drained was missed"
        coming = sum(item.count for item in made.made.state.requested if item.at < made.tick * PERIOD_S)
        at_risk = {one.id for one in made.fleet.at_risk}
        staying = [name for name, one in made.there.items() if one.serves_on and name not in at_risk]
        assert len(staying) + coming <= WANTED, "one too many was launched"
    assert len(made.serving()) == len(made.there) == WANTED
    assert not made.fleet.at_risk, "what was at risk has gone"
