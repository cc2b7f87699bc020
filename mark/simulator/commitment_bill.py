"""Usage of a replay that commitments of the account may cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mark.catalog.billing import SECONDS_PER_HOUR
from mark.catalog.commitment_bill import HourlyUsage
from mark.domain.billing.costs import InstanceUsage
from mark.domain.commitments.eligible import Compute
from mark.policies.bundles import PolicyBundle
from mark.simulator.engine.data_plane import Engine


def replayed_usage(
    bundle: PolicyBundle,
    usages: Iterable[InstanceUsage],
    usd_per_hour: Mapping[str, float],
    engine: Engine,
    since: float,
) -> HourlyUsage:
    """What commitments may cover of a model's run: instances, but those of a managed service, and Lambda.

    Calls of Lambda cost the mean of the run.
    """
    used = HourlyUsage()
    if bundle.cpu_price_factor == bundle.gpu_price_factor == 1.0:
        used.add_instances(usages, usd_per_hour)
    overflow, calls = bundle.controller.overflow, engine.seconds().to_lambda
    if overflow is not None and calls.any():
        usd_per_call = engine.lambda_usage().gib_s * overflow.usd_per_gib_s / float(calls.sum())
        step = int(SECONDS_PER_HOUR)
        for first in range(0, calls.size, step):
            usd = float(calls[first : first + step].sum()) * usd_per_call
            used.add(Compute.LAMBDA, usd, since + first, since + min(calls.size, first + step))
    return used
