"""Service rates that agents measured, on their way back to the planner. Pure.

A ratio is the service time of an offering divided by what its profile says: the median over its serving instances
and over the sizes of batches. It is bounded, so that one bad measurement cannot turn a plan over, and told in
steps. What is as fast as its profile says is left out, and so is what the noise of service times explains: it
would move a plan every minute.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from statistics import median

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Note, NoteKind
from mark.dispatch.instance.measured import estimate_cv
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState
from mark.domain.offerings.offering import Offering

SLOWEST, FASTEST = 2.0, 0.5
"""Bounds of a ratio, against bad measurements."""
STEP = 0.05
SURE = 3.0
"""A ratio nearer to 1 than so many standard errors is noise."""
MEDIAN = 1.25
"""Standard error of a median over that of a mean, for normal numbers."""
REPORTED = 0.2
"""A ratio that is further from 1 gets a note with the plan."""

ServiceTimeRatios = tuple[tuple[str, float], ...]
"""Ratios that are not 1, by the offering's name."""


def measured_ratios(members: Iterable[Member], policy: ControllerPolicy) -> ServiceTimeRatios:
    """Ratios of ready instances by offering; standbys, which slow down with their credits, do not count."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for member in members:
        if member.role is Role.SERVING and member.state is MemberState.READY:
            found[member.offering].append(_ratios(member, policy.offering(member.offering)))
    middle = {name: median(chain.from_iterable(ratios)) for name, ratios in found.items() if any(ratios)}
    sure = {name: ratio for name, ratio in middle.items() if not _is_noise(ratio, len(found[name]), policy, name)}
    bounded = {name: min(SLOWEST, max(FASTEST, round(ratio / STEP) * STEP)) for name, ratio in sure.items()}
    return tuple(sorted((name, round(ratio, 2)) for name, ratio in bounded.items() if round(ratio, 2) != 1.0))


def with_ratios(policy: ControllerPolicy, ratios: ServiceTimeRatios) -> ControllerPolicy:
    """Replace each offering's profile and capacity by the measured ones."""
    if not ratios:
        return policy
    known = dict(ratios)
    return replace(
        policy,
        offerings=tuple(_with_ratio(offering, known) for offering in policy.offerings),
        fallbacks=tuple(_with_ratio(offering, known) for offering in policy.fallbacks),
    )


def ratio_notes(ratios: ServiceTimeRatios) -> tuple[Note, ...]:
    """A note for each offering whose profile is wrong by more than a fifth."""
    return tuple(
        Note(kind=NoteKind.SERVICE_TIME, text=f"{name} takes {ratio:g} times as long as its profile says")
        for name, ratio in ratios
        if abs(ratio - 1.0) > REPORTED
    )


def _is_noise(ratio: float, instances: int, policy: ControllerPolicy, name: str) -> bool:
    """True where so few instances measure such a ratio by chance. Sizes on one instance are not independent."""
    offering = policy.offering(name)
    cv = offering.cv if offering is not None else 0.0
    return abs(ratio - 1.0) < SURE * MEDIAN * estimate_cv(cv) / math.sqrt(instances)


def _ratios(member: Member, offering: Offering | None) -> list[float]:
    if offering is None:
        return []
    largest = min(len(member.batch_s), offering.profile.max_batch)
    return [member.batch_s[size - 1] / offering.profile.latency_s(size) for size in range(1, largest + 1)]


def _with_ratio(offering: Offering, ratios: dict[str, float]) -> Offering:
    ratio = ratios.get(offering.name)
    if ratio is None:
        return offering
    points = tuple(replace(point, latency_s=point.latency_s * ratio) for point in offering.profile.points)
    return replace(
        offering,
        profile=replace(offering.profile, points=points),
        capacity_rps=offering.capacity_rps / ratio,
    )
