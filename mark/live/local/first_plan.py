"""The plan that a service begins with, made before anything starts: one that serves nobody is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mark.catalog.billing import SECONDS_PER_HOUR
from mark.config.settings import Settings
from mark.controller.hosts.sharing import own_history, share_instances, taken_rps
from mark.controller.hosts.tenancy import HostUse, host_uses
from mark.controller.plan_request import plan_from_nothing
from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.plan import Plan
from mark.live.models import LiveModel
from mark.live.sharers import sharers_of
from mark.plugins.load import build_forecaster

HOUR_UNITS = 60
FORECASTER = "last-value"
"""It needs no training; the controller's own forecaster has nothing else to go by at its first tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPlan:
    """A model's first plan. plan: None where none is possible. why: the plan's reason, or why there is none."""

    model: LiveModel
    plan: Plan | None
    why: str
    #: Types of the shared instances that hold it.
    shared: tuple[str, ...] = ()

    @property
    def usd_per_hour(self) -> float:
        """Cost of its instances."""
        return self.plan.usd_per_hour if self.plan is not None else 0.0

    @property
    def lambda_usd_per_hour(self) -> float:
        """Cost of Lambda's calls where it answers all that is expected; 0 beside instances."""
        overflow, hour = self.model.served.overflow, self.model.setup.history.mean_rps[-HOUR_UNITS:]
        if overflow is None or self.fleet or self.shared or not hour:
            return 0.0
        return sum(hour) / len(hour) * SECONDS_PER_HOUR * overflow.usd_per_warm_request

    @property
    def fleet(self) -> str:
        """Its instances, such as `2 c5.large, 1 g4dn.xlarge`; nothing where it has none."""
        counts = self.plan.counts if self.plan is not None else ()
        return ", ".join(f"{item.count} {item.offering.partition(':')[0]}" for item in counts if item.count)


def first_hosts(settings: Settings, models: Sequence[LiveModel]) -> tuple[HostUse, ...]:
    """Instances that the service's models share at first."""
    sharers = sharers_of(settings, models)
    loads = {model.name: model.setup.history for model in models}
    histories = [loads[sharer.model.name] for sharer in sharers]
    return host_uses(share_instances(sharers, histories), sharers, histories) if sharers else ()


def first_plan(model: LiveModel, hosts: Sequence[HostUse] = ()) -> FirstPlan:
    """The model's plan for the load that it starts with, less what shared instances take of it."""
    tenants = [(host, one) for host in hosts for one in host.tenants if one.model == model.name]
    shared = tuple(host.offering.partition(":")[0] for host, _ in tenants)
    planned_rps, before = sum(one.share_rps for _, one in tenants), model.setup.history
    history = own_history(before, planned_rps)
    policy = model.bundle.controller
    forecaster = build_forecaster(FORECASTER, replace(model.setup, history=history))
    forecast = forecaster.forecast(history, policy.horizon)
    try:
        taken = taken_rps(before, planned_rps) if tenants else None
        plan = plan_from_nothing(policy, history, forecast, shared_rps=taken)
    except PlanInfeasible as error:
        return FirstPlan(model=model, plan=None, why=str(error), shared=shared)
    return FirstPlan(model=model, plan=plan, why=plan.reason, shared=shared)


def check_served(first: FirstPlan) -> None:
    """Misconfigured where the first plan holds no instance and there is no Lambda: nobody would be served."""
    if not first.fleet and not first.shared and first.model.served.overflow is None:
        raise Misconfigured(
            f"{first.model.name} would not be served: its first plan holds no instance and it has no Lambda "
            f"({first.why}); change offerings.types, the policy or expected_rps, or name a Lambda profile"
        )
