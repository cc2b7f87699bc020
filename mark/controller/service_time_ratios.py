"""Service rates that agents measured, on their way back to the planner. Pure.

A ratio is the service time of an offering divided by what its profile says: the median over its serving instances
and over the sizes of batches. It is bounded, so that one bad measurement cannot turn a plan over, and told in
steps, so that noise does not move a plan every minute. What is as fast as its profile says is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Note, NoteKind
from mark.domain.fleet import Role
from mark.domain.member import Member, MemberState
from mark.domain.offering import Offering

SLOWEST, FASTEST = 2.0, 0.5
"""Bounds of a ratio, against bad measurements."""
STEP = 0.05
REPORTED = 0.2
"""A ratio that is further from 1 gets a note with the plan."""

ServiceTimeRatios = tuple[tuple[str, float], ...]
"""Ratios that are not 1, by the offering's name."""


def measured_ratios(members: Iterable[Member], policy: ControllerPolicy) -> ServiceTimeRatios:
    """Ratios of ready instances by offering; standbys, which slow down with their credits, do not count."""
    found: dict[str, list[float]] = defaultdict(list)
    for member in members:
        offering = policy.offering(member.offering)
        if offering is not None and member.role is Role.SERVING and member.state is MemberState.READY:
            found[member.offering] += _ratios(member, offering)
    steps = {name: round(median(ratios) / STEP) for name, ratios in found.items() if ratios}
    bounded = {name: min(SLOWEST, max(FASTEST, count * STEP)) for name, count in steps.items()}
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


def _ratios(member: Member, offering: Offering) -> list[float]:
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
