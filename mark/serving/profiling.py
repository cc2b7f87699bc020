"""Service times of a backend by batch size, and the text of the profile file.

Sizes are measured in turn, up and then down again, so that a machine that warms up or slows harms none more than
another. A size is stable once its median is known to TOLERANCE; measuring ends when all are, or with the time.
What the time has no room for is left out: a slow model gets fewer calls and smaller batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from mark.catalog.schema import format_profiles
from mark.domain.errors import Misconfigured
from mark.domain.figures import share_words
from mark.domain.models.profile import MOST_CV, Evidence, LatencyPoint, Profile, Provenance
from mark.domain.offerings.times import P95_SIGMAS
from mark.ports import Backend, InferRequest

WARM_UPS = 3
WARM_SHARE = 0.3
"""Of the time, after which no size is warmed up more than once."""
LEAST_ROUNDS = 5
"""From so many calls on their spread says something."""
FAILURES = 2
"""So many calls may fail, or as many as succeed: beyond that the model is broken, and not only unlucky."""
STABLE_ROUNDS = 50
"""Fewer calls may look stable by chance."""
TOLERANCE = 0.02
"""Half the width of the median's 95 % interval, as a share of the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """A batch of `batch` takes `median_s`, 95 % of them at most `p95_s`; `stable` says if that was long enough."""

    batch: int
    median_s: float
    p95_s: float
    calls: int
    stable: bool
    #: Calls that failed, which are in no figure.
    failed: int = 0


class _Timing:
    """Calls of one size of one variant."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken: list[float] = []
        self.failed = 0

    async def call(self, backend: Backend, make_request: Callable[[], InferRequest]) -> float | None:
        """Seconds of a call; None where it failed. Misconfigured where too many did."""
        batch = [make_request() for _ in range(self.size)]
        began = time.perf_counter()
        replies = await backend.infer(batch)
        took_s = time.perf_counter() - began
        wrong = next((reply for reply in replies if reply.status != 200), None)
        if wrong is None:
            return took_s
        self.failed += 1
        if self.failed > max(FAILURES, len(self.taken)):
            text = wrong.body[:200].decode("utf-8", "replace")
            raise Misconfigured(f"the backend answered the example with status {wrong.status}: {text}")
        return None

    async def take(self, backend: Backend, make_request: Callable[[], InferRequest]) -> None:
        """Call until it has one more time."""
        took_s = None
        while took_s is None:
            took_s = await self.call(backend, make_request)
        self.taken.append(took_s)

    def point(self) -> MeasuredPoint:
        """The point as it is known by now."""
        return _point(self.size, self.taken, self.failed)


async def measure(
    backend: Backend,
    make_request: Callable[[], InferRequest],
    sizes: Sequence[int],
    *,
    seconds: float,
    progress: Callable[[float, tuple[MeasuredPoint, ...]], None] | None = None,
    longest_s: float = math.inf,
    every_size: bool = False,
) -> tuple[MeasuredPoint, ...]:
    """Points by rising size, within some `seconds`: of the smallest size, and of those that they have room for.

    The backend has been started. longest_s: no size is measured that takes longer, but for the smallest.
    every_size: the time leaves no size out, and may be exceeded. progress: called after each round with the share
    of the time that is used and what is known by then. Errors: Misconfigured where the backend keeps failing.
    """

    def tell(share: float, points: Mapping[str, tuple[MeasuredPoint, ...]]) -> None:
        if progress is not None:
            progress(share, points[""])

    found = await measure_variants(
        {"": backend},
        make_request,
        sizes,
        seconds=seconds,
        progress=tell,
        longest_s=longest_s,
        every_size=every_size,
    )
    return found[""]


async def measure_variants(
    backends: Mapping[str, Backend],
    make_request: Callable[[], InferRequest],
    sizes: Sequence[int],
    *,
    seconds: float,
    progress: Callable[[float, Mapping[str, tuple[MeasuredPoint, ...]]], None],
    longest_s: float = math.inf,
    every_size: bool = False,
) -> Mapping[str, tuple[MeasuredPoint, ...]]:
    """The points of each variant, as `measure` has them; all sizes of all variants are measured in turn."""
    ordered = sorted(set(sizes))
    if not ordered or ordered[0] < 1:
        raise Misconfigured(f"batch sizes must be 1 or more, not {list(sizes)}")
    began = time.perf_counter()

    def used() -> float:
        return (time.perf_counter() - began) / seconds

    cells: list[tuple[str, _Timing]] = []
    round_s = last_s = 0.0
    for place, size in enumerate(ordered):
        # a batch takes at most as much longer as it is larger; it is called here and in a round at least
        expected_s = last_s * size / ordered[place - 1] if place else 0.0
        if place and not every_size and used() + (round_s + 2 * expected_s) / seconds > 1.0:
            break
        timings = [(name, _Timing(size)) for name in backends]
        last_s = await _warmed_up(backends, timings, make_request, used)
        if place and last_s > longest_s * len(backends) and used() < 1.0:  # its first call may have been slow
            last_s = await _warmed_up(backends, timings, make_request, used)
        if place and last_s > longest_s * len(backends):
            break
        round_s += last_s
        cells += timings
    cells = [cell for name in backends for cell in cells if cell[0] == name]
    rounds = 0
    while True:
        ordered_cells = cells if rounds % 2 == 0 else cells[::-1]
        if len(backends) > 1:  # the sums of many variants between two rounds have cooled the caches
            first, untimed = ordered_cells[0]
            await untimed.call(backends[first], make_request)
        for name, timing in ordered_cells:
            await timing.take(backends[name], make_request)
        rounds += 1
        points = {name: tuple(timing.point() for owner, timing in cells if owner == name) for name in backends}
        progress(min(1.0, used()), points)
        stable = rounds >= STABLE_ROUNDS and all(point.stable for known in points.values() for point in known)
        if stable or used() >= 1.0:
            return points


async def _warmed_up(
    backends: Mapping[str, Backend],
    timings: Sequence[tuple[str, _Timing]],
    make_request: Callable[[], InferRequest],
    used: Callable[[], float],
) -> float:
    """Call each variant with a size until it is warm; seconds of the last call of them all."""
    total_s = 0.0
    for name, timing in timings:
        took_s = 0.0
        for number in range(WARM_UPS):
            if number and used() > WARM_SHARE:
                break
            took_s = await timing.call(backends[name], make_request) or took_s
        total_s += took_s
    return total_s


def profile_of(
    points: Sequence[MeasuredPoint],
    *,
    model: str,
    instance_type: str,
    machine: str,
    date: str,
    evidence: Evidence = Evidence.MEASURED,
    variant: str = "base",
    command: str = "mark profile",
) -> Profile:
    """The measured medians and their cv as a profile of that instance type, with who measured and how.

    evidence: measured where `machine` is of that type, else stand-in.
    """
    spread = max(point.p95_s / point.median_s for point in points)
    known = [point for point in points if point.calls >= LEAST_ROUNDS]
    doubt = tuple(point.batch for point in points if not point.stable)
    source = (
        f"{command}: median of {min(point.calls for point in points)} calls a size or more, "
        f"95 % of them at most {spread:.2f} times as long"
    )
    failed = sum(point.failed for point in points)
    if failed:
        source += f"; {failed} calls failed"
    if doubt:
        source += f"; not stable to {share_words(TOLERANCE)} when time was up: {', '.join(map(str, doubt))}"
    return Profile(
        model=model,
        instance_type=instance_type,
        points=tuple(LatencyPoint(batch=point.batch, latency_s=point.median_s) for point in points),
        provenance=Provenance(
            evidence=evidence, source=source, date=date, machine=machine, unstable_batches=doubt
        ),
        variant=variant,
        cv=round(min(MOST_CV, median(map(_cv, known))), 4) if known else None,
    )


def _cv(point: MeasuredPoint) -> float:
    """Coefficient of variation of a lognormal time with that median and 95 % point: one hiccup says little."""
    sigma = math.log(max(1.0, point.p95_s / point.median_s)) / P95_SIGMAS
    return math.sqrt(math.expm1(sigma * sigma))


def profile_text(profiles: Sequence[Profile]) -> str:
    """The text of a profile file."""
    return format_profiles(profiles)


def _point(size: int, values: Sequence[float], failed: int = 0) -> MeasuredPoint:
    ordered = np.sort(values)
    # 95 % interval of a median by ranks: half +- 0.98 roots of the count.
    reach = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - reach))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach))
    median_s = float(np.median(ordered))
    return MeasuredPoint(
        batch=size,
        median_s=median_s,
        p95_s=float(np.quantile(ordered, 0.95)),
        calls=len(ordered),
        stable=bool(ordered[high] - ordered[low] <= 2 * TOLERANCE * median_s),
        failed=failed,
    )
