"""Rules that choose batch and variant by the slack of the most urgent request, as tables that are built once.

SlackFit (SuperServe, NSDI 2025, section 4.2), a rule of ours after it, and the rules it is compared with there.
Who serves looks up one cell (`choose`): by type of instance, by slack, and by how many wait. All times are s.

SlackFit takes, of the pairs of batch and variant whose latency is closest below the slack, the one of the
largest batch. What counts as close is a bucket. The published buckets are fixed and evenly spaced, so that slack
is rounded down to a bound, and one width has to serve every load: narrow buckets give small batches where the
queue is long, and lose throughput; wide ones give large batches where it is short, and lose accuracy. Ours end
at the slack itself, their width follows the queue, and where fewer wait than the pair's batch a more accurate
variant answers them in the same time (docs/papers.md has both measured).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLACKS = 1024
"""Steps of a table's slack: with an objective of 36 ms each is 0.04 ms."""
BUCKETS = 6
"""Latency buckets of SlackFit, whose paper does not state their number.

Of 6, 8, 12, 24 and 64 the best in accuracy times attainment, on bursty loads of other rates and seeds than those
that the studies judge.
"""
SHORT_QUEUE = 1.5
"""A queue is short up to so many of the largest batches: the next workers that come free take what is left."""
NARROW, WIDE = 0.03, 0.3
"""Width of our bucket as a share of the slack, before a short queue and before a long one.

Chosen, like SHORT_QUEUE, on bursty loads of other rates and seeds than those that the studies judge.
"""


TURN = 0.5
"""Share of the time-out after which who is late already waits for nobody."""


class VariantRule(StrEnum):
    """Rules that choose a batch and a variant.

    SLACKFIT is ours, whose buckets end at the slack; PUBLISHED is SlackFit. MAXBATCH takes as many as any variant
    answers in time, then the most accurate variant that is in time with them; MAXACC the most accurate variant
    that is in time with one, then as many as it can. FIXED answers with one variant, as many as are in time
    (Clipper+; with the fastest variant INFaaS without an accuracy floor). FULL answers with one variant, as many
    as wait: whoever has no time left for such a batch is to leave before it (`full_needs_s`).
    """

    SLACKFIT = "slackfit"
    PUBLISHED = "slackfit-published"
    MAXBATCH = "maxbatch"
    MAXACC = "maxacc"
    FIXED = "fixed"
    FULL = "fixed-full"


OF_ONE = (VariantRule.FIXED, VariantRule.FULL)
"""Rules that answer with one variant."""
FREE = tuple(rule for rule in VariantRule if rule not in OF_ONE)


class Choices(NamedTuple):
    """A table of decisions: batch and variant by type, slack (in steps of `step_s`, rounded down) and queue.

    A batch of 0 waits; without slack a table must not, for nothing would end it.
    """

    #: shape (types, slacks, columns), by queue from 0 on; a queue longer than the last column counts as that
    batch: Ints
    variant: Ints
    step_s: float


def choose(kind: int, slack_s: float, queued: int, choices: Choices) -> tuple[int, int]:
    """Batch and variant for an instance of this type, with so many waiting."""
    bucket = min(max(0, int(slack_s / choices.step_s + 1e-9)), choices.batch.shape[1] - 1)
    column = min(queued, choices.batch.shape[2] - 1)
    return choices.batch[kind, bucket, column], choices.variant[kind, bucket, column]


class Shared(NamedTuple):
    """Decisions about a queue that all instances have in common. `choices` alone, where nothing else is weighed.

    Ours weighs what else there is. What is left of the queue is drained by all instances in full batches of the
    fastest variant: the most urgent leaves them that time. If no other instance is idle, whoever is not taken
    waits: so all are taken that can be (`alone`). If none will be idle soon, whoever comes next waits for this
    one: it is busy no longer than leaves them time for such a batch. And where there is no time for a full batch
    of the fastest variant, that is what is taken: smaller ones would only make the queue longer.
    """

    choices: Choices
    alone: Choices
    #: shape (types,), the variant that takes least for its largest batch
    fastest: Ints
    #: shape (types, largest batch + 1), its seconds by items, as choices plan with them and as they are expected
    fastest_s: Floats
    expected_s: Floats
    horizon_s: float
    weighs: bool


def plainly(choices: Choices) -> Shared:
    """These decisions, with nothing else weighed."""
    nothing = np.zeros((1, 1))
    return Shared(choices, choices, np.zeros(1, np.int64), nothing, nothing, 0.0, False)


def choose_shared(
    kind: int, slack_s: float, queued: int, instances: int, next_idle_s: float, shared: Shared
) -> tuple[int, int]:
    """Batch and variant for an idle instance, by the slack of the most urgent of so many that wait.

    instances: how many share the queue. next_idle_s: until another one is idle, 0 where one is, inf where there is
    none.
    """
    if not shared.weighs:
        return choose(kind, slack_s, queued, shared.choices)
    most = shared.fastest_s.shape[1] - 1
    full_s = shared.expected_s[kind, most]
    slack_s -= _drained_s(kind, queued, instances, shared)
    if next_idle_s > shared.horizon_s - full_s:
        slack_s = min(slack_s, shared.horizon_s - full_s)
    if slack_s < shared.fastest_s[kind, min(queued, most)]:
        return most, shared.fastest[kind]
    return choose(kind, slack_s, queued, shared.choices if next_idle_s <= 0.0 else shared.alone)


def held_go_first(
    kind: int, slack_s: float, queued: int, held: int, waited: float, instances: int, shared: Shared
) -> bool:
    """True where an idle instance is to answer those that are late already before the most urgent.

    They go in a batch of the fastest variant, while the most urgent still has the time for one after it; and, once
    the oldest has waited for half of the time-out, whatever that costs. Busy instances are seldom idle: without a
    turn, what is late would wait until nobody waits for it.

    waited: by the oldest of them, as a share of the time-out.
    """
    if held == 0 or queued == 0 or waited >= TURN:
        return held > 0
    most = shared.fastest_s.shape[1] - 1
    spare_s = slack_s - _drained_s(kind, queued, instances, shared) - shared.fastest_s[kind, min(held, most)]
    return bool(spare_s >= shared.fastest_s[kind, min(queued, most)])


def _drained_s(kind: int, queued: int, instances: int, shared: Shared) -> float:
    """Seconds in which all instances drain what is behind a full batch; as many batches' times even out."""
    most = shared.fastest_s.shape[1] - 1
    return float(shared.expected_s[kind, most] * max(0, queued - most) / (most * instances))


def needed_s(kind: int, queued: int, shared: Shared) -> float:
    """The least that an instance takes to answer the most urgent, with as many others as it should take along."""
    items = min(queued, shared.expected_s.shape[1] - 1) if shared.weighs else 1
    return float(shared.expected_s[kind, items])


def choose_waiting(
    kind: int, slack_s: float, waiting: int, max_batch: int, fastest: int, least_s: float, choices: Choices
) -> tuple[int, int]:
    """Batch and variant for an instance that has a queue of its own.

    fastest: the variant that admission counts on; least_s: the slack that its largest batch needs. With less there
    is no time to spare, and smaller batches would only take more of it.
    """
    if slack_s < least_s:
        return int(max_batch), int(fastest)
    batch, variant = choose(kind, slack_s, waiting, choices)
    return min(int(batch), int(max_batch)), int(variant)


def spare_at(
    queue: Sequence[float] | Floats, head: int, waiting: int, max_batch: int, full_batch_s: float
) -> float:
    """The least instant of those that wait, less what the fastest variant takes before each.

    queue: a ring of instants that never fall, deadlines or arrivals, of which `waiting` from `head` on count. A
    batch may leave all but one to those behind it, each of which takes no longer than the fastest variant's
    largest. So whatever was admitted as in time stays so, however accurately the batch in hand is answered.
    """
    batches, place = 0, 0
    spare = np.inf
    while place < waiting:
        instant = queue[(head + place) % len(queue)]
        spare = min(spare, instant - batches * full_batch_s)
        place = 1 + batches * max_batch
        batches += 1
    return spare


def build_choices(
    rule: VariantRule,
    latency_s: Floats,
    *,
    horizon_s: float,
    fixed: int | None = None,
    floor: int = 0,
    buckets: int = BUCKETS,
    slacks: int = SLACKS,
) -> Choices:
    """The table of a rule.

    latency_s: shape (types, variants, largest batch + 1), seconds of a batch by type, variant (the least accurate
    first) and items; column 0 is unused. horizon_s: the largest slack, that of a request that has just arrived.
    fixed: the variant of FIXED and FULL. floor: the first variant that may answer.
    """
    types, variants, batches = latency_s.shape
    columns = batches
    if rule is VariantRule.SLACKFIT:
        columns = int(SHORT_QUEUE * (batches - 1)) + 2
    if not 0 <= floor < variants:
        raise Misconfigured(f"a floor is one of {variants} variants, not number {floor}")
    if (fixed is None) == (rule in OF_ONE):
        raise Misconfigured("the rule that answers with one variant needs it, and no other one does")
    step_s = horizon_s / slacks
    batch = np.zeros((types, slacks + 1, columns), np.int64)
    variant = np.full((types, slacks + 1, columns), floor, np.int64)
    allowed = [fixed] if fixed is not None else list(range(floor, variants))
    for kind in range(types):
        times_s = latency_s[kind][allowed]
        bounds_s = _bucket_bounds(times_s, buckets) if rule is VariantRule.PUBLISHED else None
        most = full_batch(times_s[0], horizon_s)
        for slack in range(slacks + 1):
            for queued in range(1, columns):
                taken, number = min(queued, most), 0
                if rule is not VariantRule.FULL:
                    taken, number = _pair(rule, times_s[:, 1:], bounds_s, slack * step_s, queued)
                batch[kind, slack, queued], variant[kind, slack, queued] = taken, allowed[number]
    return Choices(batch, variant, step_s)


def share(
    rule: VariantRule,
    choices: Choices,
    latency_s: Floats,
    expected_s: Floats,
    *,
    horizon_s: float,
    floor: int = 0,
) -> Shared:
    """The decisions of a rule about one queue. choices, latency_s, horizon_s, floor: as in `build_choices`.

    expected_s: as `latency_s`, without what a choice allows for noise.
    """
    weighs = rule is VariantRule.SLACKFIT
    alone, fastest = choices, floor + latency_s[:, floor:, -1].argmin(axis=1)
    if weighs:
        slacks = choices.batch.shape[1] - 1
        alone = build_choices(VariantRule.MAXBATCH, latency_s, horizon_s=horizon_s, floor=floor, slacks=slacks)
    elif rule in OF_ONE:
        fastest = choices.variant[:, 0, 1]
    planned_s, mean_s = (
        np.ascontiguousarray(np.take_along_axis(times_s, fastest[:, None, None], axis=1)[:, 0])
        for times_s in (latency_s, expected_s)
    )
    return Shared(choices, alone, fastest, planned_s, mean_s, horizon_s, weighs)


def full_batch(row_s: Floats, horizon_s: float) -> int:
    """The largest batch of FULL: with more, not even a request that has just arrived would be in time.

    row_s: shape (largest batch + 1,), seconds by items; place 0 is unused.
    """
    in_time = np.flatnonzero(row_s[1:] <= horizon_s)
    return int(in_time[-1]) + 1 if in_time.size else 1


def full_needs_s(row_s: Floats, horizon_s: float) -> Floats:
    """Seconds that the most urgent needs to be answered in a full batch, by how many wait; the last for more."""
    return row_s[: full_batch(row_s, horizon_s) + 1]


def _bucket_bounds(times_s: Floats, buckets: int) -> Floats:
    """Upper bounds of evenly spaced buckets over all pairs' latencies."""
    return np.linspace(times_s[:, 1:].min(), times_s[:, 1:].max(), buckets + 1)[1:]


def _pair(
    rule: VariantRule, times_s: Floats, bounds_s: Floats | None, slack_s: float, queued: int
) -> tuple[int, int]:
    """Batch and variant of one cell. times_s: shape (variants, batches), batch 1 first."""
    if bounds_s is not None:
        place = max(0, int((bounds_s <= slack_s).sum()) - 1)  # below all buckets: the lowest drains the queue
        taken, number = _bucket_pair(times_s, bounds_s[place - 1] if place else 0.0, bounds_s[place])
        return min(taken, queued), number
    in_time = times_s[:, :queued] <= slack_s
    if not in_time.any():  # late already: whatever is answered soonest, as many as come along for nothing
        number = int(times_s[:, 0].argmin())
        return _as_many(times_s[number, :queued] <= times_s[number, 0]), number
    if rule is VariantRule.SLACKFIT:
        width = NARROW if queued <= SHORT_QUEUE * times_s.shape[1] else WIDE
        taken, number = _bucket_pair(times_s, slack_s * (1 - width), slack_s)
        if queued < taken:  # the most accurate variant that takes no longer: it costs nothing
            number = int(np.flatnonzero(times_s[:, queued - 1] <= times_s[number, taken - 1])[-1])
        return min(taken, queued), number
    if rule is VariantRule.MAXBATCH:
        taken = int(np.flatnonzero(in_time.any(axis=0))[-1]) + 1
        return taken, int(np.flatnonzero(in_time[:, taken - 1])[-1])
    number = int(np.flatnonzero(in_time[:, 0])[-1])
    return _as_many(in_time[number]), number


def _bucket_pair(times_s: Floats, above_s: float, bound_s: float) -> tuple[int, int]:
    """The pair of the largest batch in a bucket (above, bound]; of equal batches the most accurate.

    SlackFit does not say which of equal batches it takes.
    """
    inside = (times_s > above_s) & (times_s <= bound_s)
    if not inside.any():  # an empty bucket: what fits the slack next below it
        inside = times_s == times_s[times_s <= bound_s].max()
    taken = int(np.flatnonzero(inside.any(axis=0))[-1]) + 1
    return taken, int(np.flatnonzero(inside[:, taken - 1])[-1])


def _as_many(in_time: NDArray[np.bool_]) -> int:
    """The largest batch that is in time."""
    return int(np.flatnonzero(in_time)[-1]) + 1
