"""The live bill folds transitions: told of those of a simulated run, it finds the run's own stretches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.ledger import fleet_usage, running_now
from mark.catalog.billing import bill_asleep, bill_instances, bill_running, cost_of
from mark.cloudmodel.lifecycle import Life
from mark.domain.billing.costs import BillLine, InstanceUsage, Transition
from mark.domain.fleet.instances import Role
from mark.domain.offerings.offering import Market
from mark.simulator import replay
from mark.simulator.cloud import SimulatedCloud, _Machine
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript, Interrupt
from tests.footprints import FOOTPRINT
from tests.scenarios.builders import experiment, run, up_and_down

END_AT = 3600.0 + 35 * 60.0


class Telling(SimulatedCloud):
    """A simulated cloud that tells of transitions as EC2 does."""

    told: list[Transition]

    def _enter(self, machine: _Machine, life: Life, now: float) -> bool:
        before = machine.life
        if life.ec2 != before.ec2:
            self.told.append(
                Transition(
                    instance=machine.id,
                    model="m",
                    offering=machine.offering.name,
                    role=machine.role,
                    state=life.ec2,
                    at=now,
                )
            )
        return super()._enter(machine, life, now)


@pytest.fixture(scope="module")
def simulated(kernel: Kernel) -> Telling:
    """A run with surges, spot interruptions and standbys that sleep, wake and sleep again."""
    made: list[Telling] = []

    class Kept(Telling):
        def __init__(self, **given_: object) -> None:
            self.told = []
            made.append(self)
            super().__init__(**given_)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "SimulatedCloud", Kept)
        faults = FaultScript(interrupts=(Interrupt(at_s=425.0, share=0.5), Interrupt(at_s=1200.0, share=0.4)))
        run(experiment(kernel, Market.SPOT, trace=up_and_down(), faults=faults), "greedy-oracle")
    (cloud,) = made
    return cloud


def bill_kept(asleep_s: float, running_s: float) -> tuple[BillLine, ...]:
    return (*bill_asleep(FOOTPRINT, asleep_s), *bill_running(FOOTPRINT, running_s))


def plain(usages: list[InstanceUsage]) -> list[tuple[str, str, Role, float, float]]:
    return sorted((u.instance, u.offering, u.role, u.started_at, u.ended_at) for u in usages)


def test_the_bill_of_transitions_is_the_runs_own(simulated: Telling) -> None:
    assert simulated.wakes > 0
    usage = fleet_usage(simulated.told, END_AT)
    assert plain(list(usage.usages)) == plain(simulated.usages)
    assert usage.asleep_s == pytest.approx(simulated.asleep_s)
    assert usage.running_s == pytest.approx(simulated.running_s)
    prices = {u.offering: 0.1 for u in simulated.usages}
    live = (*bill_instances(usage.usages, prices), *bill_kept(usage.asleep_s, usage.running_s))
    own = (*bill_instances(simulated.usages, prices), *bill_kept(simulated.asleep_s, simulated.running_s))
    assert cost_of(live).total == pytest.approx(cost_of(own).total)


@given(random=st.randoms(use_true_random=False), again=st.integers(0, 40))
def test_late_and_repeated_transitions_change_nothing(simulated: Telling, random: object, again: int) -> None:
    told = simulated.told
    shuffled = told + told[:again]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fleet_usage(shuffled, END_AT) == fleet_usage(told, END_AT)


@given(at=st.floats(3600.0, END_AT))
def test_spend_so_far_only_grows_and_counts_what_runs(simulated: Telling, at: float) -> None:
    now, later = fleet_usage(simulated.told, at), fleet_usage(simulated.told, at + 60.0)
    assert now.running_s <= later.running_s
    assert now.asleep_s <= later.asleep_s
    assert all(u.started_at <= u.ended_at <= at for u in now.usages)
    assert len(running_now(fleet_usage(simulated.told, at), at)) <= len(
        {t.instance for t in simulated.told if t.at <= at}
    )
