"""A Savings Plan for what a replay had on demand, beside what the account has already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mark.accounting.commitment import Floats, best_commitment
from mark.catalog.billing import SECONDS_PER_HOUR
from mark.catalog.commitment_bill import HourlyUsage
from mark.domain.commitments.applied import apply
from mark.domain.commitments.eligible import Compute, Usage
from mark.domain.commitments.owned import Commitments, Owned, PlanKind, SavingsPlan
from mark.domain.offering import Market
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


def hourly_on_demand_usd(experiment: Experiment, run: RunResult) -> Floats:
    """Cost of the instances that ran on demand in each whole hour of a run, USD. shape (hours,).

    What boots is left out, and what commitments of the account cover: nobody needs to buy it twice.
    """
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
    usd = [
        _uncovered_usd(footprint.commitments, _fleet(run.minutes.offerings, row, price), around) for row in hours
    ]
    return np.array(usd)


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


def _uncovered_usd(owned: Commitments, fleet: Sequence[Usage], around: Sequence[Usage]) -> float:
    """Cost of the instances of an hour that commitments leave, USD."""
    usages = (*fleet, *around)
    shares = apply(owned, usages).left_shares
    left = zip(usages, shares, strict=True)
    return sum(usage.on_demand_usd * share for usage, share in left if usage.compute is Compute.EC2)


def _new_name(owned: Commitments) -> str:
    held: tuple[Owned, ...] = (*owned.plans, *owned.reservations)
    taken = {item.name for item in held}
    free = (ADVISED, *(f"{ADVISED} {number}" for number in range(2, len(taken) + 3)))
    return next(name for name in free if name not in taken)
