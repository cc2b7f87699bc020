"""Variants of a model: the same answers at less accuracy and less time (subnets of a supernet, a smaller network).

Variants stand in order of accuracy, the least accurate first. Their number in that order is what kernels, tables
and frames carry; their name is what people read.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mark.domain.errors import Misconfigured, unknown


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant's name and the share of items that it answers right."""

    name: str
    accuracy: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.accuracy) and 0 <= self.accuracy <= 1):
            raise Misconfigured(
                f"variant {self.name}: an accuracy is a share between 0 and 1, not {self.accuracy:g}"
            )


@dataclass(frozen=True, slots=True)
class ServedAccuracy:
    """Answers of variants, and their mean accuracy (a share)."""

    answers: int
    mean: float


@dataclass(frozen=True, slots=True)
class AccuracyTotal:
    """Answers of variants since some beginning, and the sum of their accuracies."""

    answers: int = 0
    accuracy_sum: float = 0.0

    def with_answers(self, more: ServedAccuracy) -> AccuracyTotal:
        """The total after these answers."""
        return AccuracyTotal(self.answers + more.answers, self.accuracy_sum + more.answers * more.mean)

    def since(self, earlier: AccuracyTotal) -> ServedAccuracy | None:
        """The answers since an earlier total; None where no variant has answered."""
        answers = self.answers - earlier.answers
        if answers <= 0:
            return None
        mean = (self.accuracy_sum - earlier.accuracy_sum) / answers
        return ServedAccuracy(answers=answers, mean=min(1.0, max(0.0, mean)))


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTable:
    """Seconds that a batch takes by instance type, variant and items.

    latency_s: by instance type one row a variant, each with the seconds of batches of 1, 2, ... `max_batch` items.
    Rows never fall with the items; a more accurate variant may be faster (noise of a measurement, or a better
    network).
    """

    model: str
    variants: tuple[Variant, ...]
    latency_s: Mapping[str, tuple[tuple[float, ...], ...]]

    def __post_init__(self) -> None:
        if not self.variants:
            raise Misconfigured(f"{self.model} has no variants")
        accuracies = [variant.accuracy for variant in self.variants]
        if accuracies != sorted(accuracies):
            raise Misconfigured(f"variants of {self.model} must rise in accuracy, got {accuracies}")
        names = [variant.name for variant in self.variants]
        if len(set(names)) < len(names):
            raise Misconfigured(f"variants of {self.model} need names of their own, got {', '.join(names)}")
        if not self.latency_s:
            raise Misconfigured(f"variants of {self.model} have no latencies")
        for instance_type, rows in self.latency_s.items():
            where = f"variants of {self.model} on {instance_type}"
            if len(rows) != len(self.variants):
                raise Misconfigured(f"{where}: {len(rows)} rows for {len(self.variants)} variants")
            for name, row in zip(names, rows, strict=True):
                if len(row) != self.max_batch:
                    raise Misconfigured(f"{where}: {name} has {len(row)} batch sizes, others {self.max_batch}")
                if not all(math.isfinite(s) and s > 0 for s in row) or list(row) != sorted(row):
                    raise Misconfigured(f"{where}: latencies of {name} must be above 0 s and never fall")

    @property
    def max_batch(self) -> int:
        """The largest batch that all variants have a time for."""
        return len(next(iter(self.latency_s.values()))[0])

    @property
    def names(self) -> tuple[str, ...]:
        """The variants' names, the least accurate first."""
        return tuple(variant.name for variant in self.variants)

    def number(self, name: str) -> int:
        """The number of a variant; Misconfigured where no variant has that name."""
        if name not in self.names:
            raise unknown(f"variant of {self.model}", name, self.names)
        return self.names.index(name)

    def floor_number(self, accuracy: float) -> int:
        """The first variant that is at least so accurate; Misconfigured where none is."""
        number = bisect_left(self.variants, accuracy, key=lambda variant: variant.accuracy)
        if number == len(self.variants):
            best = self.variants[-1]
            raise Misconfigured(
                f"no variant of {self.model} has an accuracy of {accuracy:g}: the best, {best.name}, "
                f"has {best.accuracy:g}"
            )
        return number

    def rows(self, instance_type: str) -> Sequence[Sequence[float]]:
        """Seconds by variant and items - 1 on one type."""
        if instance_type not in self.latency_s:
            raise unknown(f"instance type of {self.model}", instance_type, self.latency_s)
        return self.latency_s[instance_type]

    def pareto(self, instance_type: str) -> VariantTable:
        """Only variants that no other one beats: at least as accurate and never slower on this type."""
        rows = self.rows(instance_type)
        kept = [
            number
            for number in range(len(self.variants))
            if not any(_beats(self, rows, other, number) for other in range(len(self.variants)) if other != number)
        ]
        return VariantTable(
            model=self.model,
            variants=tuple(self.variants[number] for number in kept),
            latency_s={kind: tuple(table[number] for number in kept) for kind, table in self.latency_s.items()},
        )


def _beats(table: VariantTable, rows: Sequence[Sequence[float]], one: int, other: int) -> bool:
    """True where `one` is as good as `other` in everything, and better in something or named earlier."""
    ahead = table.variants[one].accuracy - table.variants[other].accuracy
    if ahead < 0 or any(a > b for a, b in zip(rows[one], rows[other], strict=True)):
        return False
    return ahead > 0 or list(rows[one]) != list(rows[other]) or one < other
