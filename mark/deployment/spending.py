"""Spending of a service an hour: what stands around its fleet, and the most that its instances may cost.

No service is made without such a limit: where the settings name none, it follows from the load that came before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mark.catalog.billing import HOURS_PER_MONTH
from mark.config.settings import Settings
from mark.domain.billing.footprint import Footprint
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import LambdaOffering
from mark.live.models import LiveModel
from mark.report.overhead import overhead_usd_per_hour

TIMES = 2.0
"""A limit that nobody named is so many times what the busiest minute so far takes on demand: load grows, and new
instances boot beside those that they replace."""
LEAST_USD = 0.01
"""The limit of a service that plans no instance: Lambda alone serves it."""
DIGITS = 2
SECONDS_PER_HOUR, HOURS_PER_DAY = 3600.0, 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Spending of a service, USD an hour."""

    #: What stands around the fleet while nothing comes.
    around_usd: float
    #: The most that instances may cost.
    limit_usd: float
    #: Whether the settings name that limit.
    named: bool
    #: Lambda with as many calls at once as the settings allow, all the time; 0 where no model overflows.
    lambda_usd: float

    @property
    def month_usd(self) -> float:
        """USD of a month in which instances cost the most that they may, without Lambda."""
        return HOURS_PER_MONTH * (self.limit_usd + self.around_usd)


def limited(settings: Settings, models: Sequence[LiveModel]) -> Settings:
    """The settings with a limit on what the service's instances may cost: theirs, or one from the models' load."""
    aws = settings.service.aws
    if aws.max_usd_per_hour is not None:
        return settings
    limit_usd = rounded_up(max(LEAST_USD, TIMES * sum(_busiest_usd(model) for model in models)))
    service = settings.service.model_copy(update={"aws": aws.model_copy(update={"max_usd_per_hour": limit_usd})})
    return settings.model_copy(update={"service": service})


def spending_of(settings: Settings, models: Sequence[LiveModel], footprint: Footprint) -> Spending:
    """The spending of a service of these settings."""
    limit_usd = limited(settings, models).service.aws.max_usd_per_hour
    assert limit_usd is not None, "every service is limited"
    overflows = [model.served.overflow for model in models if model.served.overflow is not None]
    return Spending(
        around_usd=overhead_usd_per_hour(footprint),
        limit_usd=limit_usd,
        named=settings.service.aws.max_usd_per_hour is not None,
        lambda_usd=max((_lambda_usd(one) for one in overflows), default=0.0),
    )


def spending_line(spending: Spending) -> str:
    """The most that the service can spend, in a sentence."""
    why = "" if spending.named else f", {TIMES:g} times what the busiest minute so far takes on demand"
    said = f"Instances cost at most {spending.limit_usd:g} USD/h (service.aws.max_usd_per_hour{why})"
    if not spending.lambda_usd:
        return f"{said}."
    return (
        f"{said}, and Lambda {spending.lambda_usd:,.0f} if it is always full "
        "(policy.overflow_limits.concurrency; `budget` ends it sooner)."
    )


def rounded_up(usd: float) -> float:
    """The next number of two digits, as a person would write a limit."""
    step = 10.0 ** (math.floor(math.log10(usd)) - DIGITS + 1)
    return round(math.ceil(usd / step - 1e-9) * step, 12)


def _busiest_usd(model: LiveModel) -> float:
    """The cheapest fleet of one type on demand for the busiest minute so far; one of the dearest type at least."""
    busiest_rps = max(model.setup.history.max_rps, default=0.0)
    prices = [(item.instance_type.on_demand_usd_per_hour, item.capacity_rps) for item in model.served.offerings]
    cheapest = min((math.ceil(busiest_rps / capacity_rps) * usd for usd, capacity_rps in prices), default=0.0)
    return max((cheapest, *(usd for usd, _ in prices)))


def _lambda_usd(overflow: LambdaOffering) -> float:
    """Lambda with every one of its environments always busy."""
    calls = overflow.concurrency * SECONDS_PER_HOUR / overflow.latency_s
    return calls * overflow.usd_per_warm_request


def end_lines(settings: Settings, usd_per_hour: float) -> tuple[str, ...]:
    """When the service ends by itself, and what a day costs until then; nothing where it has no end."""
    ends_on = settings.rollout.ends_on
    if ends_on is None:
        return ()
    line = (
        f"A day costs about {usd_per_hour * HOURS_PER_DAY:.2f} USD. Nodes and instances end by themselves on "
        f"{ends_on} at 0:00 UTC (rollout.ends_on): deploy again to go on, or `mark destroy` to end all of it now."
    )
    return (line,)


def refuse_past(settings: Settings, now: float) -> None:
    """Misconfigured where the service's end is behind: AWS would not take it."""
    ends_at = settings.rollout.ends_at
    if ends_at is not None and ends_at <= now:
        raise Misconfigured(
            f"rollout.ends_on: {settings.rollout.ends_on} is not ahead; name a later day, or leave it out"
        )
