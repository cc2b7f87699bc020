"""Service rates that agents measured, on their way back to the planner. Pure.

A pace says how many times as long as its profile says an offering takes: the median over its serving instances
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
"""Times as long as the profile says: a plan believes no more, and no less."""
STEP = 0.05
REPORTED = 0.2
"""A pace that leaves the profile by more is told with the plan."""

Paces = tuple[tuple[str, float], ...]
"""Paces that are not 1, by the offering's name."""


def measured_paces(members: Iterable[Member], policy: ControllerPolicy) -> Paces:
    """The paces of what is ready; standbys, which slow down with their credits, do not count."""
    found: dict[str, list[float]] = defaultdict(list)
    for member in members:
        offering = policy.offering(member.offering)
        if offering is not None and member.role is Role.SERVING and member.state is MemberState.READY:
            found[member.offering] += _ratios(member, offering)
    steps = {name: round(median(ratios) / STEP) for name, ratios in found.items() if ratios}
    bounded = {name: min(SLOWEST, max(FASTEST, count * STEP)) for name, count in steps.items()}
    return tuple(sorted((name, round(pace, 2)) for name, pace in bounded.items() if round(pace, 2) != 1.0))


def with_paces(policy: ControllerPolicy, paces: Paces) -> ControllerPolicy:
    """The policy with its offerings as fast as they were measured."""
    if not paces:
        return policy
    known = dict(paces)
    return replace(
        policy,
        offerings=tuple(_paced(offering, known) for offering in policy.offerings),
        fallbacks=tuple(_paced(offering, known) for offering in policy.fallbacks),
    )


def told_paces(paces: Paces) -> tuple[Note, ...]:
    """A note for each offering whose profile is wrong by more than a fifth."""
    return tuple(
        Note(kind=NoteKind.SERVICE_TIME, text=f"{name} takes {pace:g} times as long as its profile says")
        for name, pace in paces
        if abs(pace - 1.0) > REPORTED
    )


def _ratios(member: Member, offering: Offering) -> list[float]:
    largest = min(len(member.batch_s), offering.profile.max_batch)
    return [member.batch_s[size - 1] / offering.profile.latency_s(size) for size in range(1, largest + 1)]


def _paced(offering: Offering, paces: dict[str, float]) -> Offering:
    pace = paces.get(offering.name)
    if pace is None:
        return offering
    points = tuple(replace(point, latency_s=point.latency_s * pace) for point in offering.profile.points)
    return replace(
        offering,
        profile=replace(offering.profile, points=points),
        capacity_rps=offering.capacity_rps / pace,
    )
