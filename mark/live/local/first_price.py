"""The price of what a service rents first, told before it rents anything, and asked for where it is high."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mark.catalog.billing import HOURS_PER_MONTH
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.controller.hosts.tenancy import HostUse
from mark.domain.errors import Misconfigured
from mark.domain.figures import figure, plural
from mark.live.local.first_plan import FirstPlan, first_hosts, first_plan
from mark.live.models import LiveModel, make_live_models
from mark.report.formatting import rate_words, usd_per_month_words
from mark.report.overhead import overhead_usd_per_hour
from mark.report.terminal import note, show

ASK_ABOVE_USD_PER_HOUR = 1.0
"""Where instances are paid for and the settings name no other limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPrice:
    """The first plans of a service's models, and what stands around their fleets."""

    plans: tuple[FirstPlan, ...]
    overhead_usd_per_hour: float
    #: Instances that models share.
    hosts: tuple[HostUse, ...] = ()

    @property
    def instances_usd_per_hour(self) -> float:
        """Instances alone."""
        own = sum(one.usd_per_hour for one in self.plans)
        return own + sum(host.usd_per_hour for host in self.hosts)

    @property
    def lambda_usd_per_hour(self) -> float:
        """Lambda's calls for the models that it answers alone."""
        return sum(one.lambda_usd_per_hour for one in self.plans)

    @property
    def usd_per_hour(self) -> float:
        """All of it."""
        return self.instances_usd_per_hour + self.lambda_usd_per_hour + self.overhead_usd_per_hour

    @property
    def lines(self) -> tuple[str, ...]:
        """The first fleets, then their price an hour and a month."""
        month = usd_per_month_words(self.usd_per_hour * HOURS_PER_MONTH)
        instances, around = figure(self.instances_usd_per_hour), figure(self.overhead_usd_per_hour)
        calls = f"{figure(self.lambda_usd_per_hour)} for Lambda's calls, " if self.lambda_usd_per_hour else ""
        hour = f"{figure(self.usd_per_hour)} USD an hour ({instances} for instances, {calls}{around} around them)"
        return *map(_line, self.plans), f"first plan: {hour}, {month} a month"

    def above(self, limit_usd: float | None) -> str:
        """The limit that the first plan exceeds, in a sentence; nothing where it does not."""
        if limit_usd is None or self.usd_per_hour <= limit_usd:
            return ""
        return (
            f"The first plan costs {figure(self.usd_per_hour)} USD an hour, more than {figure(limit_usd)} "
            "(service.aws.ask_above_usd_per_hour)."
        )


def first_price(settings: Settings, models: Sequence[LiveModel]) -> FirstPrice:
    """The price of the first plans; a model without one rents nothing."""
    hosts = first_hosts(settings, models)
    return FirstPrice(
        plans=tuple(first_plan(model, hosts) for model in models),
        hosts=hosts,
        overhead_usd_per_hour=overhead_usd_per_hour(footprint_of(settings, models=len(models))),
    )


def show_first_price(settings: Settings) -> None:
    """Print what the service rents first, or why it cannot rent anything."""
    try:
        models = make_live_models(settings)
    except Misconfigured as error:
        note(str(error))
        return
    show(*first_price(settings, models).lines)


def _line(first: FirstPlan) -> str:
    rps = first.model.assumed_rps
    load = "by its trace" if rps is None else f"{rate_words(rps)} are assumed (expected_rps):"
    return f"{first.model.name}: {load} {_rents(first)}"


def _rents(first: FirstPlan) -> str:
    if first.shared:
        shares = f"shares {plural(len(first.shared), 'instance')} ({', '.join(sorted(set(first.shared)))})"
        return f"{shares}, and rents {first.fleet}" if first.fleet else shares
    if first.fleet:
        return f"rents {first.fleet}"
    return "rents no instance, Lambda answers" if first.model.served.overflow is not None else "rents nothing"
