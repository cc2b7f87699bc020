"""Pools ranked by Kairos' bound, chosen by its similarity rule, and searched by Kairos+."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.load.sizes import size_distribution
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo
from mark.planner.kairos.pool_choice import (
    CutoffRates,
    RankedPools,
    affordable_pools,
    choose_similar,
    cutoff_rates,
    pool_space,
    rank_pools,
    throughput_bounds,
)
from mark.planner.kairos.pool_search import best_bounds, search_pools
from tests.tables import rows

PUBLISHED_TYPES = ("g4dn.xlarge", "c5n.2xlarge", "r5n.large", "t3.xlarge")
PUBLISHED_USD = np.array([0.526, 0.432, 0.149, 0.1664])
SIZES = size_distribution("test", {1: 0.5, 2: 0.3, 4: 0.2})
SLO = Slo(latency_s=0.1, target=0.99)


def table(**mean_ms: tuple[float, ...]) -> LatencyTable:
    return LatencyTable(model="m", sizes=(1, 2, 4), mean_ms=mean_ms)


def published_rates(row_of: dict[str, dict[str, str]]) -> CutoffRates:
    """What the authors put into their bound: one instance's rates at the cut-offs of the auxiliary types."""
    base_qps = float(row_of[PUBLISHED_TYPES[0]]["standalone_qps"])
    rows = [row_of[name] for name in PUBLISHED_TYPES[1:]]
    share = np.array([1.0, *(float(row["query_fraction_small"]) for row in rows)])
    time_share = np.array([1.0, *(float(row["base_time_fraction_small"]) for row in rows)])
    small, large = np.zeros((4, 4)), np.zeros((4, 4))
    small[0, 1:] = base_qps * share[1:] / time_share[1:]
    large[0, 1:] = base_qps * (1 - share[1:]) / (1 - time_share[1:])
    for place, row in enumerate(rows, start=1):
        at = dict(pair.split(":") for pair in row["qps_at_batch_cutoffs"].split(";"))
        for cutoff, other in enumerate(rows, start=1):
            small[place, cutoff] = float(at.get(other["violation_batch"], 0.0))
    base = np.array([True, False, False, False])
    return CutoffRates(
        base=base, share=share, small_qps=small, large_qps=large, all_qps=np.where(base, base_qps, 0.0)
    )


@pytest.mark.parametrize("model", ["ncf", "rm2", "wnd", "mtwnd", "dien"])
def test_the_published_bounds_come_out_of_the_published_inputs(published_dir: Path, model: str) -> None:
    given_rows = rows(published_dir / "kairos_allocator_profile.csv")
    rates = published_rates({row["instance_type"]: row for row in given_rows if row["model"] == model})
    summary = {row["model"]: row for row in rows(published_dir / "kairos_upper_bound_summary.csv")}[model]
    top = [row for row in rows(published_dir / "kairos_upper_bound_top20.csv") if row["model"] == model]

    found = rank_pools(rates, PUBLISHED_USD, 2.5)

    columns = [f"n_{name.replace('.', '_')}" for name in PUBLISHED_TYPES]
    assert len(found) == int(summary["configs_within_budget"])
    assert found.counts[:20].tolist() == [[int(row[column]) for column in columns] for row in top]
    assert found.bound_qps[:20] == pytest.approx([float(row["upper_bound_qps"]) for row in top], abs=0.005)
    assert found.usd_per_hour[:20] == pytest.approx([float(row["cost_usd_per_hour"]) for row in top], abs=5e-5)


def test_equation_15_by_hand() -> None:
    # Half of the queries are small: 10 ms on either type. The large ones take 40 ms, on the base alone.
    latency_ms = np.array([[10.0, 40.0], [10.0, 200.0]])
    rates = cutoff_rates(latency_ms, np.array([0.5, 0.5]), 100.0)

    # Alone, a base instance takes 25 ms a query. With an auxiliary one, which could serve 100 small queries/s, the
    # large ones limit it, 25/s, and as many small ones. Six of them are busy 6000 ms/s = 40 L/2 + 10 (L/2 - 100).
    pools = np.array([[1, 0], [1, 1], [2, 1], [6, 1]])
    assert throughput_bounds(rates, pools).tolist() == pytest.approx([40.0, 50.0, 100.0, 280.0])


@pytest.mark.parametrize(("slo_ms", "base"), [(250.0, [True, False]), (1000.0, [True, True])])
def test_a_type_is_base_where_the_largest_queries_have_time_to_wait(slo_ms: float, base: list[bool]) -> None:
    latency_ms = np.array([[10.0, 40.0], [10.0, 200.0]])
    rates = cutoff_rates(latency_ms, np.array([0.5, 0.5]), slo_ms)

    assert rates.base.tolist() == base
    assert throughput_bounds(rates, np.array([[1, 1]])).tolist() == pytest.approx([40.0 + 1000 / 105])


def test_an_instance_that_serves_no_size_in_time_adds_nothing_and_is_in_no_pool() -> None:
    rates = cutoff_rates(np.array([[10.0, 40.0], [300.0, 400.0]]), np.array([0.5, 0.5]), 100.0)

    assert throughput_bounds(rates, np.array([[1, 0], [1, 5]])).tolist() == pytest.approx([40.0, 40.0])
    assert not rank_pools(rates, np.array([1.0, 0.1]), 2.0).counts[:, 1].any()


@st.composite
def profiles(draw: st.DrawFn) -> tuple[CutoffRates, np.ndarray, float]:
    """Rates of some types, of which the first is a base, their prices, and a budget that buys a base."""
    types, sizes = draw(st.integers(2, 4)), draw(st.integers(2, 5))
    steps = st.lists(st.floats(0.5, 40.0), min_size=sizes, max_size=sizes)
    latency_ms = np.cumsum([draw(steps) for _ in range(types)], axis=1)
    weights = np.array(draw(st.lists(st.floats(0.05, 1.0), min_size=sizes, max_size=sizes)))
    rates = cutoff_rates(latency_ms, weights / weights.sum(), latency_ms[0, -1] * draw(st.floats(1.0, 1.5)))
    prices = np.array(draw(st.lists(st.floats(0.05, 1.0), min_size=types, max_size=types)))
    return rates, prices, prices[rates.base].min() * draw(st.floats(1.0, 4.0))


@given(profiles(), st.data())
def test_a_bound_never_falls_with_a_count(given_profiles, data: st.DataObject) -> None:
    rates, prices, _ = given_profiles
    counts = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(prices), max_size=len(prices))))
    more = counts + np.eye(len(counts), dtype=int)
    bounds = throughput_bounds(rates, np.vstack((counts, more)))

    assert (bounds[1:] >= bounds[0] * (1 - 1e-9)).all()


@settings(deadline=None, max_examples=60)
@given(profiles())
def test_a_pool_never_exceeds_its_budget_and_has_a_base(given_profiles) -> None:
    rates, prices, budget = given_profiles
    found = rank_pools(rates, prices, budget)

    assert len(found)
    assert (found.counts @ prices <= budget * (1 + 1e-8)).all()
    assert found.counts[:, rates.base].any(axis=1).all()
    assert (np.diff(found.bound_qps) <= 0).all()
    assert len(np.unique(found.counts, axis=0)) == len(found)


@given(
    st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.7]), min_size=1, max_size=3), st.sampled_from([0.05, 0.3, 0.7, 1.5])
)
def test_every_pool_within_the_budget_is_there_once(prices: list[float], budget: float) -> None:
    box = [range(int(budget / price + 1e-6) + 1) for price in prices]
    every = np.stack(np.meshgrid(*box, indexing="ij"), axis=-1).reshape(-1, len(prices))
    within = {tuple(row) for row in every.tolist() if np.dot(row, prices) <= budget + 1e-9}

    found = affordable_pools(np.array(prices), budget).tolist()
    assert len(found) == len(within)
    assert {tuple(row) for row in found} == within


def test_too_many_pools_are_refused_before_they_are_made() -> None:
    with pytest.raises(PlanInfeasible, match="more than 5,000,000 pools"):
        affordable_pools(np.full(10, 0.05), 100.0)


def ranked(*counts: tuple[int, int], base: tuple[bool, bool] = (True, False)) -> RankedPools:
    rows = np.array(counts)
    return RankedPools(
        base=np.array(base),
        counts=rows,
        usd_per_hour=rows.sum(axis=1).astype(float),
        bound_qps=np.linspace(100, 50, len(rows)),
    )


def test_the_best_bound_is_chosen_where_three_agree_on_the_base() -> None:
    assert choose_similar(ranked((1, 9), (1, 8), (1, 1), (3, 5), (3, 5))) == 0


def test_otherwise_the_most_central_of_ten_is_chosen() -> None:
    outlier = (30, 30)
    near = ranked((1, 9), (3, 4), (2, 6), (2, 7), (2, 5), *[(2, 6)] * 5, *[outlier] * 9)
    assert choose_similar(near) == 2


def test_one_pool_is_chosen_from_one() -> None:
    assert choose_similar(ranked((1, 0))) == 0


def test_the_base_types_come_first_the_better_per_usd_before_the_other() -> None:
    latency = table(cpu=(20.0, 60.0, 200.0), big=(5.0, 10.0, 20.0), gpu=(10.0, 20.0, 40.0))
    space = pool_space(
        latency, SIZES, SLO, usd_per_hour={"cpu": 0.1, "big": 1.0, "gpu": 0.4}, budget_usd_per_hour=1.0
    )

    assert space.types == ("gpu", "big", "cpu")
    assert space.base == "gpu"
    assert space.pool(np.array([1, 0, 6])) == {"gpu": 1, "cpu": 6}
    assert space.homogeneous(1.0) == ({"gpu": 2}, pytest.approx(1.25))
    with pytest.raises(PlanInfeasible, match="buys no gpu"):
        space.homogeneous(0.3)


@pytest.mark.parametrize(
    ("budget", "slo_ms", "usd", "said"),
    [
        (0.05, 100.0, {}, "buys no instance: the cheapest type, cpu, costs 0.1 USD/h"),
        (0.3, 100.0, {}, "the cheapest type that serves the largest sizes in time, gpu, costs 0.4 USD/h"),
        (1.0, 15.0, {}, "no type serves 0.99 of m's queries within 15 ms: the best, gpu, serves 0.5"),
        (0.0, 100.0, {}, "a budget must be above 0 USD/h, not 0"),
        (float("nan"), 100.0, {}, "a budget must be above 0 USD/h"),
        (1.0, 100.0, {"gpu": None}, "no price of gpu: add a column usd_per_hour"),
    ],
    ids=["cheapest", "base", "objective", "zero", "nan", "price"],
)
def test_what_cannot_be_planned_is_one_line(budget: float, slo_ms: float, usd: dict[str, None], said: str) -> None:
    prices = {name: price for name, price in {"cpu": 0.1, "gpu": 0.4}.items() if name not in usd}
    with pytest.raises((Misconfigured, PlanInfeasible), match=said):
        pool_space(
            table(cpu=(20.0, 60.0, 200.0), gpu=(10.0, 20.0, 40.0)),
            SIZES,
            Slo(latency_s=slo_ms / 1000, target=0.99),
            usd_per_hour=prices,
            budget_usd_per_hour=budget,
        )


@settings(deadline=None, max_examples=40)
@given(profiles(), st.floats(0.6, 1.0))
def test_kairos_plus_finds_the_best_without_measuring_a_pruned_pool(given_profiles, reached: float) -> None:
    rates, prices, budget = given_profiles
    pools = rank_pools(rates, prices, budget)

    def evaluate(counts: np.ndarray) -> float:
        # Below the bound, and never less with an instance more.
        bound = float(throughput_bounds(rates, counts[None, :])[0])
        return reached * bound * (1 - 0.3 / (1 + counts.sum()))

    found = search_pools(pools, evaluate, best_bounds)

    assert found.best_qps == max(evaluate(row) for row in pools.counts)
    assert len(set(found.ranks)) == len(found.ranks)
    for later, rank in enumerate(found.ranks):
        before = found.ranks[:later]
        assert not any((pools.counts[rank] <= pools.counts[other]).all() for other in before)
        assert all(pools.bound_qps[rank] > qps for qps in found.measured_qps[:later])


def test_a_search_stops_at_its_limit() -> None:
    pools = ranked((4, 0), (3, 1), (2, 2), (1, 3))
    assert search_pools(pools, lambda counts: 1.0, most_measured=2).ranks == [0, 1]


def test_a_bound_that_measures_full_ends_kairos_plus_at_once() -> None:
    by_first = defaultdict(int)

    def evaluate(counts: np.ndarray) -> float:
        by_first[int(counts[0])] += 1
        return 100.0

    assert search_pools(ranked((4, 0), (3, 1), (2, 2)), evaluate).ranks == [0]
    assert dict(by_first) == {4: 1}
