"""Advice is given where there is something to do, with its numbers, and not else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.billing.costs import BillLine, CostUsd
from mark.report.cost.advice import advice_of
from mark.report.cost.cost_report import Answers, Capacity, DayLine
from mark.report.mail.formatting import money_of
from tests.report.cost_fakes import baseline, model_report

FINE = replace(model_report(), capacity=Capacity(hours=100.0, utilisation=0.6), never_chosen=())


def said(*models: object) -> str:
    return " | ".join(advised(*models))


def advised(*models: object) -> tuple[str, ...]:
    return advice_of(models, service="vision", money=lambda usd: f"{usd:,.2f}")  # type: ignore[arg-type]


def test_a_service_that_is_well_gets_none() -> None:
    assert advised(FINE) == ()
    assert advised() == ()


def test_a_missed_objective_comes_first_and_names_its_worst_day() -> None:
    missed = replace(
        model_report(seed=3, missed=True), capacity=Capacity(hours=10.0, idle_hours=9.0, idle_usd=3.21)
    )
    first, second, *_ = advised(missed)
    worst = max(missed.days, key=lambda item: item.answers.late / item.answers.finished)
    assert first.startswith("The objective was missed")
    assert f"{worst.day:%-d %b}" in first
    assert "9 of 10 hours" in second
    assert "3.21 USD" in second


@pytest.mark.parametrize(
    ("usd", "attained", "told"), [(90.0, 0.985, True), (90.0, 0.97, False), (110.0, 0.99, False)]
)
def test_a_baseline_is_named_when_it_keeps_the_objective_for_less(
    usd: float, attained: float, *, told: bool
) -> None:
    other = baseline("reactive", usd=usd, measured_usd=100.0, attained=attained)
    words = said(replace(FINE, baselines=(other,)))
    assert ("10.00 less" in words) == told
    assert ("`mark simulate --journal vision --policy all`" in words) == told


def test_what_knew_what_would_come_is_no_advice() -> None:
    other = replace(baseline("any", usd=90.0, measured_usd=100.0, attained=0.999), uses_truth=True)
    assert advised(replace(FINE, baselines=(other,))) == ()


def test_of_several_models_the_hint_names_whose_arrivals() -> None:
    other = baseline("reactive", usd=90.0, measured_usd=100.0, attained=0.985)
    words = said(replace(FINE, name="digits", baselines=(other,)), FINE)
    assert "`mark simulate --journal vision --model digits --policy all`" in words


def test_below_an_hour_nothing_is_said_of_idle_hours_and_cheaper_policies() -> None:
    other = replace(baseline("reactive", usd=0.02, measured_usd=0.06, attained=1.0), replayed_s=480.0)
    short = Capacity(hours=0.13, utilisation=0.1, idle_hours=0.13, idle_usd=0.03)
    assert advised(replace(FINE, baselines=(other,), capacity=short)) == ()


def test_amounts_are_written_as_everywhere_in_the_report() -> None:
    idle = replace(FINE, capacity=Capacity(hours=2.0, idle_hours=2.0, idle_usd=0.0312))
    small = money_of(CostUsd(instances=0.06, standby=0.0, lambda_=0.0, overhead=0.0))
    assert "0.0312 USD" in advice_of((idle,), service="vision", money=small)[0]


def test_lambda_is_named_where_it_is_most_of_the_cost() -> None:
    line = BillLine(component="lambda", item="duration", quantity=1.0, unit="GiB-s", usd=1000.0)
    assert "Lambda took 9" in said(replace(FINE, lines=(*FINE.lines, DayLine(day=FINE.lines[0].day, line=line))))


def test_offerings_that_were_never_chosen_are_counted_beyond_three() -> None:
    unused = tuple((f"type{number}", "dear" if number == 1 else "") for number in range(1, 6))
    words = said(replace(FINE, never_chosen=unused))
    assert "type1 (dear); type2; type3; and 2 more." in words


def test_of_several_models_the_dearest_promise_is_named() -> None:
    cheap = replace(FINE, name="digits", lines=FINE.lines[:3])
    words = said(FINE, cheap)
    rate = 1e6 * FINE.cost.total / FINE.answers.finished
    assert f"The objective of {FINE.name} (98 % in 600 ms) costs most: {rate:,.2f} USD a million" in words


def test_the_price_of_a_promise_is_not_told_after_a_few_requests() -> None:
    hardly = replace(FINE, name="digits", answers=Answers(instance=1))
    assert advised(FINE, hardly) == ()
