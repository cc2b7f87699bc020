"""Cost reports that never were: one value for tests of the mail and for looking at it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from mark.accounting.hourly_spend import HourSpend
from mark.domain.billing.costs import BillLine
from mark.domain.models.objective import Slo
from mark.report.cost.cost_report import (
    Answers,
    Baseline,
    Capacity,
    CostReport,
    DayAnswers,
    DayLine,
    ForecastError,
    LargeDecision,
    LoadAhead,
    ModelReport,
    ReconciledDay,
    VersionBill,
    spend_by_day,
)
from mark.store.published_status import LoadSeries

FIRST = datetime(2026, 10, 22, tzinfo=UTC)
DAY_S = 86400.0


def line(component: str, item: str, quantity: float, unit: str, usd: float) -> BillLine:
    return BillLine(component=component, item=item, quantity=quantity, unit=unit, usd=usd)


def baseline(policy: str, *, usd: float, measured_usd: float, attained: float | None, days: int = 1) -> Baseline:
    return Baseline(
        policy=policy,
        usd=usd,
        attained=attained,
        measured_usd=measured_usd,
        measured_attained=0.991,
        since=FIRST.timestamp(),
        until=FIRST.timestamp() + days * DAY_S,
        replayed_s=days * DAY_S,
    )


def load_ahead(until: float, *, seed: int = 1) -> LoadAhead:
    rng = np.random.default_rng(seed)
    means = 180.0 + 30.0 * np.sin(np.arange(60) / 12.0) + rng.normal(0.0, 6.0, 60)
    middle = 210.0 + 0.9 * np.arange(60)
    spread = 3.0 * np.sqrt(1.0 + np.arange(60))
    levels = (0.1, 0.25, 0.75, 0.9)
    fan = tuple(tuple(map(float, middle + times * spread)) for times in (-1.3, -0.7, 0.7, 1.3))
    series = LoadSeries(
        start_at=until - 3600.0,
        mean_rps=tuple(map(float, means)),
        max_rps=tuple(map(float, means * 1.15)),
        capacity_rps=(260.0,) * 40 + (300.0,) * 20,
        forecast_start_at=until,
        forecast_max_rps=tuple(map(float, middle)),
        fan_levels=levels,
        fan_max_rps=fan,
    )
    return LoadAhead(series=series, planned_rps=330.0)


def spent_hours(until: float) -> tuple[HourSpend, ...]:
    return tuple(
        HourSpend(
            at=until - 3600.0 * (24 - number),
            instances=0.3 + 0.2 * float(np.sin(number / 4.0)),
            lambda_usd=0.02,
            overhead=0.07,
        )
        for number in range(24)
    )


def model_report(name: str = "inception-v3", *, days: int = 7, seed: int = 1, missed: bool = False) -> ModelReport:
    rng = np.random.default_rng(seed)
    lines, answered = [], []
    for number in range(days):
        day = (FIRST + timedelta(days=number)).date()
        hours = float(rng.uniform(60, 110))
        requests = int(rng.integers(2_000_000, 4_000_000))
        late = int(requests * (0.05 if missed else 0.02) * rng.uniform(0.2, 0.9))
        to_lambda = int(requests * 0.012)
        lines += [
            DayLine(day=day, line=found)
            for found in (
                line("instances", "c5.large:spot", hours, "instance-hours", hours * 0.0341),
                line("instances", "c5.xlarge:spot", hours / 4, "instance-hours", hours / 4 * 0.0678),
                line("standby", "disks asleep", 2.0, "GiB-months", 0.16),
                line("lambda", "invocations", to_lambda, "requests", to_lambda * 2e-7),
                line("lambda", "duration", to_lambda * 0.9, "GiB-s", to_lambda * 0.9 * 1.66667e-5),
            )
        ]
        answers = Answers(instance=requests - to_lambda, lambda_=to_lambda, late=late, shed=number)
        answered.append(DayAnswers(day=day, answers=answers))
    total = Answers(
        instance=sum(item.answers.instance for item in answered),
        lambda_=sum(item.answers.lambda_ for item in answered),
        late=sum(item.answers.late for item in answered),
        shed=sum(item.answers.shed for item in answered),
    )
    own = sum(item.line.usd for item in lines)
    start = FIRST.timestamp()
    return ModelReport(
        name=name,
        policy="hedged",
        slo=Slo(latency_s=0.6, target=0.98),
        lines=tuple(lines),
        answers=total,
        days=tuple(answered),
        baselines=tuple(
            baseline(policy, usd=own * times, measured_usd=own, attained=attained, days=days)
            for policy, times, attained in (
                ("reactive", 1.31, 0.942),
                ("sagemaker", 2.18, 0.987),
                ("static-peak", 2.9, 0.9991),
                ("lambda-only", 6.4, 0.9977),
            )
        ),
        interruptions=14,
        refused_launches=2,
        launched=118,
        forecast=ForecastError(forecaster="mixture", scored=1440 * days, error=0.083, naive_error=0.121, failed=0),
        decisions=(
            LargeDecision(
                at=start + 0.4 * DAY_S,
                what="launch 12 c5.large:spot",
                usd_per_hour=0.41,
                reason="at most 210 requests/s are expected in 5 minutes; 14 instances carry 34 each",
            ),
            LargeDecision(
                at=start + 0.5 * DAY_S,
                what="drain 9 c5.large:spot",
                usd_per_hour=-0.31,
                reason="no plan wanted them",
            ),
            LargeDecision(
                at=start + 0.9 * DAY_S,
                what="wake 5 t3.xlarge:on-demand",
                usd_per_hour=0.2,
                reason="3 spot instances go in 120 s",
            ),
        ),
        capacity=Capacity(hours=24.0 * days, utilisation=0.46, idle_hours=21.0, idle_usd=9.13),
        never_chosen=(("c5.4xlarge:spot", "0.0000021 USD a request, c5.large:spot asks 0.0000013"),),
        journal_since=start,
        ahead=load_ahead(start + days * DAY_S, seed=seed),
    )


def rolled_out(model: ModelReport) -> ModelReport:
    """The model with two versions, the second rolled out after two thirds of its requests."""
    old = round(model.answers.finished / 1.5)
    shares = (("4f1c9a70be21", old, 2 / 3, 0.9871), ("9d0e55ab1c33", model.answers.finished - old, 0.4, 0.9912))
    versions = tuple(
        VersionBill(
            version=name,
            requests=requests,
            attained=attained,
            instance_hours=model.cost.instances * share / 0.04,
            rent_usd=model.cost.instances * share,
            lambda_usd=model.cost.lambda_ * requests / model.answers.finished,
        )
        for name, requests, share, attained in shares
    )
    return replace(model, versions=versions)


def cost_report(*models: ModelReport, days: int = 7, reconciled: bool = False) -> CostReport:
    shared = tuple(
        DayLine(day=day, line=line("overhead", "gateways", 48.0, "instance-hours", 1.632))
        for day in dict.fromkeys(item.day for model in models for item in model.lines)
    )
    lines = [*(item for model in models for item in model.lines), *shared]
    rows = tuple(
        ReconciledDay(day=day, ledger_usd=cost.total, aws_usd=None if number == days - 1 else cost.total * 1.04)
        for number, (day, cost) in enumerate(spend_by_day(lines).items())
    )
    return CostReport(
        service="vision",
        since=FIRST.timestamp(),
        until=FIRST.timestamp() + days * DAY_S,
        models=models,
        shared=shared,
        reconciliation=rows if reconciled else (),
        advice=("In 21 of 168 hours less than 10 % of the capacity was used; they cost 9.13 USD.",),
        hours=spent_hours(FIRST.timestamp() + days * DAY_S),
        notes=("the journal reaches back to 20 Nov 2026 04:00 UTC",),
    )
