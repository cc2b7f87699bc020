"""Readings of surplus CPU credits in the ledger: of what runs, and only where there is much more to bill."""

from __future__ import annotations

from dataclasses import replace

from mark.aws.ec2.observed import Ec2Row
from mark.aws.ec2.transitions import READ_VCPU_S, Transitions
from mark.domain.billing.costs import Ec2State, Transition
from mark.domain.fleet.instances import Role


class Noted:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.all: list[Transition] = []

    def note(self, transition: Transition) -> None:
        self.all.append(transition)

    def transitions(self, model: str) -> tuple[Transition, ...]:
        return tuple(self.all)

    @property
    def readings(self) -> list[tuple[float, float | None]]:
        return [(item.at, item.surplus_vcpu_s) for item in self.all if item.is_reading]


def row(state: Ec2State) -> Ec2Row:
    return Ec2Row(
        id="i-1", model="m", offering="t3.small", role=Role.STANDBY, token="", state=state, launched_at=0.0
    )


def test_surplus_is_written_down_as_it_grows_and_anew_after_another_start() -> None:
    ledger = Noted()
    made = Transitions(ledger, "m")
    made.listed({"i-1": row("running")}, 1.0)
    for now, used in ((10.0, 0.5), (20.0, READ_VCPU_S), (30.0, 1.5 * READ_VCPU_S), (40.0, 2 * READ_VCPU_S)):
        made.read_surplus({"i-1": used}, now)
    assert ledger.readings == [(20.0, READ_VCPU_S), (40.0, 2 * READ_VCPU_S)]
    made.read_surplus({"i-1": 0.0}, 50.0)
    made.read_surplus({"i-1": READ_VCPU_S}, 60.0)
    assert ledger.readings[2:] == [(60.0, READ_VCPU_S)]


def test_nothing_is_read_of_what_does_not_run_or_is_no_longer_there() -> None:
    ledger = Noted()
    made = Transitions(ledger, "m")
    made.listed({"i-1": row("stopped")}, 1.0)
    made.read_surplus({"i-1": 1e6, "i-unknown": 1e6}, 2.0)
    assert ledger.readings == []


def test_who_takes_over_goes_on_with_states_and_not_with_readings() -> None:
    ledger = Noted()
    ended = Transition(
        instance="i-1", model="m", offering="t3.small", role=Role.STANDBY, state="terminated", at=5.0
    )
    ledger.all = [ended, replace(ended, state="running", at=6.0, surplus_vcpu_s=400.0)]
    made = Transitions(ledger, "m")
    made.listed({}, 10.0)
    made.listed({}, 500.0)
    assert len(ledger.all) == 2, "it had ended, and is not ended again"
