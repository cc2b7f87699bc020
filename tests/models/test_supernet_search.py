from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.supernet import Control, ElasticSpace
from mark.models.supernet.search import Evaluated, evenly, pareto_front, search
from mark.models.supernet.shrinking import epochs_of, phases

SPACE = ElasticSpace(
    stages=("a", "b"),
    depths=(1, 2, 3),
    inner=(("x",),),
    expands=(0.5, 0.75, 1.0),
    outer=(("y",),),
    widths=(0.5, 1.0),
)
WIDE = replace(SPACE, stages=tuple("abcdefgh"))
BY_BLOCK = replace(
    SPACE, inner=tuple((f"{stage}.{block}.x",) for stage in SPACE.stages for block in range(SPACE.depths[-1]))
)
CONTROLS = list(SPACE.controls())
found_of = st.dictionaries(
    st.sampled_from(CONTROLS),
    st.builds(Evaluated, st.integers(1, 9), st.sampled_from([0.1, 0.2, 0.3, 0.4])),
    min_size=1,
)


def cost(control: Control) -> Evaluated:
    size = sum(control.depths) * control.expands[0] * control.widths[0]
    return Evaluated(round(1000 * size), 1 / size)


@given(found_of)
def test_nothing_beats_the_front_and_it_beats_all_others(found: dict[Control, Evaluated]) -> None:
    front = pareto_front(found)

    def beats(one: Evaluated, other: Evaluated) -> bool:
        return one != other and one.macs <= other.macs and one.loss <= other.loss

    kept = {found[control] for control in front}
    assert len(kept) == len(front)
    for control, value in found.items():
        if control in front:
            assert not any(beats(other, value) for other in found.values())
        else:
            assert any(beats(other, value) or other == value for other in kept)
    assert [found[control].macs for control in front] == sorted(value.macs for value in kept)


@given(found_of, st.randoms())
def test_the_front_does_not_depend_on_an_order(found, random) -> None:
    items = list(found.items())
    random.shuffle(items)
    assert pareto_front(dict(items)) == pareto_front(found)


def test_a_small_space_is_evaluated_whole() -> None:
    assert list(search(SPACE, cost, np.random.default_rng(0))) == CONTROLS


@pytest.mark.parametrize("space", [WIDE, BY_BLOCK], ids=["depths", "shares-by-block"])
def test_a_large_space_is_searched_within_its_limit_and_by_its_seed(space: ElasticSpace) -> None:
    found, again, other = (search(space, cost, np.random.default_rng(seed), most=60) for seed in (1, 1, 2))

    assert len(found) == 60
    assert found == again != other
    assert {space.smallest, space.largest} <= set(found)
    assert all(control in space for control in found)


def test_varying_the_best_finds_better_ones_than_drawing_alone() -> None:
    """Depth is worth nothing here, so the best subnets have all channels and few blocks."""

    def flat(control: Control) -> Evaluated:
        return Evaluated(
            sum(control.depths), 2 - control.expands[0] * control.widths[0] + 0.001 * sum(control.depths)
        )

    found = search(WIDE, flat, np.random.default_rng(0), most=200)
    drawn = list(found)[:50]
    least = min(found.values(), key=lambda value: value.loss).loss
    assert least < min(found[control].loss for control in drawn if control != WIDE.largest)


@pytest.mark.parametrize("count", [1, 2, 6, 100])
def test_evenly_spaced_costs_reach_from_the_least_to_the_greatest(count: int) -> None:
    found = {control: cost(control) for control in CONTROLS}
    picked = evenly(found, count)

    assert len(set(picked)) == min(count, len(CONTROLS))
    assert picked[0] == SPACE.smallest
    if count > 1:
        assert SPACE.largest in picked


def test_each_phase_holds_the_one_before_it() -> None:
    found = phases(SPACE)

    assert [len(space) for space in found] == [1, 9, 27, 54]
    for smaller, larger in pairwise(found):
        assert all(control in larger for control in smaller.controls())
    assert phases(replace(SPACE, depths=(3,), expands=(1.0,), widths=(1.0,))) == (
        replace(SPACE, depths=(3,), expands=(1.0,), widths=(1.0,)),
    )


@given(st.integers(1, 60))
def test_each_phase_gets_epochs(epochs: int) -> None:
    found = epochs_of(phases(SPACE), epochs)

    assert min(found) >= 1
    assert sum(found) == max(epochs, 4)
