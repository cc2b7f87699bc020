"""A user's own policy as a planner: asked in time, and what it answers checked before it is a plan."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index

from mark.controller.plan_request import MOST_INSTANCES
from mark.controller.policy import OWN, ControllerPolicy
from mark.domain.errors import Misconfigured, PlanInfeasible, failure_words
from mark.domain.figures import figure
from mark.domain.plan import Excuse, Plan, PlannedCount, PlanRequest
from mark.plugins.deadline import DEADLINE_S, Punctual
from mark.plugins.load import make_policy


class OwnPlanner:
    """Plans as the user's own policy of that name does. Misconfigured where it cannot be made.

    A plan that fails or is late is PlanInfeasible, so that the last one stays; the very first one Misconfigured:
    there is nothing to stay with.
    """

    def __init__(self, name: str, deadline_s: float = DEADLINE_S) -> None:
        self._name, self._policy = name, make_policy(name)
        self._punctual = Punctual("plan", name=name, deadline_s=deadline_s)
        self._has_planned = False

    def __call__(self, request: PlanRequest) -> Plan:
        """The policy's plan, with its own reason."""
        try:
            counts = self._punctual.answer(lambda: self._policy.plan(request))
            plan = plan_of_counts(request, counts)
        except Exception as error:
            words = failure_words(error)
            if self._has_planned:
                raise PlanInfeasible(f"own policy: {words}") from error
            raise Misconfigured(f"policy {self._name!r} failed at its first plan: {words}") from error
        self._has_planned = True
        return plan

    def close(self) -> None:
        """Let its thread end."""
        self._punctual.close()


def own_planner(policy: ControllerPolicy) -> OwnPlanner | None:
    """The planner of a user's own policy; None for MArk's. Misconfigured where it cannot be made."""
    return OwnPlanner(policy.name) if policy.planner == OWN else None


def plan_of_counts(request: PlanRequest, counts: object) -> Plan:
    """The plan of so many instances by offering. TypeError or ValueError where `counts` is nonsense."""
    if not isinstance(counts, Mapping):
        raise TypeError(f"it returned a {type(counts).__name__}, not a mapping of offerings to counts")
    offerings = {item.name: item for item in request.offerings}
    running, planned = dict(request.running), list[PlannedCount]()
    for name, wanted in counts.items():
        if name not in offerings:
            raise ValueError(
                f"it returned {name!r}, which is not an offering now: {', '.join(offerings) or 'none is'}"
            )
        try:
            count = index(wanted)
        except TypeError:
            count = -1
        if not 0 <= count <= MOST_INSTANCES:
            raise ValueError(f"its count of {name} is {wanted!r}, not a whole number from 0 to {MOST_INSTANCES:,}")
        if count:
            item = offerings[name]
            planned.append(
                PlannedCount(
                    offering=name,
                    count=count,
                    kept=min(count, running.get(name, 0)),
                    usable_rps=item.capacity_rps,
                    usd_per_hour=item.usd_per_hour,
                    launch_usd=item.launch_usd,
                )
            )
    capacity_rps = sum(item.count * item.usable_rps for item in planned)
    taken = {item.offering for item in planned}
    return Plan(
        at=request.now,
        counts=tuple(planned),
        required_rps=request.history.mean_rps[-1] if request.history.mean_rps else 0.0,
        capacity_rps=capacity_rps,
        excuses=tuple(
            Excuse(offering=name, reason="the policy asks for none") for name in sorted(offerings.keys() - taken)
        ),
        reason=f"the policy's own: {', '.join(item.words for item in planned) or 'nothing'}, "
        f"{figure(capacity_rps)} requests/s",
    )
