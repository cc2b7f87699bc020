"""Division of a cap over all models of a service: equal marginal loss by what each model loses.

Each model claims instances, in the order in which it would give up the last one first. An instance that it does
not get loses what the instance would save (Lambda's price of its requests; where nothing else answers in time,
the price of a miss at which the objective is just kept), times the model's weight, less the rent that is not paid.
For a share of the cap, that is the marginal loss. The cap goes to whoever would lose most for it, instance by
instance; so nobody holds a share for which another would lose more, up to one instance. This is exact where
losses are convex, as they are where levels of load are served from the bottom. Where a later instance saves more
than an earlier one, both count with their mean (the concave hull).

Floors come first. Which instance comes next depends on no order of the models; ties go to the first by name. A
model whose next instance does not fit gets no more, and smaller ones of others may fill the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mark.domain.plans.service_cap import NOTHING, ServiceCap, Takes


@dataclass(frozen=True, slots=True, kw_only=True)
class CapStep:
    """One instance of a claim."""

    takes: Takes
    #: What it saves beside the instances before it, USD an hour.
    saves: float
    #: What it costs while it is there, USD an hour.
    costs: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapClaim:
    """The instances that one model wants, from the one that it needs most to the one that it needs least."""

    model: str
    steps: tuple[CapStep, ...]
    #: Multiplies what its instances save.
    weight: float = 1.0
    #: So many of the first steps come before what anybody else wants beyond its own floor.
    floor: int = 0

    @property
    def takes(self) -> Takes:
        """What all its instances take."""
        total = NOTHING
        for step in self.steps:
            total = total.plus(step.takes)
        return total


def divide_cap(claims: Sequence[CapClaim], cap: ServiceCap) -> Mapping[str, int]:
    """Steps that each model gets, by name. All floors fit the cap, or the last to come are cut."""
    by_name = {claim.model: claim for claim in sorted(claims, key=lambda one: one.model)}
    got, taken, closed = dict.fromkeys(by_name, 0), NOTHING, set[str]()
    for _, _, model, number in sorted(
        (number >= claim.floor, -loss, claim.model, number)
        for claim in claims
        for number, loss in enumerate(marginal_losses(claim, cap))
    ):
        if model in closed:
            continue
        more = taken.plus(by_name[model].steps[number].takes)
        if cap.holds(more):
            taken, got[model] = more, got[model] + 1
        else:
            closed.add(model)
    return got


def marginal_losses(claim: CapClaim, cap: ServiceCap) -> list[float]:
    """Loss without each step, USD an hour for the whole of the cap: never rising from one step to the next.

    What takes nothing of the cap is lost by nobody: it comes first.
    """
    blocks: list[tuple[float, float, int]] = []  # loss, share of the cap, steps
    for step in claim.steps:
        loss, share, count = claim.weight * step.saves - step.costs, cap.share(step.takes), 1
        while blocks and blocks[-1][0] * share < loss * blocks[-1][1]:
            before = blocks.pop()
            loss, share, count = loss + before[0], share + before[1], count + before[2]
        blocks.append((loss, share, count))
    return [loss / share if share > 0.0 else math.inf for loss, share, count in blocks for _ in range(count)]
