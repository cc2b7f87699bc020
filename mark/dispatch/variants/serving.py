"""Serving with variants: the rule that chooses one for each batch, and what predictions count on.

Admission counts on the fastest variant that may answer: what it could answer in time is taken, and answered less
accurately where there is no slack.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mark.dispatch.variants.qos import HARD_S, SOFT_S, QosPool, QosRule, QosTables
from mark.dispatch.variants.slackfit import Choices, Floats, Shared, VariantRule, build_choices, share
from mark.domain.errors import Misconfigured
from mark.domain.models.variants import VariantTable

FIXED_PREFIX = f"{VariantRule.FIXED}:"
CENTRAL_PREFIX = "central:"


class Waiting(NamedTuple):
    """A request that waits: its deadline, the least variant that may answer it, and whether no other one may."""

    deadline_at: float
    floor: int = 0
    is_pinned: bool = False


def answered_together(batch: Sequence[Waiting], number: int) -> tuple[int, int]:
    """Number of a batch, from its first on, that one variant may answer, and which: `number` unless forbidden."""
    pinned: int | None = None
    least = 0
    for place, (_, floor, is_pinned) in enumerate(batch):
        if (pinned is not None and floor > pinned) or (is_pinned and floor < least):
            batch = batch[:place]
            break
        pinned = floor if is_pinned else pinned
        least = max(least, floor)
    return len(batch), max(number, least) if pinned is None else pinned


@dataclass(frozen=True, slots=True)
class VariantDispatch:
    """A rule that chooses variants, and the variant of the rule that has one.

    is_central: requests wait in one queue for all instances, by deadline; else each instance has its own.
    """

    rule: VariantRule | QosRule = VariantRule.SLACKFIT
    variant: str | None = None
    is_central: bool = False

    def __post_init__(self) -> None:
        if self.is_central and isinstance(self.rule, QosRule):
            raise Misconfigured(f"{self.rule} decides for each instance's own queue: leave {CENTRAL_PREFIX} out")

    def __str__(self) -> str:
        rule = self.rule.value if self.variant is None else f"{FIXED_PREFIX}{self.variant}"
        return f"{CENTRAL_PREFIX}{rule}" if self.is_central else rule


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityDeadlines:
    """Deadlines of an answer's quality: all of it until the soft one, none from the hard one on (`qos.py`)."""

    soft_s: float = SOFT_S
    hard_s: float = HARD_S

    def __post_init__(self) -> None:
        if not 0 < self.soft_s < self.hard_s:
            raise Misconfigured(
                f"the hard deadline of an answer's quality ({1000 * self.hard_s:g} ms) must be later than the "
                f"soft one ({1000 * self.soft_s:g} ms): set objective.hard_deadline_ms"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantServing:
    """The variants of one model as they are served.

    floor: number of the least accurate variant that may answer. max_batch: the largest batch by instance type.
    late: by instance type, the factor on expected times at which a choice must still be in time. weights: those of
    the learned rule for `learned_pool`, as text (`qos_policy.network_text`); empty for the others.
    """

    table: VariantTable
    dispatch: VariantDispatch
    floor: int
    max_batch: Mapping[str, int]
    late: Mapping[str, float]
    deadlines: QualityDeadlines = QualityDeadlines()
    weights: str = ""

    def __post_init__(self) -> None:
        name = self.dispatch.variant
        if name is not None and self.table.number(name) < self.floor:
            raise Misconfigured(
                f"{name} answers {self.table.variants[self.table.number(name)].accuracy:.4g} right, below the "
                f"accuracy floor: the first variant above it is {self.table.names[self.floor]}"
            )

    @property
    def types(self) -> tuple[str, ...]:
        """Instance types, in the order of the arrays."""
        return tuple(self.table.latency_s)

    def on(self, instance_type: str) -> VariantServing:
        """The same on one instance type alone. Misconfigured where the variants were not profiled on it."""
        self.table.rows(instance_type)
        own = {instance_type: self.table.latency_s[instance_type]}
        return replace(self, table=replace(self.table, latency_s=own))

    @property
    def best(self) -> int:
        """The most accurate variant that may answer."""
        fixed = self.dispatch.variant
        return len(self.table.variants) - 1 if fixed is None else self.table.number(fixed)

    def request_floor(self, accuracy: float) -> int:
        """The least variant that may answer a request with this floor; Misconfigured where none may."""
        best = self.table.variants[self.best]
        if accuracy > best.accuracy:
            raise Misconfigured(
                f"no variant of {self.table.model} has an accuracy of {accuracy:g}: the most accurate that "
                f"answers, {best.name}, has {best.accuracy:g}"
            )
        return min(self.best, max(self.floor, self.table.floor_number(accuracy)))

    def pinned(self, name: str) -> int:
        """The variant that a request names; Misconfigured where there is none, or where it may not answer."""
        number = self.table.number(name)
        fixed = self.dispatch.variant
        if fixed is not None and name != fixed:
            raise Misconfigured(f"{name} does not answer here: the service answers with {fixed} alone")
        if number < self.floor:
            raise Misconfigured(
                f"{name} is below the service's accuracy floor: the first variant above it is "
                f"{self.table.names[self.floor]}"
            )
        return number

    def latency_s(self, speed: float = 1.0) -> Floats:
        """Expected seconds times `speed`. shape (types, variants, largest batch + 1); column 0 is 0."""
        rows = np.array([self.table.latency_s[name] for name in self.types])
        return np.pad(speed * rows, ((0, 0), (0, 0), (1, 0)))

    def fastest(self, instance_type: str) -> int:
        """The variant of those that may answer that takes least for the largest batch."""
        if self.dispatch.variant is not None:
            return self.table.number(self.dispatch.variant)
        rows, most = self.table.rows(instance_type), self.max_batch[instance_type]
        return min(range(self.floor, len(rows)), key=lambda number: (rows[number][most - 1], number))

    def fastest_s(self, instance_type: str) -> tuple[float, ...]:
        """Seconds of batches of 1, 2, ... on the fastest variant."""
        return tuple(self.table.rows(instance_type)[self.fastest(instance_type)])

    def slowest_s(self, instance_type: str) -> float:
        """Seconds of the largest batch on the most accurate variant that may answer."""
        return self.table.rows(instance_type)[self.best][self.max_batch[instance_type] - 1]

    def least_s(self, instance_type: str) -> float:
        """The slack that the largest batch of the fastest variant needs."""
        return self.late[instance_type] * self.fastest_s(instance_type)[self.max_batch[instance_type] - 1]

    def qos_tables(self) -> QosTables | None:
        """The tables of a rule that weighs quality; None for the others.

        Times are in soft deadlines, as the paper's are in seconds: its soft deadline is one. Each instance takes
        all of its own queue.
        """
        if not isinstance(self.dispatch.rule, QosRule):
            return None
        if self.dispatch.rule is QosRule.LEARNED:
            return self.learned_pool().tables
        pool = self._qos_pool(self.table.max_batch)
        return pool.tables._replace(share=np.ones(len(self.types)), price=pool.price * pool.share)

    def learned_pool(self) -> QosPool:
        """The pool that the policy of an instance with its own queue is learned on: one device that never waits.

        Times are in soft deadlines. Misconfigured where the variants were profiled on several types, or where the
        hard deadline is not as far behind the soft one as in the paper, which is what was learned for.
        """
        if len(self.types) != 1:
            raise Misconfigured(
                f"{QosRule.LEARNED} knows one type of instance, and variants of {self.table.model} have profiles "
                f"on {', '.join(self.types)}: name {QosRule.HEURISTIC}"
            )
        if not math.isclose(self.deadlines.hard_s * SOFT_S, self.deadlines.soft_s * HARD_S):
            raise Misconfigured(
                f"{QosRule.LEARNED} is trained for a hard deadline of {HARD_S / SOFT_S:g} times the soft one: "
                "leave objective.hard_deadline_ms out"
            )
        return replace(self._qos_pool(self.max_batch[self.types[0]]), waits=False, fade_s=HARD_S - SOFT_S)

    def _qos_pool(self, most: int) -> QosPool:
        """One instance of each type, in batches of up to `most`. A batch that a type does not run has no time."""
        sizes = (*(2**power for power in range(most.bit_length()) if 2**power < most), most)
        delay_s = {
            kind: tuple(
                tuple(
                    row[size - 1] / self.deadlines.soft_s if size <= self.max_batch[kind] else math.nan
                    for size in sizes
                )
                for row in self.table.rows(kind)[self.floor :]
            )
            for kind in self.types
        }
        kappa = tuple(variant.accuracy for variant in self.table.variants[self.floor :])
        fade_s = self.deadlines.hard_s / self.deadlines.soft_s - 1
        return QosPool(
            devices=dict.fromkeys(self.types, 1), sizes=sizes, delay_s=delay_s, kappa=kappa, fade_s=fade_s
        )

    def choices(self, horizon_s: float, speed: float = 1.0) -> Choices:
        """The table of decisions, for a request that has `horizon_s` left when it arrives.

        A rule that weighs quality looks nothing up: its table is empty.
        """
        if isinstance(self.dispatch.rule, QosRule):
            nothing = np.zeros((1, 1, 1), np.int64)
            return Choices(nothing, nothing, 1.0)
        fixed = None if self.dispatch.variant is None else self.table.number(self.dispatch.variant)
        late_s = self._late_s(speed)
        return _known_choices(self.dispatch.rule, late_s.tobytes(), late_s.shape, horizon_s, fixed, self.floor)

    def shared(self, choices: Choices, horizon_s: float, speed: float = 1.0) -> Shared:
        """The decisions about a queue that all instances have in common. choices: those of `choices`."""
        assert isinstance(self.dispatch.rule, VariantRule), "rules that weigh quality have a queue an instance"
        late_s = self._late_s(speed)
        expected_s = self.latency_s(speed)[:, :, : late_s.shape[2]]
        return share(self.dispatch.rule, choices, late_s, expected_s, horizon_s=horizon_s, floor=self.floor)

    def _late_s(self, speed: float) -> Floats:
        """Seconds at which a choice must still be in time. shape (types, variants, largest batch + 1)."""
        late = np.array([self.late[name] for name in self.types])[:, None, None]
        times_s: Floats = self.latency_s(speed) * late
        return times_s[:, :, : max(self.max_batch.values()) + 1]


@functools.lru_cache(maxsize=16)
def _known_choices(
    rule: VariantRule, late_s: bytes, shape: tuple[int, ...], horizon_s: float, fixed: int | None, floor: int
) -> Choices:
    """`build_choices`, which takes a second: the replays of one command ask for the same table."""
    times_s = np.frombuffer(late_s).reshape(shape)
    return build_choices(rule, times_s, horizon_s=horizon_s, fixed=fixed, floor=floor)
