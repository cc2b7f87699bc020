"""Hourly totals of what gateways counted: marks, between which a day's part of growing totals is known. Pure.

A mark is made at the first tick after an hour's end, or after another version of the model became the stable one.
Between two marks counts are taken to have grown evenly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from mark.accounting.client_totals import ClientTotals, between, totals_of
from mark.accounting.version_totals import NONE, VersionTotals, added, attributed, version_totals_of
from mark.adapters import adapter_of
from mark.domain.demand import Demand
from mark.domain.load.traffic import ModelTraffic

HOUR_S = 3600.0
KEEP_MARKS = 40 * 24
"""Forty days of hours: a month's report and then some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals since a service began. `requests` are those that arrived, scaled as the rates of a rehearsal are.

    The others are a model's of `ModelTraffic`; they may be broken, where they were read between two marks.
    """

    requests: float = 0.0
    instance: float = 0.0
    standby: float = 0.0
    lambda_: float = 0.0
    late: float = 0.0
    shed: float = 0.0
    failed: float = 0.0
    rejected: float = 0.0
    billed: float = 0.0
    gib_s: float = 0.0
    #: None in marks of earlier versions, like those below.
    shared_usd: float = 0.0
    #: Answers of variants, and the sum of their accuracies.
    accuracy_known: float = 0.0
    accuracy_sum: float = 0.0
    crossed: float = 0.0
    zoned: float = 0.0

    @property
    def finished(self) -> float:
        """Requests that were answered, shed or failed."""
        return self.instance + self.standby + self.lambda_ + self.shed + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyMark:
    """Totals at `at`. `counted_to` is where the demand in `requests` ended, `peak_rps` its largest rate so far."""

    at: float
    counted_to: float
    peak_rps: float
    totals: Totals
    #: By client, where the service has clients.
    clients: Mapping[str, ClientTotals] = field(default_factory=dict)
    #: By version, of requests that came during rollouts.
    versions: Mapping[str, VersionTotals] = field(default_factory=dict)
    #: The version that is stable from here on; empty where versions are not told apart.
    stable: str = ""


NAMES = tuple(one.name for one in fields(Totals))


def marks_key(model: str) -> str:
    """The name under which a model's marks are kept in the store."""
    return f"tallies:{model}"


def dump_marks(marks: Sequence[HourlyMark]) -> dict[str, Any]:
    """The marks as they are kept, no more of them than a report looks at, and of each what is new of versions."""
    kept = tuple(marks[-KEEP_MARKS:])
    changed = (replace(mark, versions=_changed(before, mark)) for before, mark in pairwise(kept))
    return {"marks": adapter_of(tuple[HourlyMark, ...]).dump_python((*kept[:1], *changed), mode="json")}


def load_marks(document: Mapping[str, Any] | None) -> tuple[HourlyMark, ...]:
    """The marks that were kept; none where there is no document."""
    marks = () if document is None else adapter_of(tuple[HourlyMark, ...]).validate_python(document["marks"])
    versions: dict[str, VersionTotals] = {}
    return tuple(replace(mark, versions=(versions := versions | dict(mark.versions))) for mark in marks)


def _changed(before: HourlyMark, mark: HourlyMark) -> dict[str, VersionTotals]:
    """Versions whose totals are others than before: a service has ever more of them, and most are long gone."""
    return {name: totals for name, totals in mark.versions.items() if before.versions.get(name) != totals}


def first_mark(began_at: float, stable: str = "") -> HourlyMark:
    """Nothing has come yet. stable: the version with which the model begins."""
    return HourlyMark(at=began_at, counted_to=began_at, peak_rps=0.0, totals=Totals(), stable=stable)


def is_due(marks: Sequence[HourlyMark], now: float, stable: str = "") -> bool:
    """True once an hour has ended since the last mark, or another version is the stable one."""
    return not marks or math.floor(now / HOUR_S) > math.floor(marks[-1].at / HOUR_S) or marks[-1].stable != stable


def next_mark(
    last: HourlyMark, traffic: ModelTraffic, history: Demand, now: float, stable: str = ""
) -> HourlyMark:
    """The totals now; `history` holds the units that came since `last`. stable: the version from now on."""
    units = min(len(history), max(0, round((history.end_at - last.counted_to) / history.unit_s)))
    means, peaks = history.mean_rps[len(history) - units :], history.max_rps[len(history) - units :]
    counted = {name: float(getattr(traffic, name)) for name in NAMES if name != "requests"}
    return HourlyMark(
        at=now,
        counted_to=max(last.counted_to, history.end_at),
        peak_rps=max((last.peak_rps, *peaks)),
        totals=Totals(requests=last.totals.requests + sum(means) * history.unit_s, **counted),
        clients=totals_of(traffic.clients),
        versions=version_totals_of(traffic.versions),
        stable=stable,
    )


def totals_at(marks: Sequence[HourlyMark], at: float) -> Totals:
    """Totals at an instant: on a straight line between the marks around it, those of the outermost beyond them."""
    if not marks:
        return Totals()
    before, after, share = _around(marks, at)
    return Totals(
        **{
            name: (1 - share) * getattr(before.totals, name) + share * getattr(after.totals, name)
            for name in NAMES
        }
    )


def clients_at(marks: Sequence[HourlyMark], at: float) -> dict[str, ClientTotals]:
    """Totals by client at an instant, likewise."""
    if not marks:
        return {}
    before, after, share = _around(marks, at)
    return between(before.clients, after.clients, share)


def versions_between(marks: Sequence[HourlyMark], since: float, until: float) -> dict[str, VersionTotals]:
    """Requests of `[since, until)` by version, as they served; an empty name: none is known."""
    found: dict[str, VersionTotals] = {}
    for before, after in pairwise(marks):
        shared_s = min(after.at, until) - max(before.at, since)
        if shared_s <= 0:
            continue
        came = attributed(_grown(before.totals, after.totals), before.versions, after.versions, before.stable)
        for version, totals in came.items():
            found[version] = added(found.get(version, NONE), totals, shared_s / (after.at - before.at))
    return {version: totals for version, totals in found.items() if totals != NONE}


def _grown(before: Totals, after: Totals) -> VersionTotals:
    """Requests between two marks of all versions."""
    grown = {name: max(0.0, getattr(after, name) - getattr(before, name)) for name in NAMES}
    return VersionTotals(
        answered=grown["instance"] + grown["standby"] + grown["lambda_"],
        late=grown["late"],
        failed=grown["shed"] + grown["failed"],
        lambda_calls=grown["billed"],
        lambda_gib_s=grown["gib_s"],
    )


def _around(marks: Sequence[HourlyMark], at: float) -> tuple[HourlyMark, HourlyMark, float]:
    """The marks around an instant, and how far it is from the one to the other."""
    right = bisect_right([mark.at for mark in marks], at)
    if right in (0, len(marks)):
        outermost = marks[min(right, len(marks) - 1)]
        return outermost, outermost, 0.0
    before, after = marks[right - 1], marks[right]
    return before, after, (at - before.at) / (after.at - before.at)
