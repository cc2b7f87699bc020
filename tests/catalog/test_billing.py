"""Bills against sums done by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog import billing
from mark.domain.billing.costs import BillLine, CostUsd, InstanceUsage, LambdaUsage
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Role
from mark.domain.models.profile import Evidence, Provenance
from mark.domain.offerings.offering import LambdaOffering
from tests.footprints import C5_FOOTPRINT, FOOTPRINT, HA_FOOTPRINT

C5 = "c5.large:on-demand"
T3 = "t3.medium:on-demand"
MONTH_S = 730 * 3600.0
PRICES = {C5: 0.085, T3: 0.0416}


def total_usd(lines):
    return sum(line.usd for line in lines)


def usage(seconds, *, offering=C5, role=Role.SERVING, start=0.0, surplus_vcpu_s=0.0):
    return InstanceUsage(
        instance="i-1",
        offering=offering,
        role=role,
        started_at=start,
        ended_at=start + seconds,
        surplus_vcpu_s=surplus_vcpu_s,
    )


def on_lambda(latency_s=0.38):
    return LambdaOffering(
        latency_s=latency_s, provenance=Provenance(evidence=Evidence.PUBLISHED, source="MArk, Table 2")
    )


@pytest.mark.parametrize(
    ("seconds", "billed"), [(0.0, 60), (10.0, 60), (60.0, 60), (60.5, 61), (3600.0, 3600), (3600.0000001, 3600)]
)
def test_seconds_round_up_and_a_start_costs_a_minute(seconds, billed):
    assert billing.billed_s(usage(seconds)) == billed


def test_a_fleet_of_two_offerings_and_a_standby():
    # c5.large: 7200 + 60 (a start of 10 s) = 7260 s; t3.medium standby: 1800 s.
    lines = billing.bill_instances([usage(7200), usage(10), usage(1800, offering=T3, role=Role.STANDBY)], PRICES)
    assert [(line.component, line.item, line.unit) for line in lines] == [
        ("instances", C5, "instance-hours"),
        ("standby", T3, "instance-hours"),
    ]
    assert lines[0].quantity == pytest.approx(2.0166667)
    assert lines[0].usd == pytest.approx(0.1714167)
    assert lines[1].usd == pytest.approx(0.0208)


def test_surplus_credits_are_a_line_of_their_own():
    # Two vCPUs half an hour beyond the credits: one vCPU hour, 0.05 USD; 0.04 where the type says so.
    burst = [usage(3600, offering=T3, role=Role.STANDBY, surplus_vcpu_s=3600.0)]
    lines = billing.bill_instances(burst, PRICES)
    assert [line.item for line in lines] == [T3, f"{T3} surplus credits"]
    assert lines[1].usd == pytest.approx(0.05)
    cheaper = billing.bill_instances(burst, PRICES, surplus_usd_per_vcpu_hour={T3: 0.04})
    assert cheaper[1].usd == pytest.approx(0.04)


def test_an_offering_without_price_is_named():
    with pytest.raises(
        Misconfigured, match=r"unknown offering 'c5.larg:on-demand'; did you mean 'c5.large:on-demand'"
    ):
        billing.bill_instances([usage(1, offering="c5.larg:on-demand")], PRICES)


def test_a_stretch_that_ends_before_it_starts_is_refused():
    with pytest.raises(Misconfigured, match="ended before it started"):
        billing.billed_s(usage(-1.0))


def test_lambda_by_request_and_duration():
    # One million warm requests of 0.38 s at 3 GiB: 0.20 + 1.14e6 GiB-s x 1.66667e-5 = 19.20 USD.
    used = LambdaUsage(requests=1_000_000, cold_starts=0, gib_s=1_140_000.0)
    assert total_usd(billing.bill_lambda(used, on_lambda())) == pytest.approx(19.200038)


def test_cold_starts_cost_their_duration():
    # 7,000 starts of 2.9 s at 3 GiB: 60,900 GiB-s = 1.015 USD (MArk section 4.5: 1 USD), and 0.0014 for requests.
    offering = on_lambda()
    used = LambdaUsage(requests=7000, cold_starts=7000, gib_s=7000 * 2.9 * 3.0)
    assert total_usd(billing.bill_lambda(used, offering)) == pytest.approx(1.0164020)
    assert 7000 * offering.usd_per_cold_start == pytest.approx(1.0150020)


def usd_by_item(lines):
    return {line.item: line.usd for line in lines}


def test_a_standby_asleep_pays_for_its_disk_and_for_no_address():
    # 30 GiB a month of 730 h: 2.40 USD.
    assert billing.disk_usd(30.0, MONTH_S, 0.08) == pytest.approx(2.4)
    (line,) = billing.bill_asleep(FOOTPRINT, MONTH_S)
    assert (line.component, line.usd) == ("standby", pytest.approx(0.64))
    assert billing.bill_asleep(FOOTPRINT, 0.0) == ()


def test_a_rented_instance_has_a_disk_and_where_the_network_is_public_an_address():
    # Half a month: 15 GiB-months at 0.08, 365 hours at 0.005.
    lines = billing.bill_running(FOOTPRINT, MONTH_S / 2)
    assert {line.component for line in lines} == {"overhead"}
    assert usd_by_item(lines) == {"disks": pytest.approx(0.32), "addresses": pytest.approx(1.825)}
    assert set(usd_by_item(billing.bill_running(replace(FOOTPRINT, public_instances=False), 60.0))) == {"disks"}
    assert billing.bill_running(FOOTPRINT, 0.0) == ()


def test_overhead_of_a_month_at_default_settings():
    """By hand, from the prices of July and November 2026 in us-east-1. A line is written twice, in 10 units."""
    lines = billing.bill_overhead(FOOTPRINT, billing.Load(duration_s=MONTH_S, peak_rps=65.0))
    expected = {
        "nodes": 2 * 730 * 0.0168,
        "nodes' disks": 2 * 9 * 0.08,
        "lease table's writes": 730 * (3600 / 2.5 + 60 * 10) * 0.625e-6,
        "lease table's reads": 730 * 3600 * 0.125e-6,
        "service's addresses": 2 * 730 * 0.005,
        "hosted zones": 0.5,
        "secrets": 4 * 0.4,
        "alarms": 7 * 0.1,
        "metrics": 5 * 0.3,
        "queues": 1260 * 730 * 0.4e-6,
        "traffic between zones": 0.0,
    }
    found = usd_by_item(lines)
    logs = found.pop("logs")
    assert 0.0 < logs < 1.0
    assert found == pytest.approx(expected)
    assert sum(expected.values()) + logs == pytest.approx(39.45, abs=0.01)


def test_overhead_of_a_month_in_the_shape_ha():
    lines = billing.bill_overhead(HA_FOOTPRINT, billing.Load(duration_s=MONTH_S, peak_rps=65.0))
    expected = {
        "gateways": 2 * 730 * 0.034,
        "gateways' disks": 2 * 8 * 0.08,
        "load balancer": 730 * 0.0225,
        "store": 2 * 730 * 0.0256,
        "controllers' CPUs": 2 * 730 * 0.03238,
        "controllers' memory": 2 * 2 * 730 * 0.00356,
        "service's addresses": 4 * 730 * 0.005,
        "secrets": 9 * 0.4,
        "alarms": 7 * 0.1,
        "dashboards": 3.0,
        "metrics": 5 * 0.3,
        "container insights": 25 * 0.3,
        "queues": 1260 * 730 * 0.4e-6,
        "load balancer traffic": 0.0,
        "traffic between zones": 0.0,
    }
    found = usd_by_item(lines)
    logs = found.pop("logs")
    assert 0.0 < logs < 1.0
    assert found == pytest.approx(expected)
    assert sum(expected.values()) + logs == pytest.approx(193.84, abs=0.01)


def test_bytes_are_billed_by_the_balancer_and_where_they_cross_between_zones():
    # 2**20 requests of 1/64 MiB are 16 GiB: 0.096 at the balancer; of 2 zones half crosses, billed twice.
    load = billing.Load(duration_s=0.0, requests=2**20, lambda_requests=2**18, payload_mib=1 / 64)
    found = usd_by_item(billing.bill_traffic(HA_FOOTPRINT, load))
    assert found == {
        "load balancer traffic": pytest.approx(0.096),
        "traffic between zones": pytest.approx(0.16),
        "Lambda's logs": pytest.approx(2**18 * 300 / 2**30 * (0.5 + 12 * 0.03)),  # kept for a year
    }
    (_, three, _) = billing.bill_traffic(replace(HA_FOOTPRINT, zones=3), load)
    assert three.usd == pytest.approx(16 * 2 * 2 * 2 / 3 * 0.01), "one has no gateway: what comes in there crosses"
    private = usd_by_item(billing.bill_traffic(replace(HA_FOOTPRINT, lambda_through_endpoint=True), load))
    assert private["endpoint traffic"] == pytest.approx(0.04)


@pytest.mark.parametrize(("peak_rps", "count"), [(0.0, 2), (16_000.0, 2), (16_001.0, 3), (80_000.0, 6)])
def test_gateways_follow_the_peak_with_one_to_spare_but_are_as_many_as_are_deployed(peak_rps, count):
    assert C5_FOOTPRINT.gateways.capacity_rps == 20_000.0, "a gateway is one process"
    assert billing.gateway_count(C5_FOOTPRINT, peak_rps) == count


@pytest.mark.parametrize(
    ("requests", "count"), [(0, 2), (3600 * 270, 2), (3600 * 280, 3), (3600 * 600, 5)], ids=str
)
def test_nodes_follow_the_bytes_that_their_network_carries(requests, count):
    # A t4g.small: 0.128 Gbit/s are 15.26 MiB/s, 138.7 requests/s of 0.11 MiB.
    load = billing.Load(duration_s=3600.0, requests=requests, payload_mib=0.11)
    lines = {line.item: line for line in billing.bill_overhead(FOOTPRINT, load)}
    assert lines["nodes"].quantity == pytest.approx(count)


def test_provisioned_environments_are_billed_by_five_minutes_begun_and_belong_to_lambda():
    offering = replace(on_lambda(), provisioned=4, memory_gib=3.0)
    (line,) = billing.bill_provisioned(offering, 86400.0)
    assert line.quantity == 4 * 3 * 86400
    assert line.usd == pytest.approx(4.3200346, abs=1e-6)
    assert billing.cost_of([line]).lambda_ == line.usd
    (begun,) = billing.bill_provisioned(offering, 301.0)
    assert begun.quantity == 4 * 3 * 600
    assert billing.bill_provisioned(on_lambda(), 86400.0) == ()


def test_lines_add_up_to_the_cost_words():
    lines = [
        BillLine(component=name, item="x", quantity=1.0, unit="x", usd=usd)
        for name, usd in [
            ("instances", 1.0),
            ("standby", 2.0),
            ("lambda", 4.0),
            ("overhead", 8.0),
            ("standby", 16.0),
        ]
    ]
    assert billing.cost_of(lines) == CostUsd(instances=1.0, standby=18.0, lambda_=4.0, overhead=8.0)
    with pytest.raises(Misconfigured, match="bill component"):
        billing.cost_of([BillLine(component="instance", item="x", quantity=1.0, unit="x", usd=1.0)])


@given(
    stretches=st.lists(st.tuples(st.sampled_from([C5, T3]), st.floats(0, 1e6), st.sampled_from(Role)), max_size=20)
)
def test_a_bill_is_the_sum_of_its_stretches_in_any_order(stretches):
    used = [usage(seconds, offering=name, role=role) for name, seconds, role in stretches]
    lines = billing.bill_instances(used, PRICES)
    assert billing.bill_instances(used[::-1], PRICES) == lines
    by_hand = sum(
        max(60, math.ceil(item.ended_at - item.started_at - 1e-6)) / 3600 * PRICES[item.offering] for item in used
    )
    assert sum(line.usd for line in lines) == pytest.approx(by_hand)
