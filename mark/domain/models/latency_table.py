"""Latency of one model by size of a query on each instance type, as a pool's dispatch and planner read it.

The values are the measured ones, row by row: a size between two rows takes the next larger. (A `Profile` reads
the running maximum of its points; published tables have small dips, and a replay of them takes what was timed.)
"""

from __future__ import annotations

import csv
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mark.domain.errors import Misconfigured, unknown
from mark.domain.load.sizes import SizeDistribution

MOST_DIP = 0.15
"""A larger size may be timed so much faster than a smaller one; beyond it the table is wrong.

Noise of the measurement: the largest dip of Kairos' published profiles is 13.6 % (ncf on t3.xlarge).
"""
MEAN_COLUMNS = ("mean_ms", "total_mean_ms")
"""The column with the mean; the second is its name in the tables of Kairos' artifact."""
_SAMPLE = re.compile(r"s\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTable:
    """Mean latency in ms by instance type and size; every type has a row for each of `sizes`, which rise.

    samples_ms: single timings of the same cells, as many in each; empty where only means are known.
    """

    model: str
    sizes: tuple[int, ...]
    mean_ms: Mapping[str, tuple[float, ...]]
    samples_ms: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)

    def row(self, size: int) -> int:
        """Number of the row that a size takes."""
        if not 1 <= size <= self.sizes[-1]:
            raise Misconfigured(
                f"size {size} is beyond the profile of {self.model}, which ends at {self.sizes[-1]}"
            )
        return bisect_left(self.sizes, size)

    def latency_ms(self, instance_type: str, size: int) -> float:
        """Mean latency of a query of this size."""
        return self.mean_ms[instance_type][self.row(size)]

    def row_shares(self, sizes: SizeDistribution) -> tuple[float, ...]:
        """Probability that a query takes each row."""
        shares = [0.0] * len(self.sizes)
        for size, probability in zip(sizes.sizes, sizes.probabilities, strict=True):
            shares[self.row(size)] += probability
        return tuple(shares)

    def check_pool(self, pool: Mapping[str, int]) -> None:
        """Refuse a pool with types that the table does not have, or without instances."""
        for name, count in pool.items():
            if name not in self.mean_ms:
                raise unknown(f"instance type of {self.model}", name, self.mean_ms)
            if count < 0:
                raise Misconfigured(f"a pool cannot have {count} of {name}")
        if not any(pool.values()):
            raise Misconfigured("a pool needs at least one instance")


def read_latency_table(name: str, lines: Iterable[str], model: str) -> LatencyTable:
    """The rows of one model in a CSV `instance_type,model,batch_size,mean_ms[,usd_per_hour]`.

    Columns s0, s1, ... are single timings in ms; without a mean, theirs is taken. Other columns are passed over.
    """
    rows = csv.DictReader(lines)
    columns = list(rows.fieldnames or ())
    mean_column = next((column for column in MEAN_COLUMNS if column in columns), None)
    sample_columns = [column for column in columns if _SAMPLE.fullmatch(column)]
    missing = [column for column in ("instance_type", "model", "batch_size") if column not in columns]
    if mean_column is None and not sample_columns:
        missing.append(MEAN_COLUMNS[0])
    if missing:
        raise Misconfigured(f"{name}: the header lacks {', '.join(missing)}")
    means: dict[str, dict[int, float]] = {}
    samples: dict[str, dict[int, tuple[float, ...]]] = {}
    prices: dict[str, float] = {}
    models: set[str] = set()
    for line, row in enumerate(rows, start=2):
        if not (row["model"] and row["instance_type"]):
            raise Misconfigured(f"{name}, line {line}: model and instance_type must be there")
        models.add(row["model"])
        if row["model"] != model:
            continue
        where, kind = f"{name}, line {line}", row["instance_type"]
        size = _size(where, row["batch_size"])
        timed = tuple(_positive(where, column, row[column]) for column in sample_columns)
        mean = _positive(where, mean_column, row[mean_column]) if mean_column else math.fsum(timed) / len(timed)
        if size in means.setdefault(kind, {}):
            raise Misconfigured(f"{where}: {kind} has batch_size {size} twice")
        means[kind][size] = mean
        samples.setdefault(kind, {})[size] = timed
        if row.get("usd_per_hour"):
            prices[kind] = _positive(where, "usd_per_hour", row["usd_per_hour"])
    if not means:
        raise unknown(f"model in {name}", model, models)
    sizes = _common_sizes(name, model, means)
    for kind, found in means.items():
        _check_dips(f"{name}: {model} on {kind}", sizes, found)
    return LatencyTable(
        model=model,
        sizes=sizes,
        mean_ms={kind: tuple(found[size] for size in sizes) for kind, found in means.items()},
        samples_ms={kind: tuple(found[size] for size in sizes) for kind, found in samples.items()}
        if sample_columns
        else {},
        usd_per_hour=prices,
    )


def parse_pool(text: str) -> dict[str, int]:
    """`a=4,b=2` as counts by type, in that order: the first type is the base."""
    pool: dict[str, int] = {}
    for item in text.split(","):
        kind, _, count = (part.strip() for part in item.partition("="))
        if not (kind and count.isdecimal()):
            raise Misconfigured(f"a pool reads TYPE=COUNT,TYPE=COUNT, not {text!r}")
        if kind in pool:
            raise Misconfigured(f"pool {text!r} names {kind} twice")
        pool[kind] = int(count)
    return pool


def _common_sizes(name: str, model: str, means: Mapping[str, Mapping[int, float]]) -> tuple[int, ...]:
    every = sorted(set().union(*means.values()))
    for kind, found in means.items():
        gaps = [size for size in every if size not in found]
        if gaps:
            more = f" and {len(gaps) - 1} more" if len(gaps) > 1 else ""
            raise Misconfigured(
                f"{name}: {model} on {kind} has no row for batch_size {gaps[0]}{more}, which other types have"
            )
    return tuple(every)


def _check_dips(where: str, sizes: tuple[int, ...], found: Mapping[int, float]) -> None:
    slowest = sizes[0]
    for size in sizes:
        if found[size] < found[slowest] * (1 - MOST_DIP):
            raise Misconfigured(
                f"{where}: batch_size {size} takes {found[size]:g} ms and {slowest} takes {found[slowest]:g} ms; "
                "latency must rise with size"
            )
        if found[size] > found[slowest]:
            slowest = size


def _size(where: str, text: str | None) -> int:
    if not (text and text.strip().isdecimal() and int(text) > 0):
        raise Misconfigured(f"{where}: batch_size must be a whole number above 0, not {text!r}")
    return int(text)


def _positive(where: str, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError as error:
        raise Misconfigured(f"{where}: {column} must be a number, not {text!r}") from error
    if not (math.isfinite(value) and value > 0):
        raise Misconfigured(f"{where}: {column} must be above 0, not {text}")
    return value
