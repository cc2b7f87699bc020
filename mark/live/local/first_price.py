"""The price of what a service rents first, told before it rents anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mark.catalog.billing import HOURS_PER_MONTH
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.figures import figure
from mark.domain.plan import Plan
from mark.live.local.first_plan import first_plan
from mark.live.models import LiveModel, make_live_models
from mark.report.formatting import format_rps, usd_per_month_words
from mark.report.overhead import overhead_usd_per_hour
from mark.report.terminal import note, show


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPrice:
    """The first plans of a service's models, and what stands around their fleets.

    fleets: a line a model. Each plan's price is of its instances alone; Lambda costs what is called.
    """

    fleets: tuple[str, ...]
    instances_usd_per_hour: float
    overhead_usd_per_hour: float

    @property
    def usd_per_hour(self) -> float:
        """All of it."""
        return self.instances_usd_per_hour + self.overhead_usd_per_hour

    @property
    def lines(self) -> tuple[str, ...]:
        """The first fleets, then their price an hour and a month."""
        month = usd_per_month_words(self.usd_per_hour * HOURS_PER_MONTH)
        instances, around = figure(self.instances_usd_per_hour), figure(self.overhead_usd_per_hour)
        hour = f"{figure(self.usd_per_hour)} USD an hour ({instances} for instances, {around} around them)"
        return *self.fleets, f"first plan: {hour}, {month} a month"


def first_price(settings: Settings, models: Sequence[LiveModel]) -> FirstPrice:
    """The price of the first plans; a model without one rents nothing."""
    plans = [(model, _plan(model)) for model in models]
    return FirstPrice(
        fleets=tuple(f"{model.name}: {_load(model)} {_fleet(model, plan)}" for model, plan in plans),
        instances_usd_per_hour=sum(plan.usd_per_hour for _, plan in plans if plan is not None),
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


def _plan(model: LiveModel) -> Plan | None:
    try:
        return first_plan(model)
    except PlanInfeasible:
        return None


def _load(model: LiveModel) -> str:
    if model.assumed_rps is None:
        return "by its trace"
    return f"{format_rps(model.assumed_rps)} requests/s are assumed (expected_rps):"


def _fleet(model: LiveModel, plan: Plan | None) -> str:
    counts = () if plan is None else plan.counts
    fleet = ", ".join(f"{item.count} {item.offering.partition(':')[0]}" for item in counts if item.count)
    if fleet:
        return f"rents {fleet}"
    return "rents no instance, Lambda answers" if model.served.overflow is not None else "rents nothing"
