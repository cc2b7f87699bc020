"""A Savings Plan, and Reserved Instances, for what a replay had on demand beside what the account has already."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from mark.accounting.commitment import Floats, best_commitment
from mark.catalog.billing import SECONDS_PER_HOUR
from mark.catalog.commitment_bill import HourlyUsage
from mark.domain.commitments.applied import apply
from mark.domain.commitments.eligible import Compute, Usage
from mark.domain.commitments.owned import Commitments, PlanKind, ReservedInstances, SavingsPlan
from mark.domain.offerings.offering import Market
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult

ADVISED = "advised"
DIGITS = 3
"""Of a commitment, behind the point."""
HOUR_MINUTES = 60


def sized_plan(experiment: Experiment, run: RunResult, discount: float) -> SavingsPlan:
    """The Compute Savings Plan that saves most over hours like those of a run; of 0 USD where none does."""
    best = best_commitment(hourly_on_demand_usd(experiment, run), discount)
    return SavingsPlan(
        name=_new_name(experiment.spec.footprint.commitments),
        kind=PlanKind.COMPUTE,
        usd_per_hour=round(best.usd_per_hour, DIGITS),
        discounts=((Compute.EC2, discount),),
    )


def sized_reservation(experiment: Experiment, run: RunResult, discount: float) -> ReservedInstances | None:
    """The reservations of one type that save most over hours like those of a run; None where none does.

    So many as a share of 1 - discount of the hours uses, as a plan is sized.
    """
    hours = _hourly_on_demand(experiment, run)
    used: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(hours))
    usd: dict[str, float] = {}
    for place, hour in enumerate(hours):
        for usage, share in hour:
            used[usage.instance_type][place] += usage.hours * share
            usd[usage.instance_type] = usage.on_demand_usd / usage.hours
    best: tuple[float, ReservedInstances] | None = None
    for name in sorted(used):
        counts = np.array(used[name])
        count = math.floor(float(np.quantile(counts, discount, method="inverted_cdf")))
        price = usd[name] * (1.0 - discount)
        saved = float(np.minimum(counts, count).sum()) * usd[name] - count * price * len(counts)
        if count and saved > 0.0 and (best is None or saved > best[0]):
            taken = _new_name(experiment.spec.footprint.commitments)
            best = saved, ReservedInstances(name=taken, instance_type=name, count=count, usd_per_hour=price)
    return best[1] if best else None


def hourly_on_demand_usd(experiment: Experiment, run: RunResult) -> Floats:
    """Cost of the instances that ran on demand in each whole hour of a run, USD. shape (hours,).

    What boots is left out, and what commitments of the account cover: nobody needs to buy it twice.
    """
    hours = _hourly_on_demand(experiment, run)
    return np.array([sum(usage.on_demand_usd * share for usage, share in hour) for hour in hours])


def _hourly_on_demand(experiment: Experiment, run: RunResult) -> list[list[tuple[Usage, float]]]:
    """Instances on demand in each whole hour, by type, and the share of each that commitments leave."""
    offerings = (*experiment.supply.offerings, *experiment.supply.on_demand)
    price = {one.name: one.usd_per_hour for one in offerings if one.market is Market.ON_DEMAND}
    whole = len(run.minutes.ready) // HOUR_MINUTES * HOUR_MINUTES
    hours = (
        run.minutes.ready[:whole].reshape(-1, HOUR_MINUTES, len(run.minutes.offerings)).sum(axis=1) / HOUR_MINUTES
    )
    footprint = experiment.spec.footprint
    standing = HourlyUsage()
    standing.add_footprint(footprint, 0.0, SECONDS_PER_HOUR, gateways=run.gateways or 0)
    around = standing.hours()[0] if run.gateways else []
    return [_uncovered(footprint.commitments, _fleet(run.minutes.offerings, row, price), around) for row in hours]


def _fleet(offerings: Sequence[str], hours: Floats, price: Mapping[str, float]) -> list[Usage]:
    """Usage of an hour on demand. hours: shape (offerings,)."""
    return [
        Usage(
            compute=Compute.EC2,
            on_demand_usd=float(count) * price[name],
            hours=float(count),
            instance_type=name.partition(":")[0],
        )
        for name, count in zip(offerings, hours, strict=True)
        if name in price and count > 0.0
    ]


def _uncovered(owned: Commitments, fleet: Sequence[Usage], around: Sequence[Usage]) -> list[tuple[Usage, float]]:
    """Instances of an hour, and the share of each that commitments leave."""
    usages = (*fleet, *around)
    left = zip(usages, apply(owned, usages).left_shares, strict=True)
    return [(usage, share) for usage, share in left if usage.compute is Compute.EC2 and usage.hours > 0.0]


def _new_name(owned: Commitments) -> str:
    taken = {item.name for item in owned.items}
    free = (ADVISED, *(f"{ADVISED} {number}" for number in range(2, len(taken) + 3)))
    return next(name for name in free if name not in taken)
