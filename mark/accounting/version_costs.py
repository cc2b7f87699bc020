"""Rent of each version of a model over a while: pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mark.accounting.ledger import live_bill
from mark.domain.billing.costs import FleetUsage
from mark.domain.load.traffic import ModelTraffic
from mark.service_spec import ServedModel

RENTED = ("instances", "standby")
"""Components of a bill that instances make."""
HOURS = "instance-hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCost:
    """Instances of one version, woken standbys too, without what stands around the fleet and without Lambda."""

    version: str
    #: Hours of its instances, of all together, as they are billed.
    instance_hours: float = 0.0
    #: Their rent, USD.
    usd: float = 0.0


def version_costs(
    used: Callable[[float], FleetUsage],
    served: ServedModel,
    versions: Sequence[str],
    *,
    since: float,
    until: float,
) -> tuple[VersionCost, ...]:
    """Lines of `live_bill` for `[since, until)`, by version in order; what bears no version is the first's.

    used: usage up to an instant. since, until: epoch seconds of service time.
    """
    before, after = (_by_version(used(at), served, versions) for at in (since, until))
    return tuple(
        VersionCost(
            version=version,
            instance_hours=after[version].instance_hours - before[version].instance_hours,
            usd=after[version].usd - before[version].usd,
        )
        for version in versions
    )


def versions_used(usage: FleetUsage) -> tuple[str, ...]:
    """Versions that had instances, in the order in which the first of each began."""
    return tuple(dict.fromkeys(one.version for one in sorted(usage.usages, key=lambda one: one.started_at)))


def _by_version(usage: FleetUsage, served: ServedModel, versions: Sequence[str]) -> Mapping[str, VersionCost]:
    found = {}
    for version in versions:
        names = (version, "") if version == versions[0] else (version,)
        own = tuple(one for one in usage.usages if one.version in names)
        bill = live_bill(
            replace(usage, usages=own),
            ModelTraffic(model=served.name),
            served,
            None,
            requests=0,
            peak_rps=0.0,
            duration_s=0.0,
        )
        rent = [line for line in bill if line.component in RENTED]
        found[version] = VersionCost(
            version=version,
            instance_hours=sum(line.quantity for line in rent if line.unit == HOURS),
            usd=sum(line.usd for line in rent),
        )
    return found
