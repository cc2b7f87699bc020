"""Sizes of gateways and store: enough for the load after a loss, for least, and what somebody named goes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.billing import bill_shared
from mark.catalog.load import load_prices
from mark.catalog.sizing import (
    HEADROOM,
    NETWORK_GBPS,
    NODE_TYPES,
    SPARE,
    STORE_GIB,
    PeakLoad,
    capacity_mib_per_s,
    capacity_rps,
    size_gateways,
    size_node,
    size_store,
)
from mark.config.footprint import advise_shape, footprint_of, gateway_machine, lean_rps, peak_load, sized
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import InstanceType

KINDS = tuple(one for one in load_prices().types if one.name in NETWORK_GBPS)
BESIDE_USD = 0.01
RATES = st.floats(0.0, 200_000.0)
PAYLOADS = st.floats(0.0001, 6.0)
X86 = {"machines": [{}]}


def settings(service: dict[str, Any] | None = None, **rollout: Any) -> Settings:
    rollout = {"shape": "ha", **rollout}
    return Settings.model_validate({"model": "inception-v3", "service": service or {}, "rollout": rollout})


def chosen(load: PeakLoad, *, count: int | None = None) -> tuple[InstanceType, int]:
    return size_gateways(load, KINDS, usd_beside=BESIDE_USD, count=count)


def cost(load: PeakLoad) -> float:
    kind, count = chosen(load)
    return count * (kind.on_demand_usd_per_hour + BESIDE_USD)


@given(rps=RATES, payload_mib=PAYLOADS)
def test_any_gateway_may_be_lost(rps: float, payload_mib: float) -> None:
    load = PeakLoad.of(rps, payload_mib)
    kind, count = chosen(load)
    left = count - SPARE
    assert left >= 1
    assert left * capacity_rps(kind) >= HEADROOM * load.rps * (1 - 1e-9)
    assert left * capacity_mib_per_s(kind) >= HEADROOM * load.mib_per_s * (1 - 1e-9)


@given(rps=RATES, more=RATES, payload_mib=PAYLOADS, larger=PAYLOADS)
def test_more_load_never_costs_less(rps: float, more: float, payload_mib: float, larger: float) -> None:
    load = PeakLoad.of(rps, payload_mib)
    heavier = PeakLoad.of(rps + more, max(payload_mib, larger))
    assert cost(load) <= cost(heavier)


@given(rps=RATES, payload_mib=PAYLOADS)
def test_no_other_type_is_cheaper(rps: float, payload_mib: float) -> None:
    load = PeakLoad.of(rps, payload_mib)
    for kind in KINDS:
        _, count = size_gateways(load, (kind,), usd_beside=BESIDE_USD)
        assert cost(load) <= count * (kind.on_demand_usd_per_hour + BESIDE_USD) * (1 + 1e-12)


@given(rps=RATES, payload_mib=PAYLOADS)
def test_the_order_of_types_is_irrelevant(rps: float, payload_mib: float) -> None:
    load = PeakLoad.of(rps, payload_mib)
    assert size_gateways(load, KINDS[::-1], usd_beside=BESIDE_USD) == chosen(load)


@given(rps=RATES, payload_mib=PAYLOADS, count=st.integers(1, 60))
def test_as_many_as_are_named_are_of_the_cheapest_type_that_does(
    rps: float, payload_mib: float, count: int
) -> None:
    load = PeakLoad.of(rps, payload_mib)
    kind, made = chosen(load, count=count)
    assert made == count

    def does(one: InstanceType) -> bool:
        return size_gateways(load, (one,), usd_beside=0.0)[1] <= max(count, 2)

    if any(does(one) for one in KINDS):
        assert does(kind)
        assert not [one for one in KINDS if does(one) and one.on_demand_usd_per_hour < kind.on_demand_usd_per_hour]


def test_a_gateway_uses_one_core_at_most() -> None:
    by_name = {one.name: one for one in KINDS}
    assert capacity_rps(by_name["c5.large"]) == capacity_rps(by_name["c5.2xlarge"]) == 20_000.0
    assert capacity_rps(by_name["t4g.small"]) == pytest.approx(0.4 * 20_000.0), (
        "two vCPUs at a baseline of a fifth"
    )
    assert capacity_mib_per_s(by_name["c5n.large"]) == 300.0, "its network carries 358"
    unknown = replace(by_name["c5.large"], name="c5.unknown")
    assert capacity_mib_per_s(unknown) == 300.0, "its CPU alone is known"


@given(models=st.integers(1, 200))
def test_the_store_holds_what_models_keep_at_most(models: int) -> None:
    names = list(STORE_GIB)
    found = size_store(models)
    assert names.index(found) >= names.index(size_store(max(1, models - 1)))
    if found != names[-1]:
        assert 0.7 * 1024 * STORE_GIB[found] >= 256 * models


@pytest.mark.parametrize(
    ("rollout", "made"),
    [
        ({"peak_rps": 100}, (2, "t4g.small")),
        ({"peak_rps": 1000}, (2, "c6gn.medium")),
        ({"peak_rps": 100, **X86}, (2, "t3.small")),
        ({"peak_rps": 1000, **X86}, (2, "c5n.large")),
        ({}, (2, "c6g.medium")),
        (X86, (4, "t3.small")),
    ],
    ids=["small", "large", "small on x86", "large on x86", "not said", "not said, on x86"],
)
def test_gateways_of_inception_v3(rollout: dict[str, Any], made: tuple[int, str]) -> None:
    gateways = footprint_of(settings(**rollout)).gateways
    assert (gateways.count, gateways.instance_type) == made


def test_what_is_not_said_is_the_load_that_two_lean_nodes_carry() -> None:
    assert peak_load(settings()).rps == pytest.approx(lean_rps(Settings(), 0.11), rel=0.01)
    assert 270 < peak_load(settings()).rps < 280


def test_what_is_named_goes_before_what_the_load_takes() -> None:
    made = sized(
        settings(
            {"gateways": 3},
            gateway={"instance_type": "t3.medium"},
            store={"node_type": "cache.r7g.large"},
            peak_rps=50_000,
        )
    )
    assert made.service.gateways == 3
    assert made.rollout.gateway.instance_type == "t3.medium"
    assert made.rollout.store.node_type == "cache.r7g.large"
    assert footprint_of(settings({"gateways": 1})).gateways.count == 1
    bill = bill_shared(footprint_of(settings({"gateways": 1})), 0.0, 3600.0)
    assert next(line.quantity for line in bill if line.item == "gateways") == 1.0


@given(peak_rps=st.floats(0.1, 5000.0), models=st.integers(1, 9))
def test_what_is_sized_stays_as_it_is(peak_rps: float, models: int) -> None:
    made = sized(settings(peak_rps=peak_rps), models=models)
    assert sized(made, models=models) == made
    assert footprint_of(made, models=models) == footprint_of(settings(peak_rps=peak_rps), models=models)


def test_gateways_run_on_a_kind_of_machine_of_their_processor() -> None:
    assert gateway_machine(settings()).name == "arm64"
    assert gateway_machine(settings(gateway={"instance_type": "c5.large"})).name == "amd64"
    nvidia = {"machines": [{"accelerator": "nvidia"}, {}]}
    assert gateway_machine(settings(gateway={"instance_type": "c5.large"}, **nvidia)).name == "amd64"
    with pytest.raises(Misconfigured, match=r"c7g\.large is arm64, and no kind of rollout\.machines is"):
        footprint_of(settings(gateway={"instance_type": "c7g.large"}, **X86))


@given(rps=st.floats(0.0, 20_000.0))
def test_ha_is_advised_where_two_lean_nodes_do_not_carry_the_peak(rps: float) -> None:
    advice = advise_shape(settings(shape="lean"), rps)
    assert (advice.shape == "ha") == (rps > advice.lean_rps)
    if advice.shape == "ha":
        assert advice.footprint == footprint_of(settings(peak_rps=rps))
    else:
        assert advice.footprint == footprint_of(settings(shape="lean"))


def test_the_settings_shape_and_peak_go_before_the_rate_that_is_planned_for() -> None:
    assert advise_shape(settings(), 1.0).shape == "ha"
    advice = advise_shape(settings(shape="lean", peak_rps=1000), 1.0)
    assert (advice.shape, advice.peak.rps) == ("ha", 1000)


def test_a_node_is_the_smallest_that_holds_the_models_and_carries_the_load() -> None:
    prices = load_prices()
    kinds = [prices.instance_type(name) for name in NODE_TYPES["arm64"]]

    def sized(rps: float = 1.0, *, nodes: int = 2, models: int = 1, trains: bool = False) -> str:
        return size_node(PeakLoad.of(rps, 0.11), kinds, nodes=nodes, models=models, trains=trains).name

    assert sized() == "t4g.micro"
    assert sized(trains=True) == sized(models=2) == "t4g.small", "memory"
    assert [sized(rps) for rps in (138, 140)] == ["t4g.micro", "t4g.small"], "two networks of 64 Mbit/s"
    assert sized(100, nodes=1) == "t4g.small"
    assert sized(models=200) == "t4g.small", "the largest of them, where none is enough"
