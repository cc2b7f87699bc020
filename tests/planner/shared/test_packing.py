"""Models that share instances: hard rules, properties, and the integer program as the judge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from mark.domain.errors import Misconfigured
from mark.domain.fleet.placement import Host, Tenant
from mark.domain.models.objective import Slo
from mark.planner.shared.packing import Covered, Fit, HostType, Need, Packing, none_covered, pack
from mark.planner.shared.packing_milp import most_worth
from scripts.bench.services import HOURS, MOST_BUSY, some_needs, some_types

BOX = HostType(offering="box", usd_per_hour=0.1, launch_usd=0.01, memory_gib=4.0)
LOAD = np.array([2.0, 2.0, 2.0, 2.0])
SAME = 1e-6


def need(
    model: str, *, rps: np.ndarray = LOAD, usd: float = 0.08, capacity: float = 10.0, batch_s: float = 0.1
) -> Need:
    """A model of 1 GiB that saves `usd` an hour when all its load is carried; one box carries `capacity`."""
    return Need(
        model=model,
        slo=Slo(latency_s=1.0, target=0.98),
        memory_gib=1.0,
        levels=np.array([0.0, rps.max()]),
        saved_usd_per_hour=np.array([0.0, usd]),
        load_rps=rps,
        fits=(Fit(offering="box", capacity_rps=capacity, full_batch_s=batch_s),),
        most_busy=MOST_BUSY,
    )


def packed(*needs: Need, types: tuple[HostType, ...] = (BOX,), there: tuple[Host, ...] = ()) -> Packing:
    return pack(needs, types, there=there, hours=HOURS)


def models_of(packing: Packing) -> list[list[str]]:
    return sorted(sorted({tenant.model for tenant in host.tenants}) for host in packing.hosts)


def test_models_that_are_worth_no_instance_each_share_one() -> None:
    assert models_of(packed(need("a"))) == []
    found = packed(need("a"), need("b"), need("c"))
    assert models_of(found) == [["a", "b", "c"]]
    assert found.worth_usd_per_hour == pytest.approx(3 * 0.08 - 0.1 - 0.01)


def test_unlike_peaks_share_where_like_ones_do_not() -> None:
    day, night = np.array([6.0, 6.0, 0.5, 0.5]), np.array([0.5, 0.5, 6.0, 6.0])
    unlike = packed(need("a", rps=day, usd=0.3), need("b", rps=night, usd=0.3))
    like = packed(need("a", rps=day, usd=0.3), need("b", rps=day, usd=0.3))
    assert models_of(unlike) == [["a", "b"]]
    assert len(like.hosts) == 2


@pytest.mark.parametrize(
    "change",
    [{"team": "other"}, {"alone": True}, {"memory_gib": 3.5}, {"slo": Slo(latency_s=0.15, target=0.98)}],
    ids=["team", "alone", "memory", "wait"],
)
def test_a_hard_rule_keeps_two_models_apart(change: dict[str, Any]) -> None:
    rich = need("a", usd=0.2)
    assert models_of(packed(rich, need("b", usd=0.2))) == [["a", "b"]]
    assert models_of(packed(rich, replace(need("b", usd=0.2), **change))) == [["a"], ["b"]]


def test_what_is_there_stays_until_a_change_pays_for_its_launch() -> None:
    cheaper = HostType(offering="cube", usd_per_hour=0.095, launch_usd=0.01, memory_gib=4.0)
    model = need("a", usd=0.2)
    model = replace(model, fits=(*model.fits, replace(model.fits[0], offering="cube")))
    there = Host(name="i-1", offering="box", tenants=(Tenant(model="a", capacity_rps=2.0),))
    [kept] = packed(model, types=(BOX, cheaper), there=(there,)).hosts
    assert (kept.name, kept.offering) == ("i-1", "box")
    [new] = packed(model, types=(BOX, replace(cheaper, launch_usd=0.001)), there=(there,)).hosts
    assert (new.name, new.offering) == ("", "cube")


def test_a_refused_type_is_not_launched_and_stays_where_it_is() -> None:
    refused = replace(BOX, launch_usd=float("inf"))
    there = Host(name="i-1", offering="box", tenants=(Tenant(model="a", capacity_rps=2.0),))
    assert packed(need("a", usd=0.5), types=(refused,)).hosts == ()
    assert packed(need("a", usd=0.5), types=(refused,), there=(there,)).hosts[0].name == "i-1"


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(Misconfigured, match="rename"):
        packed(need("a"), need("a"))


def test_an_instance_is_as_busy_as_its_strictest_tenant_allows() -> None:
    """Two of 3.4 requests/s fill a box of 10 to 68 %: both may, but not with a third that allows 60 %."""
    fuller = [need(name, rps=np.full(4, 3.4), usd=0.06) for name in "ab"]
    strict = replace(need("c", rps=np.full(4, 0.1), usd=0.001), most_busy=0.6)
    assert models_of(packed(*fuller)) == models_of(packed(*fuller, strict)) == [["a", "b"]]
    assert models_of(packed(*(replace(one, most_busy=0.6) for one in fuller), strict)) == []
    best, _ = most_worth([*fuller, strict], [BOX], hours=HOURS)
    assert best == pytest.approx(packed(*fuller, strict).worth_usd_per_hour)


def test_memory_that_fits_no_type_is_refused() -> None:
    with pytest.raises(Misconfigured, match="larger type"):
        packed(replace(need("a"), memory_gib=5.0))


Service = tuple[list[Need], list[HostType]]


def some_service(seed: int, count: int, types: int) -> Service:
    """Every other model fills an instance less than the others."""
    needs = some_needs(np.random.default_rng(seed), count, types)
    return [replace(one, most_busy=one.most_busy - 0.2 * (n % 2)) for n, one in enumerate(needs)], some_types(
        types
    )


services = st.builds(some_service, st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3))


def pack_all(service: Service, there: tuple[Host, ...] = (), covered: Covered = none_covered) -> Packing:
    return pack(*service, there=there, hours=HOURS, covered=covered)


@settings(max_examples=12, deadline=None)
@given(services)
def test_memory_waits_and_budgets_hold(service: Service) -> None:
    needs, types = {item.model: item for item in service[0]}, {item.offering: item for item in service[1]}
    found = pack_all(service)
    for host in found.hosts:
        tenants = [needs[tenant.model] for tenant in host.tenants]
        fits = {item.model: next(fit for fit in item.fits if fit.offering == host.offering) for item in tenants}
        assert sum(item.memory_gib for item in tenants) <= types[host.offering].memory_gib + SAME
        for one, other in combinations(tenants, 2):
            both_s = fits[one.model].full_batch_s + fits[other.model].full_batch_s
            assert both_s <= min(one.slo.latency_s, other.slo.latency_s) + SAME
    for unit in range(len(service[0][0].load_rps)):
        assert can_carry(found, needs, unit)


def can_carry(found: Packing, needs: dict[str, Need], unit: int) -> bool:
    """True where the hosts carry what their tenants are planned to carry, as busy as all of those allow."""
    tenants = [(h, tenant) for h, host in enumerate(found.hosts) for tenant in host.tenants]
    if not tenants:
        return True
    total: defaultdict[str, float] = defaultdict(float)
    for _, tenant in tenants:
        total[tenant.model] += tenant.capacity_rps
    served = np.array([[tenant.model == model for _, tenant in tenants] for model in total], float)
    load = [min(needs[model].load_rps[unit], rps) for model, rps in total.items()]
    busy = np.zeros((len(found.hosts), len(tenants)))
    for i, (h, tenant) in enumerate(tenants):
        fits = needs[tenant.model].fits
        busy[h, i] = 1.0 / next(fit.capacity_rps for fit in fits if fit.offering == found.hosts[h].offering)
    bounds = [(0.0, tenant.capacity_rps) for _, tenant in tenants]
    room = [min(needs[one.model].most_busy for one in host.tenants) + SAME for host in found.hosts]
    free = linprog(-np.ones(len(tenants)), A_ub=np.vstack([busy, served]), b_ub=[*room, *load], bounds=bounds)
    assert free.fun is not None
    return bool(-free.fun >= sum(load) * (1.0 - SAME))


@settings(max_examples=8, deadline=None)
@given(services)
def test_the_order_of_models_and_types_changes_nothing(service: Service) -> None:
    needs, types = service
    assert pack_all((needs[::-1], types[::-1])) == pack_all(service)


@settings(max_examples=6, deadline=None)
@given(st.builds(some_service, st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 4)))
def test_planned_again_from_its_own_result_it_is_the_same(service: Service) -> None:
    assert_same_again(service)


@pytest.mark.slow
@pytest.mark.parametrize("service", [some_service(1, 64, 5), some_service(2, 100, 3)], ids=["many types", "many"])
def test_planned_again_many_models_and_types_are_the_same(service: Service) -> None:
    assert_same_again(service)


def assert_same_again(service: Service) -> None:
    found = pack_all(service)
    assert pack_all(service, found.hosts).hosts == found.hosts


@settings(max_examples=6, deadline=None)
@given(services)
def test_it_is_worth_as_much_as_any_one_model_or_any_one_type(service: Service) -> None:
    needs, types = service
    worth = pack_all(service).worth_usd_per_hour
    least = max(pack_all(([item], types)).worth_usd_per_hour for item in needs)
    least = max(least, *(pack_all((needs, [item])).worth_usd_per_hour for item in types))
    assert worth >= least * (1.0 - 1e-2) - SAME


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6))
def test_two_identical_heavy_models_are_not_dearer_than_two_fleets(seed: int) -> None:
    [one] = some_needs(np.random.default_rng(seed), 1, 3)
    heavy = replace(
        one,
        levels=one.levels * 3,
        load_rps=one.load_rps * 3,
        saved_usd_per_hour=one.saved_usd_per_hour * 3,
    )
    types = some_types(3)
    both = pack_all(([heavy, replace(heavy, model="twin")], types)).worth_usd_per_hour
    assert both >= 2 * pack_all(([heavy], types)).worth_usd_per_hour * (1.0 - 1e-2) - SAME


def first_of_each(types: list[HostType], counts: list[int]) -> Covered:
    """So many instances of each type are paid for."""
    paid = {item.offering: (item.usd_per_hour, count) for item, count in zip(types, counts, strict=True)}

    def covered(hosts: Mapping[str, int]) -> float:
        return sum(usd * min(count, hosts.get(name, 0)) for name, (usd, count) in paid.items())

    return covered


@settings(max_examples=4, deadline=None)
@given(
    st.builds(some_service, st.integers(0, 10**6), st.integers(1, 4), st.just(2)),
    st.lists(st.integers(0, 2), min_size=2, max_size=2),
)
def test_what_is_paid_for_is_used_where_that_saves(service: Service, counts: list[int]) -> None:
    _, types = service
    covered = first_of_each(types, counts)
    listed, found = pack_all(service), pack_all(service, covered=covered)
    hosts = Counter(host.offering for host in listed.hosts)
    assert found.worth_usd_per_hour >= listed.worth_usd_per_hour + covered(hosts) - SAME
    assert pack_all(service, found.hosts, covered).hosts == found.hosts
    assert pack_all(service, covered=lambda _: 0.0) == listed


@settings(max_examples=20, deadline=None)
@given(
    usd=st.lists(st.floats(0.01, 0.15), min_size=3, max_size=3),
    rps=st.lists(st.floats(1.0, 5.0), min_size=3, max_size=3),
    reserved=st.integers(0, 2),
)
def test_no_way_to_use_what_is_paid_for_costs_less(usd: list[float], rps: list[float], reserved: int) -> None:
    """Three models on boxes and on crates, which are dearer, and of which some are paid for."""
    crate = replace(BOX, offering="crate", usd_per_hour=0.15)
    covered = first_of_each([crate], [reserved])
    needs = []
    for name, saves, rate in zip("abc", usd, rps, strict=True):
        one = need(name, usd=saves, rps=np.full(4, rate))
        needs.append(replace(one, fits=(*one.fits, replace(one.fits[0], offering="crate"))))
    found = pack(needs, (BOX, crate), hours=HOURS, covered=covered)

    def worth(places: tuple[int, ...]) -> float:
        """places: each model's, from 1; 0 to 2 behind those are boxes, 3 to 5 crates. 0 is none."""
        used = {place for place in places if place}
        for host in used:
            if sum(rate for rate, place in zip(rps, places, strict=True) if place == host) > MOST_BUSY * 10.0:
                return 0.0
        crates = sum(place > 3 for place in used)
        rents = crates * 0.15 + (len(used) - crates) * 0.1 - covered({"crate": crates}) + len(used) * 0.01 / HOURS
        return sum(saves for saves, place in zip(usd, places, strict=True) if place) - rents

    assert found.worth_usd_per_hour >= max(map(worth, product(range(7), repeat=3))) - 2e-4 * 0.15 - SAME


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.slow)], ids=["some", "more"]
)
def test_it_is_worth_nearly_what_the_integer_program_allows(seeds: range) -> None:
    shares = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        needs, types = some_needs(rng, int(rng.integers(1, 4)), 2), some_types(2)
        _, bound = most_worth(needs, types, hours=HOURS)
        worth = pack_all((needs, types)).worth_usd_per_hour
        assert worth <= bound * (1.0 + 1e-3) + SAME
        shares.append(worth / bound if bound > SAME else 1.0)
    assert np.quantile(shares, 0.05) >= 0.95
    assert min(shares) >= 0.9
