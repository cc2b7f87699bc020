"""The reference of models that share is the best of all fleets of whole instances, tried one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from mark.domain.errors import PlanInfeasible
from mark.domain.offerings.offering import Offering
from mark.planner.shared.whole_reference import whole_reference_usd
from mark.planner.yardsticks import YardstickInput, reference_usd
from tests.planner.builders import offering, overflow
from tests.planner.test_yardsticks import DEAR_LAMBDA, inputs

RATES = st.lists(st.integers(0, 3), min_size=2, max_size=2)


@st.composite
def services(draw: st.DrawFn, *, types: int = 1) -> list[YardstickInput]:
    """One to three models with as many minutes each, some without Lambda."""
    minutes = draw(st.integers(1, 3))
    prices = [draw(st.tuples(st.floats(0.1, 2.0), st.floats(0.0, 0.05))) for _ in range(types)]
    found = []
    for _ in range(draw(st.integers(1, 3))):
        offerings = tuple(
            offering(f"t{n}", rps=draw(st.floats(1.5, 6.0)), usd_per_hour=usd, launch_usd=launch)
            for n, (usd, launch) in enumerate(prices)
        )
        rows = draw(st.lists(RATES, min_size=minutes, max_size=minutes))
        found.append(inputs(rows, offerings, draw(st.sampled_from([None, overflow(), DEAR_LAMBDA]))))
    return found


def lost_usd(models: Sequence[YardstickInput], items: Sequence[Offering], second: int, count: int) -> float:
    """Least price on Lambda of a second's requests beside so many instances; infinite where some have none."""
    price = np.array([model.shortfall_usd for model in models])
    arrivals = np.array([model.arrivals[second] for model in models])
    has = np.isfinite(price)
    per_request = np.array([1.0 / item.capacity_rps for item in items])
    left = linprog(
        np.where(has, price, 0.0),
        A_ub=[-per_request],
        b_ub=[count - float(arrivals @ per_request) + 1e-9],
        bounds=[(0.0, rate if able else 0.0) for rate, able in zip(arrivals, has, strict=True)],
    )
    return float(left.fun or 0.0) if left.status == 0 else math.inf


@settings(max_examples=10, deadline=None)
@given(services())
def test_it_is_the_best_of_all_whole_fleets(models: list[YardstickInput]) -> None:
    items = [model.offerings[0] for model in models]
    most = math.ceil(sum(3.0 / item.capacity_rps for item in items)) + 1
    minutes = len(models[0].arrivals) // 60
    lost = [
        [30.0 * sum(lost_usd(models, items, 60 * minute + half, n) for half in (0, 1)) for n in range(most)]
        for minute in range(minutes)
    ]
    best = min(
        sum(lost[minute][n] + n * items[0].usd_per_hour / 60.0 for minute, n in enumerate(fleet))
        + sum(items[0].launch_usd * max(0, after - before) for before, after in itertools.pairwise(fleet))
        for fleet in itertools.product(range(most), repeat=minutes)
    )
    assert whole_reference_usd(models) == pytest.approx(best, rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(services(types=2))
def test_one_model_pays_for_no_less_than_in_fractions(models: list[YardstickInput]) -> None:
    assert whole_reference_usd(models[:1]) >= reference_usd(models[0]) * (1 - 1e-6) - 1e-9


@settings(max_examples=40, deadline=None)
@given(services())
def test_sharing_costs_no_more_than_apart_in_any_order(models: list[YardstickInput]) -> None:
    together = whole_reference_usd(models)
    assert together <= sum(whole_reference_usd([model]) for model in models) * (1 + 1e-6) + 1e-9
    assert whole_reference_usd(models[::-1]) == pytest.approx(together)


def test_who_does_not_run_on_a_type_has_another() -> None:
    row = [[2, 2]]
    cpu, gpu = (offering(name, rps=4.0, usd_per_hour=usd) for name, usd in (("cpu", 0.6), ("gpu", 6.0)))
    both = [inputs(row, (cpu,), None), inputs(row, (gpu,), None), inputs(row, (cpu, gpu), None)]
    assert whole_reference_usd(both) == pytest.approx(0.01 + 0.1)
    with pytest.raises(PlanInfeasible):
        whole_reference_usd([*both, replace(both[0], offerings=())])
    assert whole_reference_usd([inputs([[0, 0]], ())]) == 0.0
    lambda_only = inputs(row, ())
    assert whole_reference_usd([lambda_only]) == pytest.approx(120 * lambda_only.shortfall_usd)
