from __future__ import annotations

import pytest

from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.ports import ForecasterSetup
from mark.predictors.oracle import Oracle
from tests.predictors.builders import first_units, means, ramp

EPOCH = 1_700_000_040.0


def oracle(truth: Demand) -> Oracle:
    return Oracle(ForecasterSetup(history=ramp(0), seed=1).with_truth(truth))


def test_it_reads_the_units_that_follow_the_history():
    truth = ramp(200, end_at=EPOCH)

    forecast = oracle(truth).forecast(first_units(truth, 90), 60)

    assert means(forecast) == truth.mean_rps[90:150]
    assert forecast.max_at(0.5) == truth.max_rps[90:150]
    assert forecast.label == "oracle"


def test_it_needs_no_history_only_its_end():
    truth = ramp(200, end_at=EPOCH)

    forecast = oracle(truth).forecast(Demand(end_at=EPOCH - 200 * 60, mean_rps=(), max_rps=()), 60)

    assert means(forecast) == truth.mean_rps[:60]


def test_beyond_the_end_the_last_value_repeats_and_the_source_says_so():
    truth = ramp(100)

    forecast = oracle(truth).forecast(first_units(truth, 98), 4)

    assert means(forecast) == (98.0, 99.0, 99.0, 99.0)
    assert forecast.label == "oracle: 2 of 4 units lie outside of what is known, nearest value"


def test_without_truth_it_refuses_to_start():
    with pytest.raises(Misconfigured, match="replay is too short"):
        oracle(ramp(0))


def test_a_tick_between_two_units_is_refused():
    with pytest.raises(Misconfigured, match="no unit boundary"):
        oracle(ramp(100)).forecast(ramp(10, end_at=630.0), 60)
