"""Service times of a backend by batch size, and the text of the profile file.

Sizes are measured in turn, up and then down again, so that a machine that warms up or slows harms none more than
another. A size is stable once its median is known to TOLERANCE; measuring ends when all are, or with the time.
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
from mark.domain.models.profile import MOST_CV, Evidence, LatencyPoint, Profile, Provenance
from mark.domain.times import P95_SIGMAS
from mark.ports import Backend, InferRequest

WARM_UPS = 3
LEAST_ROUNDS = 5
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


async def measure(
    backend: Backend,
    make_request: Callable[[], InferRequest],
    sizes: Sequence[int],
    *,
    seconds: float,
    progress: Callable[[float, tuple[MeasuredPoint, ...]], None] | None = None,
) -> tuple[MeasuredPoint, ...]:
    """Points by rising size, within some `seconds` (each size is called LEAST_ROUNDS times whatever that takes).

    The backend has been started. progress: called after each round with the share of the time that is used and
    what is known by then. Errors: Misconfigured where the backend answers a request with an error.
    """

    def tell(share: float, points: Mapping[str, tuple[MeasuredPoint, ...]]) -> None:
        if progress is not None:
            progress(share, points[""])

    return (await measure_variants({"": backend}, make_request, sizes, seconds=seconds, progress=tell))[""]


async def measure_variants(
    backends: Mapping[str, Backend],
    make_request: Callable[[], InferRequest],
    sizes: Sequence[int],
    *,
    seconds: float,
    progress: Callable[[float, Mapping[str, tuple[MeasuredPoint, ...]]], None],
) -> Mapping[str, tuple[MeasuredPoint, ...]]:
    """The points of each variant, as `measure` has them; all sizes of all variants are measured in turn."""
    ordered = sorted(set(sizes))
    if not ordered or ordered[0] < 1:
        raise Misconfigured(f"batch sizes must be 1 or more, not {list(sizes)}")
    cells = [(name, size) for name in backends for size in ordered]
    taken: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
    for name, size in cells:
        for _ in range(WARM_UPS):
            await _call(backends[name], make_request, size)
    began = time.perf_counter()
    rounds = 0
    while True:
        for name, size in cells if rounds % 2 == 0 else reversed(cells):
            taken[name, size].append(await _call(backends[name], make_request, size))
        rounds += 1
        used = (time.perf_counter() - began) / seconds
        points = {name: tuple(_point(size, taken[name, size]) for size in ordered) for name in backends}
        progress(min(1.0, used), points)
        stable = rounds >= STABLE_ROUNDS and all(point.stable for known in points.values() for point in known)
        if stable or (rounds >= LEAST_ROUNDS and used >= 1.0):
            return points


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
    doubt = tuple(point.batch for point in points if not point.stable)
    source = (
        f"{command}: median of {min(point.calls for point in points)} calls a size or more, "
        f"95 % of them at most {spread:.2f} times as long"
    )
    if doubt:
        source += f"; not stable to {TOLERANCE:.0%} when time was up: {', '.join(map(str, doubt))}"
    return Profile(
        model=model,
        instance_type=instance_type,
        points=tuple(LatencyPoint(batch=point.batch, latency_s=point.median_s) for point in points),
        provenance=Provenance(
            evidence=evidence, source=source, date=date, machine=machine, unstable_batches=doubt
        ),
        variant=variant,
        cv=round(min(MOST_CV, median(_cv(point) for point in points)), 4),
    )


def _cv(point: MeasuredPoint) -> float:
    """Coefficient of variation of a lognormal time with that median and 95 % point: one hiccup says little."""
    sigma = math.log(max(1.0, point.p95_s / point.median_s)) / P95_SIGMAS
    return math.sqrt(math.expm1(sigma * sigma))


def profile_text(profiles: Sequence[Profile]) -> str:
    """The text of a profile file."""
    return format_profiles(profiles)


async def _call(backend: Backend, make_request: Callable[[], InferRequest], size: int) -> float:
    batch = [make_request() for _ in range(size)]
    began = time.perf_counter()
    replies = await backend.infer(batch)
    took_s = time.perf_counter() - began
    for reply in replies:
        if reply.status != 200:
            text = reply.body[:200].decode("utf-8", "replace")
            raise Misconfigured(f"the backend answered the example with status {reply.status}: {text}")
    return took_s


def _point(size: int, values: Sequence[float]) -> MeasuredPoint:
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
    )
