from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import size_distribution
from mark.simulator.traces.trace import Trace, holds_whole_counts, trace_of_arrivals
from mark.simulator.workload import Workload, uniform_order


def trace_of(values, bin_s=1.0):
    values = np.array(values, dtype=float)
    return Trace(
        name="t", start_at=0.0, bin_s=bin_s, rates_rps=values, whole_counts=holds_whole_counts(values, bin_s)
    )


def workload(values, bin_s=1.0, seed=1, **window):
    return Workload(trace=trace_of(values, bin_s), seed=seed, **window)


BINS_S = st.sampled_from([0.01, 0.25, 0.3, 1.0, 1.5, 2.0, 57.0, 60.0, 7200.0])
SHAPES = st.tuples(
    st.lists(st.one_of(st.integers(0, 30).map(float), st.floats(0, 30)), min_size=1, max_size=12), BINS_S
)


@given(shape=SHAPES, seed=st.integers(0, 1000), cuts=st.lists(st.floats(0, 1), max_size=6))
@settings(max_examples=40, deadline=None)
def test_chunks_do_not_change_arrivals(shape, seed, cuts):
    values, bin_s = shape
    whole = workload(values, bin_s, seed)
    length_s = whole.end_s
    edges = [0.0, *sorted(cut * length_s for cut in cuts), length_s]
    chunked = workload(values, bin_s, seed)
    parts = [chunked.arrivals(low, high) for low, high in pairwise(edges)]
    assert np.concatenate(parts).tolist() == whole.arrivals(0.0, length_s).tolist()
    for part, low, high in zip(parts, edges[:-1], edges[1:], strict=True):
        assert ((part >= low) & (part < high)).all()


@given(shape=SHAPES, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_arrivals_rise_and_counts_per_second_are_theirs(shape, seed):
    load = workload(*shape, seed)
    seconds = int(np.ceil(load.end_s))
    arrivals = load.arrivals(0.0, load.end_s)
    assert (np.diff(arrivals) >= 0).all()
    by_second = np.bincount(np.floor(arrivals).astype(int), minlength=seconds)
    assert load.second_counts(0, seconds).tolist() == by_second.tolist()
    middle = seconds // 2
    assert load.second_counts(middle, seconds).tolist() == by_second[middle:].tolist()


@given(values=st.lists(st.integers(0, 50), min_size=1, max_size=40), bin_s=st.sampled_from([0.01, 0.5, 1.0]))
@settings(deadline=None)
def test_whole_counts_are_taken_exactly(values, bin_s):
    load = workload([value / bin_s for value in values], bin_s)
    edges = np.arange(len(values) + 1) * bin_s
    found = [len(load.arrivals(low, high)) for low, high in pairwise(edges)]
    assert sum(found) == sum(values)
    assert len(load.arrivals(0.0, load.end_s)) == sum(values)
    if bin_s != 0.01:  # 0.01 s has no exact number, so an arrival next to an edge may be on either side
        assert found == values


def test_order_of_calls_does_not_matter():
    hours = [20.0] * 4 * 3600
    one, two = workload(hours, seed=5), workload(hours, seed=5)
    late = one.arrivals(10_000.0, 10_100.0)
    one.arrivals(0.0, 9_000.0)
    assert one.arrivals(10_000.0, 10_100.0).tolist() == late.tolist()
    two.second_counts(0, 14_400)
    assert two.arrivals(10_000.0, 10_100.0).tolist() == late.tolist()


def test_what_a_caller_does_to_its_arrivals_changes_no_others():
    load = workload([20.0] * 100)
    first = load.arrivals(0, 100)
    kept = first.tolist()
    first[:] = 0
    assert load.arrivals(0, 100).tolist() == kept


def test_counts_of_a_minutes_bin_are_poisson_and_uniform_within_it():
    load = workload([2.5] * 2000, 60.0)
    per_bin = load.second_counts(0, 120_000).reshape(-1, 60)
    counts = per_bin.sum(axis=1)
    # 2000 draws of Poisson(150): four standard errors of mean and variance.
    assert abs(counts.mean() - 150) < 4 * np.sqrt(150 / 2000)
    assert abs(counts.var() / 150 - 1) < 4 * np.sqrt(2 / 2000)
    share = per_bin.sum(axis=0) / counts.sum()
    assert np.abs(share - 1 / 60).max() < 5 * np.sqrt(1 / 60 / counts.sum())


def test_instants_within_a_cell_are_uniform():
    arrivals = workload([10.0] * 20_000).arrivals(0, 20_000)
    inside = np.sort(arrivals % 1)
    distance = np.abs(inside - (np.arange(len(inside)) + 0.5) / len(inside)).max()
    assert distance < 1.95 / np.sqrt(len(inside))  # Kolmogorov-Smirnov, 0.1 %
    gaps = np.diff(arrivals.reshape(-1, 10)[:, :2], axis=1)
    assert gaps.mean() == pytest.approx(1 / 11, rel=0.05)  # of ten uniforms


def test_rounding_never_moves_an_instant_into_the_next_cell():
    def gaps(n):
        drawn = np.ones(n)
        drawn[n // 2 :] = 1e-300  # the last instants of the cell fall on its very end
        return drawn

    places = uniform_order(np.array([9]), gaps)
    assert (places < 1).all()
    assert (np.floor(places + 604_799) == 604_799).all()


def test_raw_arrivals_are_replayed_as_they_are():
    instants = np.array([100.25, 100.25, 101.5, 163.0])
    load = Workload(trace=trace_of_arrivals("raw", instants), seed=9)
    assert load.arrivals(0, 64).tolist() == [0.25, 0.25, 1.5, 63.0]
    assert load.arrivals(0.25, 1.5).tolist() == [0.25, 0.25]
    assert load.second_counts(0, 64).sum() == 4
    assert load.demand(0, 60).mean_rps == (3 / 60,)


def test_demand_is_of_the_same_arrivals():
    load = workload([3.3] * 600)
    arrivals = load.arrivals(60, 240)
    demand = load.demand(60, 240)
    assert demand.end_at == 240
    assert demand.mean_rps == tuple(
        np.count_nonzero((arrivals >= at) & (arrivals < at + 60)) / 60 for at in (60, 120, 180)
    )
    windows = np.bincount(((arrivals - 60) // 5).astype(int), minlength=36).reshape(3, 12)
    assert demand.max_rps == tuple((windows.max(axis=1) / 5).tolist())


def test_an_incomplete_unit_is_left_out_of_demand():
    assert len(workload([1.0] * 150).demand(0, 150)) == 2


def test_history_ends_at_the_start_and_keeps_what_is_asked():
    load = workload([2.2] * 600, start_s=300.0)
    assert load.history(load.start_s, 3) == load.demand(120, 300)
    assert load.history(load.start_s, 1000) == load.demand(0, 300)
    assert len(load.history(0.0, 1000)) == 0
    assert load.history(330.0, 1000) == load.demand(30, 330)


def test_a_window_beyond_the_end_is_cut_and_one_that_starts_there_refused():
    load = workload([1.0] * 100, start_s=40.0, duration_s=500.0)
    assert (load.start_s, load.end_s, load.duration_s) == (40, 100, 60)
    assert "were cut" in load.notes[0]
    with pytest.raises(Misconfigured, match="100 s long"):
        workload([1.0] * 100, start_s=100.0)


def test_counts_need_whole_seconds():
    with pytest.raises(Misconfigured, match="whole seconds"):
        workload([1.0] * 10).second_counts(0.5, 3)


def test_blocks_shrink_with_the_rate_so_that_memory_does_not_grow():
    load = workload([1e6] * 4 + [1.0] * 10_000)
    assert len(load.arrivals(3, 4)) == 1_000_000
    assert max(len(block) for block in load._kept.values()) <= 2_000_000
    assert len(load._kept) <= 2


SIZES = size_distribution("test", {1: 0.2, 7: 0.5, 30: 0.3})


@given(shape=SHAPES, seed=st.integers(0, 1000), cuts=st.lists(st.floats(0, 1), max_size=6))
@settings(max_examples=30, deadline=None)
def test_each_arrival_keeps_its_size_however_calls_are_chunked(shape, seed, cuts):
    load, plain = workload(*shape, seed, sizes=SIZES), workload(*shape, seed)
    length_s = load.end_s
    edges = [0.0, *sorted(cut * length_s for cut in cuts), length_s]
    parts = [load.items(low, high) for low, high in pairwise(edges)]
    assert np.concatenate(parts).tolist() == load.items(0.0, length_s).tolist()
    assert load.arrivals(0.0, length_s).tolist() == plain.arrivals(0.0, length_s).tolist()
    assert [part.size for part in parts] == [load.arrivals(low, high).size for low, high in pairwise(edges)]
    assert set(plain.items(0.0, length_s).tolist()) <= {1}


def test_sizes_come_as_often_as_their_distribution_says():
    drawn = workload([50.0] * 2000, sizes=SIZES).items(0.0, 2000.0)
    for size, share in zip(SIZES.sizes, SIZES.probabilities, strict=True):
        assert np.mean(drawn == size) == pytest.approx(share, abs=0.01)


def test_raw_instants_have_sizes_too_and_another_speed_keeps_the_arrivals_of_one_without():
    trace = trace_of_arrivals("raw", np.sort(np.random.default_rng(4).uniform(0.0, 100.0, 2000)))
    load = Workload(trace=trace, seed=1, sizes=SIZES)
    whole = load.items(0.0, 100.0)
    assert whole.tolist() == [*load.items(0.0, 40.0), *load.items(40.0, 100.0)]
    fast = Workload(trace=trace, seed=1, speed=4.0, sizes=SIZES)
    assert fast.items(0.0, 100.0).size == fast.arrivals(0.0, 100.0).size < 700
    assert fast.at_trace_speed.items(0.0, 100.0).tolist() == whole.tolist()
