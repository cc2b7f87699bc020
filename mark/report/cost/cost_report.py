"""The cost report as one value: what a service cost over a period, what it kept, and what it could do better.

All money is USD, all instants are seconds of the service's clock since the epoch, days are days of UTC. The words
of cost are those of every report (`mark.domain.billing.costs`). `cost_report_reading` makes it from what is
stored, `mail` draws it, `report_document` is its JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from mark.accounting.budget import MonthSpend
from mark.accounting.client_totals import ClientAnswers
from mark.accounting.hourly_spend import HourSpend
from mark.accounting.journal_stats import AccuracyInterval
from mark.catalog.billing import cost_of
from mark.dispatch.objective import attainment, burn_rate
from mark.domain.billing.costs import BillLine, CostUsd
from mark.domain.load.traffic import AnswerTotals
from mark.domain.models.objective import Slo
from mark.report.formatting import cost_document, finite
from mark.store.published_status import LoadSeries

COUNTED = ("instance", "standby", "lambda_", "late", "shed", "failed", "rejected")
"""Counts of `Answers`, which are whole."""
LEAST_REQUESTS = 1000
"""A price a million requests is told of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLine:
    """One line of the bill of one day."""

    day: date
    line: BillLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(AnswerTotals):
    """Outcomes of requests in a period. No objective counts those that were rejected."""

    @property
    def came(self) -> int:
        """All that gateways were asked."""
        return self.finished + self.rejected

    @property
    def attained(self) -> float | None:
        """Share answered in time; None where nothing came."""
        return attainment(self.missed, self.finished)

    @property
    def overflow(self) -> float | None:
        """Share answered by Lambda; None where nothing came."""
        return self.lambda_ / self.finished if self.finished else None

    def burn(self, target: float) -> float | None:
        """Share of the misses that `target` allows that were used: above 1 the objective was not kept."""
        return burn_rate(self.missed, self.finished, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBill:
    """One version of a model: its requests, and what it cost; an empty name is of what no version is known.

    Rent is that of its instances, woken standbys too. What its function costs is None where the model calls none.
    """

    version: str
    requests: int
    #: Share answered in time; None where nothing came.
    attained: float | None
    instance_hours: float
    rent_usd: float
    lambda_usd: float | None

    @property
    def cost_usd(self) -> float:
        """Rent and Lambda."""
        return self.rent_usd + (self.lambda_usd or 0.0)

    @property
    def usd_per_million(self) -> float | None:
        """Cost of a million requests; None before so many that it means something."""
        return 1e6 * self.cost_usd / self.requests if self.requests >= LEAST_REQUESTS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayAnswers:
    """The answers of one day."""

    day: date
    answers: Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Another policy on the same arrivals, by replay of `replayed_s` seconds of them.

    They lie in `[since, until)`: whole days that the period touches, where such were replayed. `measured_usd` is
    what the model itself cost in the same seconds, and `measured_attained` the share that it answered in time.
    Both costs carry an equal part of what all models share. The model's also has the time that it took of shared
    devices, and an equal part of their idle time. Shares are None where nothing came. `uses_truth`: it knew what
    would come, a mark to measure by, which nobody can have.
    """

    policy: str
    usd: float
    attained: float | None
    measured_usd: float
    measured_attained: float | None
    since: float
    until: float
    replayed_s: float
    uses_truth: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastError:
    """Forecasts of a minute's largest rate, made one lead before, against what came.

    `error` is the sum of absolute errors over the sum of what came (WAPE), `naive_error` that of saying what was
    last seen; None where nothing could be scored. `failed` counts the forecasts that another had to make.
    """

    forecaster: str
    scored: int
    error: float | None
    naive_error: float | None
    failed: int
    #: What the last forecast lacked; None where nothing.
    degraded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeDecision:
    """An order and its reason; `usd_per_hour` is what it added to, or with a minus took from, the hourly price."""

    at: float
    what: str
    usd_per_hour: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Use of the fleet, by the journal: hours of it, and those in which nearly all of it was idle.

    `utilisation`: requests over what the ready instances carry, None where none was ready.
    """

    hours: float = 0.0
    utilisation: float | None = None
    idle_hours: float = 0.0
    idle_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAhead:
    """The last hour of load and the forecast from there on, as the last tick published them."""

    series: LoadSeries
    #: Rate that the plan's fleet carries, requests/s; None without a plan.
    planned_rps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """One model over the period.

    lines: its own, without what all models share; days without any are left out, there and in `days`.
    `journal_since` is from when on the journal tells of interruptions, refusals, forecasts and decisions: later
    than the period's start where older lines are gone, None where there is no journal. `never_chosen`: offerings
    that were never rented, and why.
    """

    name: str
    policy: str
    slo: Slo
    lines: tuple[DayLine, ...]
    answers: Answers
    days: tuple[DayAnswers, ...]
    baselines: tuple[Baseline, ...]
    interruptions: int
    refused_launches: int
    launched: int
    forecast: ForecastError
    decisions: tuple[LargeDecision, ...]
    capacity: Capacity
    never_chosen: tuple[tuple[str, str], ...]
    journal_since: float | None
    #: By client, where the service had clients.
    clients: tuple[ClientAnswers, ...] = ()
    #: By version, in the order in which they served; empty where no more than one did.
    versions: tuple[VersionBill, ...] = ()
    #: Load and accuracy by interval, as far back as the journal; empty for a model without variants.
    accuracy: tuple[AccuracyInterval, ...] = ()
    #: None where the service forecasts nothing at the report's end.
    ahead: LoadAhead | None = None
    #: Constant load, requests/s, from which it would pay by itself against Lambda alone, all of the overhead
    #: counted; None where none does, and without a Lambda in time.
    break_even_rps: float | None = None
    #: Its part of the rent of shared instances, by device time; in none of its lines.
    shared_usd: float = 0.0

    @property
    def cost(self) -> CostUsd:
        """The cost words of its own lines."""
        return cost_of(item.line for item in self.lines)

    @property
    def serving_usd(self) -> float:
        """Cost of serving it, shared instances included."""
        return self.cost.serving + self.shared_usd

    @property
    def usd(self) -> float:
        """Its own lines and its part of shared instances."""
        return self.cost.total + self.shared_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledDay:
    """One day of our ledger beside what AWS Cost Explorer says; None where it says nothing."""

    day: date
    ledger_usd: float
    aws_usd: float | None

    @property
    def difference_usd(self) -> float | None:
        """Cost Explorer minus ledger."""
        return None if self.aws_usd is None else self.aws_usd - self.ledger_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """A service's report. `observed` says that nothing was rented: the fleet is one that would have been.

    shared: what stands around the fleets of all models, which none of them carries alone. reconciliation: one row
    a day, empty where Cost Explorer was not asked. `existing_usd` is what the fleet that serves cost over the
    period where a service only observes it, None where nobody said.
    """

    service: str
    since: float
    until: float
    models: tuple[ModelReport, ...]
    shared: tuple[DayLine, ...] = ()
    reconciliation: tuple[ReconciledDay, ...] = ()
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    observed: bool = False
    existing_usd: float | None = None
    #: Spending of the month in which the report ends; None for a report that was made without.
    month: MonthSpend | None = None
    #: Spending of the last whole hours, a day of them at most, oldest first.
    hours: tuple[HourSpend, ...] = ()
    #: Of the rent of shared instances, what no model took; None where models share none.
    idle_usd: float | None = None

    @property
    def lines(self) -> tuple[DayLine, ...]:
        """Those of all models, and the shared ones."""
        return (*(item for model in self.models for item in model.lines), *self.shared)

    @property
    def cost(self) -> CostUsd:
        """The cost words of the whole service."""
        return cost_of(item.line for item in self.lines)

    @property
    def finished(self) -> int:
        """Requests of all models that were answered, refused or failed."""
        return sum(model.answers.finished for model in self.models)

    @property
    def usd_per_million(self) -> float | None:
        """Cost of a million requests; None before so many that it means something."""
        return 1e6 * self.cost.total / self.finished if self.finished >= LEAST_REQUESTS else None

    @property
    def fleet_usd_per_million(self) -> float | None:
        """The same of instances, standbys and Lambda alone."""
        return 1e6 * self.cost.serving / self.finished if self.finished >= LEAST_REQUESTS else None

    @property
    def has_data(self) -> bool:
        """True where anything was spent or requested."""
        return bool(self.lines) or any(model.answers.came for model in self.models)


def spend_by_day(lines: Iterable[DayLine]) -> dict[date, CostUsd]:
    """The cost words of each day, oldest first."""
    return {day: cost_of(found) for day, found in sorted(_grouped(lines, lambda item: item.day).items())}


def spend_by_item(lines: Iterable[DayLine]) -> tuple[BillLine, ...]:
    """The bill of the whole period: one line an offering or item, dearest first."""
    grouped = _grouped(lines, lambda item: (item.line.component, item.line.item))
    added = [
        BillLine(
            component=component,
            item=item,
            quantity=sum(line.quantity for line in found),
            unit=found[0].unit,
            usd=sum(line.usd for line in found),
        )
        for (component, item), found in grouped.items()
    ]
    return tuple(sorted(added, key=lambda line: (-line.usd, line.component, line.item)))


def report_document(report: CostReport) -> dict[str, object]:
    """The document of `mark report --json` (docs/json.md)."""
    return {
        "service": report.service,
        "since": report.since,
        "until": report.until,
        "observed": report.observed,
        "existing_usd": report.existing_usd,
        "month": None if report.month is None else asdict(report.month),
        "cost_usd": cost_document(report.cost),
        "usd_per_million": report.usd_per_million,
        "fleet_usd_per_million": report.fleet_usd_per_million,
        "hours": [asdict(hour) for hour in report.hours],
        "days": [
            {"day": day.isoformat(), "cost_usd": cost_document(cost)}
            for day, cost in spend_by_day(report.lines).items()
        ],
        "models": [_model_document(model) for model in report.models],
        "shared": _lines_document(report.shared),
        "shared_idle_usd": report.idle_usd,
        "reconciliation": [
            {
                "day": item.day.isoformat(),
                "ledger_usd": item.ledger_usd,
                "aws_usd": item.aws_usd,
                "difference_usd": item.difference_usd,
            }
            for item in report.reconciliation
        ],
        "advice": list(report.advice),
        "notes": list(report.notes),
    }


def _model_document(model: ModelReport) -> dict[str, object]:
    answers, target = model.answers, model.slo.target
    return {
        "name": model.name,
        "policy": model.policy,
        "cost_usd": cost_document(model.cost),
        "shared_usd": model.shared_usd,
        "items": [asdict(line) for line in spend_by_item(model.lines)],
        "lines": _lines_document(model.lines),
        "objective": {
            "latency_ms": round(model.slo.latency_s * 1000, 9),
            "target": target,
            "attained": answers.attained,
            "burn": finite(answers.burn(target)),
            "accuracy": answers.accuracy,
            "days": [
                {
                    "day": item.day.isoformat(),
                    "attained": item.answers.attained,
                    "finished": item.answers.finished,
                    "accuracy": item.answers.accuracy,
                }
                for item in model.days
            ],
        },
        "answers": {name.rstrip("_"): getattr(answers, name) for name in COUNTED},
        "clients": [asdict(client) for client in model.clients],
        "versions": [
            {**asdict(one), "cost_usd": one.cost_usd, "usd_per_million": one.usd_per_million}
            for one in model.versions
        ],
        "accuracy": [
            {
                "since": item.since,
                "until": item.until,
                "mean_rps": item.mean_rps,
                "accuracy": None if item.answered is None else item.answered.mean,
            }
            for item in model.accuracy
        ],
        "baselines": [asdict(baseline) for baseline in model.baselines],
        "interruptions": model.interruptions,
        "refused_launches": model.refused_launches,
        "launched": model.launched,
        "forecast": asdict(model.forecast),
        "decisions": [asdict(decision) for decision in model.decisions],
        "capacity": asdict(model.capacity),
        "never_chosen": [{"offering": name, "reason": reason} for name, reason in model.never_chosen],
        "journal_since": model.journal_since,
        "break_even_rps": model.break_even_rps,
    }


def _lines_document(lines: Iterable[DayLine]) -> list[dict[str, object]]:
    return [{"day": item.day.isoformat(), **asdict(item.line)} for item in lines]


def _grouped(lines: Iterable[DayLine], key: Callable[[DayLine], Any]) -> dict[Any, list[BillLine]]:
    found: dict[Any, list[BillLine]] = {}
    for item in lines:
        found.setdefault(key(item), []).append(item.line)
    return found
