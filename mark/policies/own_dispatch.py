"""A user's own dispatch rule as the decision of a central queue: asked in time, and what it answers checked."""

from __future__ import annotations

from collections import Counter
from typing import cast

import numpy as np

from mark.dispatch.central.decisions import (
    COMMIT,
    HELD,
    IDLE,
    NONE,
    STARTED,
    WAITING,
    Line,
    Pool,
    Rules,
    Scratch,
    close_ranks,
    put_too_late_aside,
    start,
    start_held,
)
from mark.dispatch.central.own_rule import DispatchRequest, OwnRule, Pair, checked_pairs, first_come
from mark.domain.errors import Misconfigured, failure_words
from mark.plugins.deadline import DEADLINE_S, Punctual
from mark.plugins.load import make_dispatch_rule


class OwnDecide:
    """`central.decisions.decide` by the user's own rule of that name. Misconfigured where it cannot be made.

    Where it fails or is late, requests start first come, first served, and `failures` counts it; at its very first
    decision that is Misconfigured.
    """

    def __init__(self, name: str, deadline_s: float = DEADLINE_S) -> None:
        self._name, self._rule = name, cast("OwnRule", make_dispatch_rule(name))
        self._punctual = Punctual("decision", name=name, deadline_s=deadline_s)
        self._has_decided = False
        self.failures: Counter[str] = Counter()

    def __call__(self, now: float, pool: Pool, rules: Rules, line: Line, scratch: Scratch) -> None:  # noqa: ARG002
        """Start what the rule says."""
        counts = line.counts
        counts[STARTED] = 0
        if counts[IDLE] and counts[WAITING] and rules.too_late != COMMIT:
            put_too_late_aside(now, pool, rules, line)
        if counts[IDLE] and counts[WAITING]:
            self._start_pairs(now, pool, rules, line)
        if counts[IDLE] and counts[HELD]:
            start_held(now, pool, rules, line)

    def _start_pairs(self, now: float, pool: Pool, rules: Rules, line: Line) -> None:
        places = line.places["waiting"]
        slots = places[: line.counts[WAITING]].copy()
        asked, machines, latency_ms = line.queries[slots], line.machines, pool.timing.latency_ms
        waited_ms = now - asked["arrived_ms"]
        request = DispatchRequest(
            waited_ms=waited_ms,
            left_ms=rules.slo_ms - waited_ms,
            sizes=asked["row"] + 1,
            free_in_ms=np.where(machines["idle"] == 1, 0.0, np.maximum(machines["free_ms"] - now, 0.0)),
            takes_ms=latency_ms[machines["kind"][None, :], asked["row"][:, None]],
        )
        for query, machine in self._pairs(request):
            if machines["idle"][machine]:
                start(now, int(slots[query]), machine, latency_ms, line)
                places[query] = NONE
        close_ranks(line)

    def _pairs(self, request: DispatchRequest) -> list[Pair]:
        try:
            found = checked_pairs(self._punctual.answer(lambda: list(self._rule.assign(request))), request)
        except Exception as error:
            words = failure_words(error)
            if not self._has_decided:
                line = f"dispatch rule {self._name!r} failed at its first decision: {words}"
                raise Misconfigured(line) from error
            self.failures[words] += 1
            return first_come(request)
        self._has_decided = True
        return found
