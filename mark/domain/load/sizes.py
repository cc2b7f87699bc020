"""Sizes of requests in items: a probability for each size, from a formula or from a table.

A real-valued draw is rounded up to whole items and clipped: what lies beyond an end counts at that end.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist

from mark.domain.errors import Misconfigured

LARGEST_SIZE = 1_000_000
"""No request has more items: a size beyond it is a slip of the pen."""
TOTAL_TOLERANCE = 1e-3
"""Probabilities of a table may miss 1 by so much, because tables are rounded."""
KAIROS = "kairos"
"""The mix of sizes in Kairos' artifact, which replays DeepRecSys' trace of production queries."""
FORMS = "lognormal:MU,SIGMA,MIN,MAX, normal:MU,SIGMA,MIN,MAX, constant:N, kairos, or a CSV `size,probability`"
_STANDARD = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDistribution:
    """Sizes in items, rising, each with its probability above 0; these sum to 1."""

    name: str
    sizes: tuple[int, ...]
    probabilities: tuple[float, ...]

    @property
    def largest(self) -> int:
        """The largest size that can be drawn."""
        return self.sizes[-1]

    @property
    def mean(self) -> float:
        """Mean size in items."""
        return math.fsum(s * p for s, p in zip(self.sizes, self.probabilities, strict=True))

    def quantile(self, share: float) -> int:
        """The smallest size that so large a share of requests does not exceed."""
        return self.sizes[bisect_left(self.cumulative, share)]

    @property
    def cumulative(self) -> tuple[float, ...]:
        """Probability of at most each size; the last is 1, so that every uniform draw in [0, 1) finds a size."""
        return (*list(accumulate(self.probabilities))[:-1], 1.0)


def size_distribution(name: str, weights: Mapping[int, float]) -> SizeDistribution:
    """The distribution with these weights, scaled to sum to 1; sizes without any are left out."""
    sizes = tuple(sorted(size for size, weight in weights.items() if weight > 0))
    if not sizes:
        raise Misconfigured(f"sizes {name!r}: no size has a probability above 0")
    total = math.fsum(weights[size] for size in sizes)
    return SizeDistribution(name=name, sizes=sizes, probabilities=tuple(weights[size] / total for size in sizes))


def is_formula(spec: str) -> bool:
    """True where the spec names a formula; anything else is a file."""
    return spec == KAIROS or spec.partition(":")[0] in {"lognormal", "normal", "constant"}


def sizes_from_formula(spec: str) -> SizeDistribution:
    """The distribution of `lognormal:5.1,0.2,1,1024`, `normal:165,16,1,1024`, `constant:8` or `kairos`."""
    if spec == KAIROS:
        return kairos_sizes()
    kind, _, rest = spec.partition(":")
    numbers = [_number(spec, text) for text in rest.split(",")]
    if kind == "constant" and len(numbers) == 1:
        return size_distribution(spec, {_whole(spec, numbers[0]): 1.0})
    if kind in {"lognormal", "normal"} and len(numbers) == 4:
        mu, sigma = numbers[:2]
        low, high = (_whole(spec, value) for value in numbers[2:])
        if not sigma > 0:
            raise Misconfigured(f"sizes {spec!r}: SIGMA must be above 0, not {sigma:g}")
        if high < low:
            raise Misconfigured(f"sizes {spec!r}: MAX must be at least MIN")
        below = NormalDist(mu, sigma).cdf if kind == "normal" else _lognormal_below(mu, sigma)
        return size_distribution(spec, _clipped(below, low, high))
    raise Misconfigured(f"sizes {spec!r} must read {FORMS}")


def sizes_from_csv(name: str, lines: Iterable[str]) -> SizeDistribution:
    """The distribution of a table with the columns `size` and `probability`."""
    rows = csv.DictReader(lines)
    if not {"size", "probability"} <= set(rows.fieldnames or ()):
        raise Misconfigured(f"{name}: the header must have size and probability")
    weights: dict[int, float] = {}
    for line, row in enumerate(rows, start=2):
        where = f"{name}, line {line}"
        size = _whole(where, _number(where, row["size"]))
        weight = _number(where, row["probability"])
        if not 0 <= weight <= 1:
            raise Misconfigured(f"{where}: a probability is between 0 and 1, not {weight:g}")
        if size in weights:
            raise Misconfigured(f"{where}: size {size} stands there twice")
        weights[size] = weight
    total = math.fsum(weights.values())
    if abs(total - 1) > TOTAL_TOLERANCE:
        raise Misconfigured(f"{name}: the probabilities sum to {total:.6g}, not to 1")
    return size_distribution(name, weights)


def kairos_sizes() -> SizeDistribution:
    """The mix of Kairos' artifact (`helper.py` of fa20590), as probabilities.

    Of 99 queries 8 are uniform on 1..99, 22 on 200..599 and 5 on 600..999; the others are lognormal(5.1, 0.2)
    where that lies in 100..200, else uniform on 190..199.
    """
    weights: dict[int, float] = {}
    for share, low, high in ((8, 1, 99), (22, 200, 599), (5, 600, 999)):
        _add_uniform(weights, share / 99, low, high)
    below = _lognormal_below(5.1, 0.2)
    for size in range(101, 201):
        weights[size] = weights.get(size, 0.0) + 64 / 99 * (below(size) - below(size - 1))
    _add_uniform(weights, 64 / 99 * (1 - below(200) + below(100)), 190, 199)
    return size_distribution(KAIROS, weights)


def _add_uniform(weights: dict[int, float], share: float, low: int, high: int) -> None:
    for size in range(low, high + 1):
        weights[size] = weights.get(size, 0.0) + share / (high - low + 1)


def _clipped(below: Callable[[float], float], low: int, high: int) -> dict[int, float]:
    """Probabilities of ceil(X) in low..high; what lies beyond an end counts there."""
    edges = [0.0, *(below(size) for size in range(low, high)), 1.0]
    return {low + k: edges[k + 1] - edges[k] for k in range(high - low + 1)}


def _lognormal_below(mu: float, sigma: float) -> Callable[[float], float]:
    return lambda size: _STANDARD.cdf((math.log(size) - mu) / sigma) if size > 0 else 0.0


def _number(where: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError as error:
        raise Misconfigured(f"sizes {where!r}: {text!r} is not a number; give {FORMS}") from error
    if not math.isfinite(value):
        raise Misconfigured(f"sizes {where!r}: {text!r} is not a finite number")
    return value


def _whole(where: str, value: float) -> int:
    if value != int(value) or not 1 <= value <= LARGEST_SIZE:
        raise Misconfigured(f"sizes {where!r}: a size is a whole number from 1 to {LARGEST_SIZE}, not {value:g}")
    return int(value)
