"""Attainment of the latency objective: one rule for monitor, engine, agents and reports."""

from __future__ import annotations

import math


def missed_target(missed: int, requests: int, target: float) -> bool:
    """True where more than 1 - target of the requests were late or shed; one alone is not, unless none may be."""
    return missed > (1.0 - target) * requests and (missed > 1 or target == 1.0)


def is_window_full(requests: int, elapsed_s: float, most_requests: int, most_s: float) -> bool:
    """True once the SLO monitor's window holds M requests, or any at all after so many seconds."""
    return requests > 0 and (requests >= most_requests or elapsed_s >= most_s)


def attainment(missed: float, finished: float) -> float | None:
    """Share of the finished requests that was answered in time; None where none finished."""
    return 1.0 - missed / finished if finished else None


def burn_rate(missed: int, finished: int, target: float) -> float | None:
    """Misses over those that `target` allows: above 1 the objective is not kept. None where none finished."""
    if not finished:
        return None
    if target == 1.0:
        return math.inf if missed else 0.0
    return missed / finished / (1.0 - target)
