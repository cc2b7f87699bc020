"""The plan that a service begins with, made before anything starts: one that serves nobody is refused."""

from __future__ import annotations

from collections.abc import Sequence

from mark.controller.plan_request import plan_fleet, plan_request
from mark.controller.state import Observation, State
from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.fleet import FleetView
from mark.domain.plan import Plan
from mark.live.models import LiveModel
from mark.plugins.load import build_forecaster

FORECASTER = "last-value"
"""It needs no training; the controller's own forecaster has nothing else to go by at its first tick."""


def first_plan(model: LiveModel) -> Plan:
    """The model's plan for the load that it starts with. Raises PlanInfeasible where there is none."""
    policy, history = model.bundle.controller, model.setup.history
    forecast = build_forecaster(FORECASTER, model.setup).forecast(history, policy.horizon)
    seen = Observation(now=history.end_at, fleet=FleetView())
    return plan_fleet(plan_request(State(), seen, policy, history=history, forecast=forecast), policy)


def first_fleet_usd(models: Sequence[LiveModel]) -> float:
    """Instances of the plans that the models begin with, USD an hour."""
    return sum(_first_usd(model) for model in models)


def _first_usd(model: LiveModel) -> float:
    try:
        return first_plan(model).usd_per_hour
    except PlanInfeasible:  # Lambda serves, or the controllers' own excuse says why nobody does
        return 0.0


def check_first_plan(model: LiveModel) -> None:
    """Misconfigured where the first plan holds no instance and there is no Lambda: nobody would be served."""
    try:
        plan = first_plan(model)
    except PlanInfeasible as error:
        why = str(error)
    else:
        why = plan.reason
        if plan.counts:
            return
    if model.served.overflow is None:
        raise Misconfigured(
            f"{model.name} would not be served: its first plan holds no instance and it has no Lambda ({why}); "
            "change offerings.types, the policy or expected_rps, or name a Lambda profile"
        )
