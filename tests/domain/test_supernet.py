from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Control, ElasticSpace

SPACE = ElasticSpace(
    stages=("a", "b"),
    depths=(1, 2, 4),
    inner=(("*.x",),),
    expands=(0.5, 1.0),
    outer=(("*.y",),),
    widths=(0.25, 1.0),
)


def test_a_space_holds_each_of_its_subnets_once() -> None:
    found = list(SPACE.controls())

    assert len(found) == len(set(found)) == len(SPACE) == 3 * 3 * 2 * 2
    assert (found[0], found[-1]) == (SPACE.smallest, SPACE.largest)
    assert SPACE.largest == Control((4, 4), (1.0,), (1.0,))
    assert all(control in SPACE for control in found)


@pytest.mark.parametrize(
    "control",
    [
        pytest.param(Control((1, 3), (0.5,), (1.0,)), id="depth"),
        pytest.param(Control((1,), (0.5,), (1.0,)), id="stages"),
        pytest.param(Control((1, 1), (0.6,), (1.0,)), id="expand"),
        pytest.param(Control((1, 1), (0.5,), (0.5,)), id="width"),
        pytest.param(((1, 1), (0.5,), (1.0,)), id="plain-tuple"),
    ],
)
def test_what_is_no_choice_of_the_space_is_not_in_it(control: object) -> None:
    assert control not in SPACE


BY_BLOCK = replace(
    SPACE, depths=(1, 2, 3), stages=("a",), inner=tuple((f"a.{block}.x",) for block in range(3)), kept="even"
)


@pytest.mark.parametrize(("kept", "running"), [("first", (0, 1)), ("even", (0, 2))])
def test_blocks_that_run_are_the_first_or_spread_evenly(kept: Any, running: tuple[int, ...]) -> None:
    assert replace(SPACE, kept=kept).running(2) == running


def test_a_block_that_does_not_run_has_no_choice() -> None:
    found = list(BY_BLOCK.controls())

    assert len(found) == len(set(found)) == len(BY_BLOCK) == 2 * (2 + 4 + 8)
    assert {control.expands[1:] for control in found if control.depths == (1,)} == {(1.0, 1.0)}
    assert all(control in BY_BLOCK for control in found)
    assert Control((1,), (0.5, 0.5, 1.0), (1.0,)) not in BY_BLOCK
    assert Control((2,), (0.5, 1.0, 0.5), (0.25,)).variant == "d2-e0.5-1-0.5-w0.25"


@given(st.integers(0, 1000))
def test_what_is_drawn_is_a_subnet(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert BY_BLOCK.drawn(lambda choices: int(rng.integers(choices))) in BY_BLOCK


def test_a_variant_s_name_fits_a_url_and_tells_all_subnets_apart() -> None:
    names = {control.variant for control in SPACE.controls()}

    assert Control((2, 4), (0.5,), (0.25,)).variant == "d2-4-e0.5-w0.25"
    assert len(names) == len(SPACE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"depths": (2, 1)}, "depths must rise"),
        ({"depths": (0, 1)}, "one block or more"),
        ({"expands": ()}, "expands must rise"),
        ({"widths": (0.5, 0.75)}, "the last one is 1"),
        ({"widths": (-1.0, 1.0)}, "shares above 0"),
        ({"inner": ("*.x",)}, "each group of inner is a tuple of patterns"),
    ],
    ids=["falling", "no-block", "none", "without-the-whole", "below-zero", "no-group"],
)
def test_a_space_that_makes_no_sense_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        replace(SPACE, **change)  # type: ignore[arg-type]
