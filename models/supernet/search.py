"""The Pareto front of a supernet: subnets that no other one beats in both cost and loss.

Loss stands for accuracy here, because a few hundred examples tell losses apart where they see the same accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from mark.domain.supernet import Control, ElasticSpace

WHOLE = 256
"""A space of no more subnets is evaluated whole."""
MOST = 3_000
"""Subnets that are evaluated at most of a larger one."""
DRAWN = 40
"""Of them are drawn before those on the front are varied."""
TRIES = 50
"""Draws of a new subnet in a row that may find only known ones."""


class Evaluated(NamedTuple):
    """Cost of a subnet for one item, and its mean cross-entropy on examples that it did not learn from."""

    macs: int
    loss: float


def search(
    space: ElasticSpace, evaluate: Callable[[Control], Evaluated], rng: np.random.Generator, *, most: int = MOST
) -> dict[Control, Evaluated]:
    """Evaluate the whole space where it is small; else draw some subnets and vary the front's in one place."""
    if len(space) <= min(WHOLE, most):
        return {control: evaluate(control) for control in space.controls()}

    def pick(choices: int) -> int:
        return int(rng.integers(choices))

    found = {control: evaluate(control) for control in (space.smallest, space.largest)}
    front = pareto_front(found)
    control, tries = space.largest, 0
    while len(found) < most and tries < TRIES:
        if len(found) < DRAWN:
            control = space.drawn(pick)
        else:  # a known one is varied further
            control = _varied(space, control if tries else front[pick(len(front))], pick)
        tries = tries + 1 if control in found else 0
        if control not in found:
            found[control] = evaluate(control)
            front = pareto_front({one: found[one] for one in (*front, control)})
    return found


def pareto_front(found: Mapping[Control, Evaluated]) -> tuple[Control, ...]:
    """The subnets that lose less than all that cost no more, the cheapest first; ties go to the smaller one."""
    ordered = sorted(found, key=lambda control: (*found[control], control))
    front: list[Control] = []
    for control in ordered:
        if not front or found[control].loss < found[front[-1]].loss:
            front.append(control)
    return tuple(front)


def evenly(found: Mapping[Control, Evaluated], count: int) -> tuple[Control, ...]:
    """At most `count` subnets, those nearest to costs evenly spaced from the least to the greatest."""
    left = sorted(found, key=lambda control: (found[control].macs, control))
    least, most = found[left[0]].macs, found[left[-1]].macs
    nearest = []
    for place in range(min(count, len(left))):
        wanted = least + (most - least) * place / max(1, count - 1)
        nearest.append(min(left, key=lambda control: abs(found[control].macs - wanted)))
        left.remove(nearest[-1])
    return tuple(nearest)


def _varied(space: ElasticSpace, control: Control, pick: Callable[[int], int]) -> Control:
    """The control with one of its choices drawn again."""
    other = space.drawn(pick)
    parts, place = [list(part) for part in control], pick(sum(map(len, control)))
    for mine, theirs in zip(parts, other, strict=True):
        if 0 <= place < len(mine):
            mine[place] = theirs[place]
        place -= len(mine)
    depths = tuple(map(int, parts[0]))
    # Groups of blocks that do not run any more have no choice left.
    expands, widths = (
        tuple(share if share in choices else choices[-1] for share, choices in zip(part, groups, strict=True))
        for part, groups in zip(parts[1:], space.choices(depths), strict=True)
    )
    return Control(depths, expands, widths)
