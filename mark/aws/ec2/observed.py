"""The observed fleet: EC2's state of each instance, combined with its agent's (health check).

    EC2 state            agent            the instance is
    pending              any              pending
    running              none, starting   pending, or draining once it was asked to
    running              ready            ready, or draining once it was asked to
    running              draining         draining
    stopping             any              draining
    stopped              any              stopped
    shutting-down        any              left out
    terminated           any              left out

A running instance whose agent was ready and has fallen silent is pending: it is being started again, and serves
no requests until it announces itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mark.domain.billing.costs import Ec2State
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.member import Member, MemberState

GOING = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Row:
    """One instance as EC2 lists it: what it is by its tags, `launched_at` by its LaunchTime.

    `zone` is its availability zone; empty where nobody has said it yet. `outdated`: its version is not the
    setup's. `version`: the model's that it was launched for. `host`: its private address, empty until listed.
    """

    id: str
    model: str
    offering: str
    role: Role
    token: str
    state: Ec2State
    launched_at: float
    zone: str = ""
    outdated: bool = False
    version: str = ""
    host: str = ""


def fleet_view(
    rows: Iterable[Ec2Row],
    members: Iterable[Member],
    *,
    draining: Collection[str] = (),
    warned: Mapping[str, float] | None = None,
) -> FleetView:
    """All instances that are not gone, by id.

    draining: instances that were asked to drain. warned: when spot notices take instances away, by instance.
    """
    agents = {member.instance: member for member in members}
    seen = []
    for row in rows:
        agent = agents.get(row.id)
        state = _state(row, agent, asked=row.id in draining)
        if state is InstanceState.GONE:
            continue
        seen.append(
            Instance(
                id=row.id,
                offering=row.offering,
                state=state,
                role=row.role,
                token=row.token,
                zone=row.zone,
                launched_at=row.launched_at,
                terminates_at=_terminates_at((warned or {}).get(row.id), agent),
                credits=agent.credits if agent else None,
                outdated=row.outdated,
                version=row.version,
            )
        )
    return FleetView(instances=tuple(sorted(seen, key=lambda instance: instance.id)))


def _state(row: Ec2Row, agent: Member | None, *, asked: bool) -> InstanceState:
    if row.state in GOING:
        return InstanceState.GONE
    if row.state == "stopped":
        return InstanceState.STOPPED
    if row.state == "pending":
        return InstanceState.PENDING
    if row.state == "stopping" or asked or (agent and agent.state is MemberState.DRAINING):
        return InstanceState.DRAINING
    if agent and agent.state is MemberState.READY:
        return InstanceState.READY
    return InstanceState.PENDING


def _terminates_at(warned: float | None, agent: Member | None) -> float | None:
    told = [at for at in (warned, agent.terminates_at if agent else None) if at is not None]
    return min(told, default=None)
