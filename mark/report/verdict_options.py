"""The options of a verdict: which policy's replay stands for which way to serve the load.

Replays of a model, of a service, and of a service's own days come here as figures of their policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mark.policies.overrides import OWN_POLICIES
from mark.policies.present import Present
from mark.report.runs.rivals import best_of
from mark.report.verdict import LAMBDA_ONLY, Option, Role, usual_words


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """A policy on the load that a verdict is about."""

    policy: str
    usd_per_month: float
    #: Share answered in time; None where nobody asked.
    attained: float | None
    #: By how much it misses an objective at most; nothing is lacking from 0 down.
    lacking: float


def options_of(
    found: Iterable[PolicyFigures], *, now: Present, ours: PolicyFigures | None, our_words: str = ""
) -> tuple[Option, ...]:
    """The ways that were replayed, at most one a role. `ours` is MArk; no other policy of ours is a rival."""
    others = [
        one for one in found if one.policy not in OWN_POLICIES and (ours is None or one.policy != ours.policy)
    ]
    by_policy = {one.policy: one for one in others}
    tuned = best_of(
        [one for one in others if one.policy not in (LAMBDA_ONLY, now.policy)],
        lacking=lambda one: one.lacking,
        usd=lambda one: one.usd_per_month,
        name=lambda one: one.policy,
    )
    options = (
        _option(Role.NOW, by_policy.get(now.policy), now.words) if now.policy else _told(now),
        _option(Role.TUNED, tuned),
        _option(Role.LAMBDA, by_policy.get(LAMBDA_ONLY) if now.policy != LAMBDA_ONLY else None),
        _option(Role.MARK, ours, our_words),
    )
    return tuple(option for option in options if option is not None)


def _told(now: Present) -> Option:
    """The bill of what runs now, as the user told it: nobody knows whether that keeps the objective."""
    return Option(
        role=Role.NOW,
        words=now.words,
        policy="",
        usd_per_month=now.usd_per_month,
        attained=None,
        keeps_objective=True,
    )


def _option(role: Role, found: PolicyFigures | None, words: str = "") -> Option | None:
    if found is None:
        return None
    return Option(
        role=role,
        words=words or usual_words(role, found.policy),
        policy=found.policy,
        usd_per_month=found.usd_per_month,
        attained=found.attained,
        keeps_objective=found.lacking <= 0,
    )
