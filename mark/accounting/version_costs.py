"""Rent of each version of a model over a while: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mark.accounting.ledger import fleet_usage, offered_usd_per_hour
from mark.domain.costs import Transition
from mark.service_spec import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCost:
    """Instances of one version, without what stands around the fleet and without Lambda."""

    version: str
    #: Hours that its instances ran, of all together.
    instance_hours: float = 0.0
    #: Their rent, USD: by the second, without the minute that AWS bills at least.
    usd: float = 0.0


def version_costs(
    transitions: Iterable[Transition], served: ServedModel, versions: Sequence[str], *, since: float, until: float
) -> tuple[VersionCost, ...]:
    """What ran in `[since, until)`, by version in their order; what bears no version is the first one's.

    since, until: epoch seconds of service time. Offerings that have no price cost nothing here.
    """
    by_version: dict[str, list[Transition]] = {version: [] for version in versions}
    for transition in transitions:
        if transition.at < until and (named := transition.version or versions[0]) in by_version:
            by_version[named].append(transition)
    return tuple(_cost(version, found, served, since, until) for version, found in by_version.items())


def _cost(
    version: str, transitions: Sequence[Transition], served: ServedModel, since: float, until: float
) -> VersionCost:
    usages = fleet_usage(transitions, until).usages
    prices = offered_usd_per_hour(served, usages)
    hours = usd = 0.0
    for item in usages:
        ran = max(0.0, min(item.ended_at, until) - max(item.started_at, since)) / 3600.0
        price = prices.get(item.offering, 0.0) if item.usd_per_hour is None else item.usd_per_hour
        hours, usd = hours + ran, usd + ran * price
    return VersionCost(version=version, instance_hours=hours, usd=usd)
