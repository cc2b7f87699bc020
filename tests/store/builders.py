"""Values with defaults, so that a test says only what it is about."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.billing.costs import Transition
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState
from mark.domain.load.traffic import GatewayReport, ModelTraffic

MEMBER = Member(
    instance="i-1",
    model="digits",
    offering="c5.large/spot",
    role=Role.SERVING,
    host="127.77.0.1",
    port=8001,
    state=MemberState.READY,
    max_batch=2,
    batch_s=(0.01, 0.015),
    capacity_rps=120.0,
)


def a_member(instance: str = "i-1", *, model: str = "digits", state: MemberState = MemberState.READY) -> Member:
    return replace(MEMBER, instance=instance, model=model, state=state)


def a_report(gateway: str, sequence: int, **seen: object) -> GatewayReport:
    """A report on the model `digits`."""
    return GatewayReport(gateway=gateway, sequence=sequence, models=(ModelTraffic(model="digits", **seen),))  # type: ignore[arg-type]


def a_transition(instance: str = "i-1", *, state: str = "running", at: float = 100.0) -> Transition:
    return Transition(
        instance=instance,
        model="digits",
        offering="c5.large/spot",
        role=Role.SERVING,
        state=state,  # type: ignore[arg-type]
        at=at,
    )
