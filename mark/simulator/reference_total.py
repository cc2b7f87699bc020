"""The reference with the whole bill: what stands around the best fleet, at its unavoidable minimum."""

from __future__ import annotations

from dataclasses import replace

from mark.catalog.billing import Load, bill_overhead, bill_running, lambda_logs_usd
from mark.domain.billing.footprint import Footprint
from mark.planner.yardsticks import YardstickInput, reference_usd

HOUR_S = 3600.0


def reference_total_usd(given: YardstickInput, footprint: Footprint, payload_mib: float) -> float:
    """The reference's total, USD: an instance's hour costs its disk and address too, a call of Lambda its log.

    Added is the overhead of a service that passes these arrivals on while no request crosses between zones.
    payload_mib: of a request with its answer. Raises PlanInfeasible as `reference_usd`.
    """
    drag_usd = sum(line.usd for line in bill_running(footprint, HOUR_S))
    overflow = given.overflow
    if overflow is not None:
        overflow = replace(overflow, usd_per_request=overflow.usd_per_request + lambda_logs_usd(footprint, 1))
    dragging = tuple(item.at_price(item.usd_per_hour + drag_usd) for item in given.offerings)
    load = Load(
        duration_s=float(given.arrivals.size),
        peak_rps=float(given.arrivals.max(initial=0.0)),
        requests=int(given.arrivals.sum()),
        payload_mib=payload_mib,
        crossed=0,
    )
    around_usd = sum(line.usd for line in bill_overhead(footprint, load))
    return reference_usd(replace(given, offerings=dragging, overflow=overflow)) + around_usd
