"""Commitments of the account on the bill of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mark.catalog.billing import SECONDS_PER_HOUR, Load, gateway_count
from mark.catalog.commitment_bill import HourlyUsage, bill_commitments
from mark.domain.billing.costs import BillLine, InstanceUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.eligible import Compute
from mark.policies.bundles import PolicyBundle
from mark.simulator.engine.data_plane import Engine


def bill_replayed(
    bundle: PolicyBundle,
    footprint: Footprint,
    usages: Iterable[InstanceUsage],
    usd_per_hour: Mapping[str, float],
    load: Load,
    engine: Engine,
    since: float,
    until: float,
) -> tuple[BillLine, ...]:
    """Cost of commitments in a run, and the part of it that they cover; of a managed service no instances.

    Calls of Lambda cost the mean of the run.
    """
    owned, used = footprint.commitments, HourlyUsage()
    if not owned:
        return ()
    if bundle.cpu_price_factor == bundle.gpu_price_factor == 1.0:
        used.add_instances(usages, usd_per_hour)
    if bundle.overhead:
        gateways = gateway_count(footprint, load.peak_rps, load.mib_per_s)
        used.add_footprint(footprint, since, until, gateways=gateways)
    overflow, calls = bundle.controller.overflow, engine.seconds().to_lambda
    if overflow is not None and calls.any():
        usd_per_call = engine.lambda_usage().gib_s * overflow.usd_per_gib_s / float(calls.sum())
        step = int(SECONDS_PER_HOUR)
        for first in range(0, calls.size, step):
            usd = float(calls[first : first + step].sum()) * usd_per_call
            used.add(Compute.LAMBDA, usd, since + first, since + min(calls.size, first + step))
    return bill_commitments(owned, used.hours(), since, until)
