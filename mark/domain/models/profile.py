"""Profiles of a model on a machine: latency by batch size, and the evidence for it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from mark.domain.errors import Misconfigured

MOST_CV = 2.0
"""Largest coefficient of variation of a batch's time: beyond it a profile says nothing."""
NOT_STATED = "not stated"
"""The source of a profile that was written without one."""


class Evidence(StrEnum):
    """The kind of evidence for a profile; reports tell the four apart.

    A stand-in was measured, but on another machine than the type that it is used for.
    """

    MEASURED = "measured"
    STAND_IN = "stand-in"
    PUBLISHED = "published"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of a profile. `formula` is required of an assumed one, `machine` of a stand-in.

    unstable_batches: batch sizes whose median was not yet known well when the time to measure was up.
    also_measured: what was measured in the same run and not chosen.
    """

    evidence: Evidence
    source: str
    date: str = ""
    machine: str = ""
    formula: str = ""
    unstable_batches: tuple[int, ...] = ()
    also_measured: tuple[AlsoMeasured, ...] = ()

    def __post_init__(self) -> None:
        if not self.source:
            raise Misconfigured("a profile needs a source")
        if self.evidence is Evidence.ASSUMED and not self.formula:
            raise Misconfigured(f"an assumed profile needs its formula (source {self.source!r})")
        if self.evidence is Evidence.STAND_IN and not self.machine:
            raise Misconfigured(f"a stand-in profile needs the machine that was measured (source {self.source!r})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """One measurement: a batch of `batch` items takes `latency_s`."""

    batch: int
    latency_s: float


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Use of an instance's processors: replicas of the model, each a process with so many threads.

    A batch is divided among the replicas, so that an instance is one server whatever their number, and a batch's
    latency is that of the slowest part. `threads`: of each replica; None where nobody chose, for what a model's
    libraries take by themselves.
    """

    replicas: int = 1
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1 or (self.threads is not None and self.threads < 1):
            raise Misconfigured(f"replicas and threads must be 1 or more, not {self}")
        if self.replicas > 1 and self.threads is None:
            raise Misconfigured(f"{self.replicas} replicas need their number of threads")

    def __str__(self) -> str:
        return f"{self.replicas}x{'default' if self.threads is None else self.threads}"

    @property
    def processors(self) -> int:
        """The least processors that it needs, one a thread."""
        return self.replicas * (self.threads or 1)

    def within(self, processors: int) -> Parallelism:
        """The same on a machine with so many processors: fewer threads, then fewer replicas."""
        if self.threads is None:
            return self
        threads = min(self.threads, processors)
        return Parallelism(min(self.replicas, processors // threads), threads)


UNSTATED = Parallelism()
"""One replica, as profiles mean that say nothing else."""


def parse_parallelism(text: str) -> Parallelism:
    """The meaning of `RxT`: R replicas with T threads each. Errors: Misconfigured."""
    replicas, _, threads = text.strip().partition("x")
    if not (replicas.isdecimal() and threads.isdecimal()):
        raise Misconfigured(f"{text!r} must read RxT, replicas x threads, such as 2x4")
    return Parallelism(int(replicas), int(threads))


def usual_parallelisms(processors: int) -> tuple[Parallelism, ...]:
    """Those worth measuring: one thread, one replica with all processors, one a processor, and one between.

    One thread may be fastest: threads wait for each other wherever something else runs beside them.
    """
    between = 1 << (processors.bit_length() // 2)
    replicas = {1, processors} | ({between} if processors >= 4 else set())
    return tuple(dict.fromkeys((Parallelism(1, 1), *(Parallelism(n, processors // n) for n in sorted(replicas)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlsoMeasured:
    """Latencies of a parallelism that was measured and not chosen."""

    parallelism: Parallelism
    points: tuple[LatencyPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Latency by batch size of one model (and variant) on one instance type.

    Points are kept as they were measured; `latency_s` reads their running maximum. Between points the next larger
    measured batch counts, so a profile never promises what nobody measured. `cv`: coefficient of variation of a
    batch's time, the median over the batch sizes; `accuracy`: share of items that the variant answers right. None
    where nobody measured it. `parallelism`: how the instance's processors were used; the backend does the same.
    """

    model: str
    instance_type: str
    points: tuple[LatencyPoint, ...]
    provenance: Provenance
    variant: str = "base"
    cv: float | None = None
    accuracy: float | None = None
    parallelism: Parallelism = UNSTATED

    def __post_init__(self) -> None:
        where = f"profile of {self.model} on {self.instance_type}"
        if not self.points:
            raise Misconfigured(f"{where} has no points")
        batches = [point.batch for point in self.points]
        if batches != sorted(set(batches)) or batches[0] < 1:
            raise Misconfigured(f"{where}: batch sizes must rise from 1 or more, got {batches}")
        if not all(math.isfinite(p.latency_s) and p.latency_s > 0 for p in self.points):
            raise Misconfigured(f"{where}: latencies must be above 0 s")
        if self.cv is not None and not 0 <= self.cv <= MOST_CV:
            raise Misconfigured(
                f"{where}: a coefficient of variation is between 0 and {MOST_CV:g}, not {self.cv:g}"
            )

        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise Misconfigured(f"{where}: an accuracy is a share between 0 and 1, not {self.accuracy:g}")

    @property
    def max_batch(self) -> int:
        """The largest batch that was profiled."""
        return self.points[-1].batch

    @property
    def of_one_replica(self) -> Profile | None:
        """The same with one replica, which answers one item soonest; None where that was not measured."""
        if self.parallelism.replicas == 1:
            return self
        measured = [one for one in self.provenance.also_measured if one.parallelism.replicas == 1]
        if not measured:
            return None
        quickest = min(measured, key=lambda one: one.points[0].latency_s)
        return replace(self, points=quickest.points, parallelism=quickest.parallelism)

    def latency_s(self, batch: int) -> float:
        """Seconds that a batch takes: the running maximum up to the smallest profiled batch >= `batch`."""
        if not 1 <= batch <= self.max_batch:
            raise Misconfigured(
                f"batch {batch} of {self.model} was not profiled on {self.instance_type}: "
                f"profiled up to {self.max_batch}"
            )
        worst = 0.0
        for point in self.points:
            worst = max(worst, point.latency_s)
            if point.batch >= batch:
                break
        return worst

    def latencies_s(self, largest: int) -> list[float]:
        """Seconds that batches of 1, 2, ... `largest` take."""
        self.latency_s(largest)  # refuses what was not profiled
        found: list[float] = []
        worst = 0.0
        for point in self.points:
            worst = max(worst, point.latency_s)
            found += [worst] * (min(point.batch, largest) - len(found))
        return found

    def dips(self, tolerance: float = 0.05) -> tuple[LatencyPoint, ...]:
        """Points more than `tolerance` below an earlier, smaller batch: a measurement to doubt."""
        found: list[LatencyPoint] = []
        worst = 0.0
        for point in self.points:
            if point.latency_s < worst * (1 - tolerance):
                found.append(point)
            worst = max(worst, point.latency_s)
        return tuple(found)


def assumed_words(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """The assumed ones among the profiles, each with its formula."""
    return tuple(
        f"{p.model} on {p.instance_type}: {p.provenance.formula}"
        for p in profiles
        if p.provenance.evidence is Evidence.ASSUMED
    )


def stand_in_words(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """The stand-ins among the profiles, each with the machine that was measured instead."""
    return tuple(
        f"{p.model} on {p.instance_type}: measured on {p.provenance.machine}"
        for p in profiles
        if p.provenance.evidence is Evidence.STAND_IN
    )


def evidence_line(assumed: Iterable[str], stand_ins: Iterable[str]) -> str:
    """A sentence or two on how well profiles are known, as every report must have it; each profile once."""
    guessed, elsewhere = sorted(set(assumed)), sorted(set(stand_ins))
    if not guessed and not elsewhere:
        return "No assumed profiles: all are measured or published."
    sentences = []
    if guessed:
        sentences.append(f"Assumed profiles (a stated formula, nobody measured them): {'; '.join(guessed)}.")
    if elsewhere:
        sentences.append(f"Stand-in profiles (measured on another machine than the type): {'; '.join(elsewhere)}.")
    return " ".join(sentences)
