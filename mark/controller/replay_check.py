"""The replay law: folding `step` over a journal, and planning again, reproduces every plan and every order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mark.controller.journal import Header, Tick
from mark.controller.limits.spending_limit import apply_spending_limit
from mark.controller.plan_request import plan_fleet, plan_request
from mark.controller.policy import OWN, ControllerPolicy
from mark.controller.state import Observation, State
from mark.controller.step import apply_observation, decide
from mark.domain.demand import Demand
from mark.domain.errors import PlanInfeasible
from mark.domain.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A tick at which folding gives something else than the journal holds."""

    at: float
    what: str
    recorded: str
    folded: str


def mismatches(header: Header, ticks: Iterable[Tick]) -> Iterator[Mismatch]:
    """Fold `step` over a journal, plan again, and say where either differs from what was written."""
    state, history = header.state, header.history
    for tick in ticks:
        seen = tick.seen
        if seen.demand is not None:
            history = history.followed_by(seen.demand, header.policy.history_units)
        known = apply_observation(state, seen, header.policy)
        planned = _plan_again(known, seen, header.policy, history)
        if planned != seen.plan:
            yield Mismatch(at=seen.now, what="plan", recorded=str(seen.plan), folded=str(planned))
        decision = decide(known, seen, header.policy)
        if decision.orders != tick.orders:
            yield Mismatch(at=seen.now, what="orders", recorded=str(tick.orders), folded=str(decision.orders))
        state = decision.state


def _plan_again(known: State, seen: Observation, policy: ControllerPolicy, history: Demand) -> Plan | None:
    if seen.forecast is None:
        return None
    if policy.planner == OWN:  # the user's code may have changed since, and need not plan the same twice
        return seen.plan
    request = plan_request(known, seen, policy, history=history, forecast=seen.forecast)
    try:
        return plan_fleet(request, apply_spending_limit(policy, seen.spending_limit))
    except PlanInfeasible:
        return None
