"""A user's own rule of a central queue: asked in time, and what it answers checked before a request starts.

It stands where Kairos' matching does, over the same waiting queries: what is too late is held, shown or handed on
as under Kairos. A decision that fails is Kairos' own; a rule that was late is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    put_too_late_aside,
    start,
    start_held,
)
from mark.domain.errors import Misconfigured, failure_words
from mark.plugins.deadline import DEADLINE_S, Punctual
from mark.plugins.load import make_rule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Waiting(NamedTuple):
    """Requests that wait, in order of arrival, and the instances; times are ms from now."""

    #: shape (requests,): since it came
    waited_ms: Floats
    #: shape (requests,): until its objective
    left_ms: Floats
    #: shape (requests,): items
    size: Ints
    #: shape (instances,): true where it serves nothing
    is_idle: NDArray[np.bool_]
    #: shape (instances,): until it is idle, as predicted; 0 also where it takes longer than that
    idle_in_ms: Floats
    #: shape (requests, instances): of the request on the instance, as predicted
    latency_ms: Floats


class OwnRule(Protocol):
    """Which request starts on which instance. A user's own class needs no more than this."""

    def assign(self, waiting: Waiting) -> ArrayLike:
        """The instance of each request, -1 for none. shape (requests,), whole numbers, none of 0 and up twice.

        It is asked where something waits and an instance is idle. A request whose instance is busy waits on.
        """
        ...


class OwnDecide:
    """Decides as the user's own rule of that name does. Misconfigured where it cannot be made.

    fallback: decides where it fails. The very first decision that fails is Misconfigured. failures: how often, by
    what went wrong.
    """

    def __init__(
        self,
        name: str,
        fallback: Callable[[float, Pool, Rules, Line, Scratch], None],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._name, self._rule, self._fallback = name, cast("OwnRule", make_rule(name)), fallback
        self._punctual = Punctual("decision", name=name, deadline_s=deadline_s)
        self._has_decided = self._was_late = False
        self.failures: dict[str, int] = {}

    def __call__(self, now: float, pool: Pool, rules: Rules, line: Line, scratch: Scratch) -> None:
        """As `decisions.decide`."""
        counts = line.counts
        counts[STARTED] = 0
        if not counts[IDLE]:
            return
        if counts[WAITING]:
            if rules.too_late != COMMIT:
                put_too_late_aside(now, pool, rules, line)
            if counts[WAITING] and not self._start_assigned(now, pool, rules, line):
                self._fallback(now, pool, rules, line, scratch)
                return
        if counts[HELD] and counts[IDLE]:
            start_held(now, pool, rules, line)

    def _start_assigned(self, now: float, pool: Pool, rules: Rules, line: Line) -> bool:
        """Start what the rule assigned to an idle instance; False where it failed, and nothing starts."""
        if self._was_late:
            return False
        count = line.counts[WAITING]
        places, machines = line.places["waiting"], line.machines
        queries = places[:count].copy()
        try:
            waiting = _seen(now, queries, pool, rules, line)
            chosen = checked(self._punctual.answer(lambda: self._rule.assign(waiting)), count, machines.size)
        except Exception as error:
            words = failure_words(error)
            if not self._has_decided:
                raise Misconfigured(
                    f"dispatch rule {self._name!r} failed at its first decision: {words}"
                ) from error
            self._was_late = isinstance(error, TimeoutError)
            text = f"decision-failed: {words}" + ("; it is not asked again" if self._was_late else "")
            self.failures[text] = self.failures.get(text, 0) + 1
            return False
        self._has_decided = True
        starts = (chosen != NONE) & (machines["idle"][chosen] == 1)
        for query, machine in zip(queries[starts].tolist(), chosen[starts].tolist(), strict=True):
            start(now, query, machine, pool.timing.latency_ms, line)
        kept = queries[~starts]
        places[: kept.size] = kept
        line.counts[WAITING] = kept.size
        return True

    def close(self) -> None:
        """Let its thread end."""
        self._punctual.close()


def _seen(now: float, queries: Ints, pool: Pool, rules: Rules, line: Line) -> Waiting:
    machines, waited_ms, row = (
        line.machines,
        now - line.queries["arrived_ms"][queries],
        line.queries["row"][queries],
    )
    is_idle = machines["idle"] == 1
    return Waiting(
        waited_ms=waited_ms,
        left_ms=rules.slo_ms - waited_ms,
        size=row + 1,
        is_idle=is_idle,
        idle_in_ms=np.where(is_idle, 0.0, np.maximum(0.0, machines["free_ms"] - now)),
        latency_ms=pool.timing.latency_ms[machines["kind"]][:, row].T,
    )


def checked(answer: object, requests: int, instances: int) -> Ints:
    """The instance of each request. shape (requests,). TypeError or ValueError where `answer` is nonsense."""
    chosen = np.asarray(answer)
    if chosen.shape != (requests,) or not np.issubdtype(chosen.dtype, np.integer):
        raise TypeError(f"it returned {chosen.dtype} of shape {chosen.shape}, not {requests} whole numbers")
    strange = chosen[(chosen < NONE) | (chosen >= instances)]
    if strange.size:
        raise ValueError(f"it returned {strange[0]}, which is not an instance: they are 0 to {instances - 1}")
    taken = chosen[chosen != NONE]
    if np.unique(taken).size < taken.size:
        raise ValueError("it gave one instance to several requests")
    return chosen
