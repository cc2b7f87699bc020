"""From which load a service of its own pays, against Lambda alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.billing import Load, bill_running, bill_shared, bill_traffic
from mark.catalog.break_even import break_even_rps
from mark.domain.billing.costs import BillLine
from mark.domain.billing.footprint import Footprint
from mark.domain.models.profile import Evidence, Provenance
from mark.domain.offerings.offering import LambdaOffering, Offering
from tests.footprints import FOOTPRINT, HA_FOOTPRINT
from tests.planner.builders import offering

HOUR_S = 3600.0
PAYLOAD_MIB = 0.11
LAMBDA = LambdaOffering(latency_s=0.38, provenance=Provenance(evidence=Evidence.PUBLISHED, source="MArk, Table 2"))
KINDS = st.builds(offering, rps=st.floats(0.5, 200.0), usd_per_hour=st.floats(0.01, 2.0))


def total(lines: Iterable[BillLine]) -> float:
    return sum(line.usd for line in lines)


def own_usd(footprint: Footprint, kind: Offering, rate_rps: float) -> float:
    """An hour of as many instances as carry the load, by the bill; one at least."""
    count = max(1, math.ceil(rate_rps / kind.capacity_rps - 1e-9))
    running = total(bill_running(footprint, count * HOUR_S))
    crossed = 0 if footprint.is_steered else None
    requests = Load(duration_s=HOUR_S, requests=1_000_000, payload_mib=PAYLOAD_MIB, crossed=crossed)
    traffic = total(bill_traffic(footprint, requests)) / 1e6 * rate_rps * HOUR_S
    return total(bill_shared(footprint, 0.0, HOUR_S)) + count * kind.usd_per_hour + running + traffic


def lambda_usd(rate_rps: float) -> float:
    return rate_rps * HOUR_S * LAMBDA.usd_per_warm_request


def test_by_hand() -> None:
    # 39.45 / 730 + 0.085 + 0.0009 + 0.005 USD an hour over 0.0691 USD an hour for each request/s.
    large = offering(rps=10.0, usd_per_hour=0.085)
    found = break_even_rps(FOOTPRINT, [large], LAMBDA, payload_mib=PAYLOAD_MIB)
    assert found == pytest.approx((39.45 / 730 + 0.085 + 8 * 0.08 / 730 + 0.005) / 0.06912, rel=1e-3)
    dearer = break_even_rps(HA_FOOTPRINT, [large], LAMBDA, payload_mib=PAYLOAD_MIB)
    assert dearer is not None
    assert found is not None
    assert dearer > 2.5 * found


@given(kinds=st.lists(KINDS, min_size=1, max_size=4), ha=st.booleans(), share=st.floats(0.0, 0.999))
def test_it_is_the_lowest_load_that_pays(kinds: list[Offering], ha: bool, share: float) -> None:
    footprint = HA_FOOTPRINT if ha else FOOTPRINT
    found = break_even_rps(footprint, kinds, LAMBDA, payload_mib=PAYLOAD_MIB)
    if found is None:
        dense = (share * 1e5, 1e5)
        assert all(own_usd(footprint, kind, rate) > lambda_usd(rate) for kind in kinds for rate in dense)
        return
    assert min(own_usd(footprint, kind, found) for kind in kinds) <= lambda_usd(found) * (1 + 1e-9)
    below = share * found
    assert all(own_usd(footprint, kind, below) > lambda_usd(below) for kind in kinds)


def test_instances_that_cost_more_than_lambda_never_pay() -> None:
    slow = offering(rps=1.0, usd_per_hour=0.5)
    assert break_even_rps(FOOTPRINT, [slow], LAMBDA, payload_mib=PAYLOAD_MIB) is None
    assert break_even_rps(FOOTPRINT, [], LAMBDA, payload_mib=PAYLOAD_MIB) is None
