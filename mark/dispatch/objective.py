"""Attainment of the latency objective: one rule for the monitor, the engine and the agents."""

from __future__ import annotations


def missed_target(missed: int, requests: int, target: float) -> bool:
    """True where more than 1 - target of the requests were late or shed."""
    return missed > (1.0 - target) * requests
