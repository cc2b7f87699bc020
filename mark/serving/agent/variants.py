"""Choice of each batch's variant in an agent: the decisions are those of `mark.dispatch`, as in a replay.

What counts is the slack of the agent's own queue. A request with an accuracy floor lifts its whole batch to the
first variant that keeps it. While one waits, admission and slack count on that variant in place of the fastest one
for every batch ahead: too late at worst, never too early. One that names its variant is answered by that one
alone: a batch ends before the first request that another one would have to answer.

Rules that weigh quality (`dispatch/variants/qos.py`) count in soft deadlines, and what came lately beside what
waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from mark.dispatch.instance.measured import VariantTimes
from mark.dispatch.variants.qos import QosRule
from mark.dispatch.variants.serving import VariantServing, Waiting, answered_together
from mark.dispatch.variants.slackfit import choose_waiting, spare_at
from mark.serving.agent.quality_rule import QualityRule


class AgentVariants:
    """Variants of one agent's model. horizon_s: slack of a request that has just arrived, the objective.

    cv: coefficient of variation of a batch's time, until it was measured.
    """

    def __init__(self, serving: VariantServing, instance_type: str, *, horizon_s: float, cv: float = 0.0) -> None:
        own = serving.on(instance_type)
        self.serving = own
        self.names = own.table.names
        self.max_batch = own.max_batch[instance_type]
        self._fastest = self._lifted = own.fastest(instance_type)
        rows = [row[: self.max_batch] for row in own.table.rows(instance_type)]
        self._full_s = [row[-1] for row in rows]
        self._late = own.late[instance_type]
        self._choices = own.choices(horizon_s)
        self._quality = QualityRule(own, horizon_s) if isinstance(own.dispatch.rule, QosRule) else None
        self.times = VariantTimes(rows, cv)
        self.fastest_times = self.times.of(self._fastest)

    def predicted_s(self, floor: int) -> tuple[float, float]:
        """Seconds of a batch of one, and of a full one, that admission counts on for a request with this floor."""
        number = max(self._lifted, floor)
        times = self.fastest_times if number == self._fastest else self.times.of(number)
        return times.single_s, times.full_batch_s

    def lift(self, floor: int) -> None:
        """A request with this floor waits from now on."""
        self._lifted = max(self._lifted, floor)

    def lift_for(self, floors: Sequence[int]) -> None:
        """Requests with these floors are all that wait."""
        self._lifted = max(self._fastest, *floors) if floors else self._fastest

    def choose(self, waiting: Sequence[Waiting], now: float) -> tuple[int, int]:
        """How many of those that wait, and the variant that answers them.

        waiting: in order. Clients may tighten their deadline, so a request counts as
        urgent as the most urgent one behind it. A machine that is slower than its profile has that much less
        slack.
        """
        if self._quality is not None:
            slower = self.times.of(self._fastest).full_batch_s / self._full_s[self._fastest]
            taken, number = self._quality.choose([one.deadline_at for one in waiting], now, slower)
            taken, number = answered_together(waiting[: min(taken, self.max_batch)], self.serving.floor + number)
            self._quality.note(one.deadline_at for one in waiting[:taken])
            return taken, number
        count = len(waiting)
        urgent = list(accumulate((deadline for deadline, _, _ in reversed(waiting)), min))[::-1]
        full_s = self.times.of(self._lifted).full_batch_s
        slack_s = spare_at(urgent, 0, count, self.max_batch, full_s) - now
        profiled_s = self._full_s[self._lifted]
        taken, number = choose_waiting(
            0,
            slack_s * profiled_s / full_s,
            count,
            self.max_batch,
            self._lifted,
            self._late * profiled_s,
            self._choices,
        )
        return answered_together(waiting[:taken], number)

    def note(self, variant: int, items: int, took_s: float) -> None:
        """Take in how long a batch took, and bring the fastest variant's times up to date with it."""
        self.times.note(variant, items, took_s)
        self.times.of(self._fastest)

    def counted_s(self, profile_s: Sequence[float]) -> tuple[float, ...]:
        """Seconds by batch size of the profile that plans count on, as fast as this machine was measured to be."""
        own, measured = self.serving.table.rows(self.serving.types[0])[self._fastest], self.fastest_times
        return tuple(
            took_s * measured.items_s(min(size, self.max_batch)) / own[min(size, self.max_batch) - 1]
            for size, took_s in enumerate(profile_s, 1)
        )
