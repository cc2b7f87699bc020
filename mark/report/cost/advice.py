"""Advice on a service's cost: sentences with their numbers, the ones that matter most first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mark.report.cost.cost_report import LEAST_REQUESTS, ModelReport
from mark.report.formatting import format_duration, percent
from mark.report.mail.formatting import Money

IDLE_WORTH = 0.05
"""Idle hours are told of from this share of the hours on."""
LEAST_HOURS = 1.0
"""Of less than an hour nothing is said that one could save: it is mostly how a service begins."""
DEAR_OVERFLOW = 0.3
"""Lambda is told of when it takes this share of what serving costs."""
MILLION = 1e6
HOUR_S = 3600.0
MOST_NEVER_CHOSEN = 3


def advice_of(models: Sequence[ModelReport], *, service: str, money: Money) -> tuple[str, ...]:
    """Of all models of a service, amounts written by `money`; one of several is named."""
    named = len(models) > 1
    found = []
    for model in models:
        journal = f"{service} --model {model.name}" if named else service
        sentences = (
            *_missed(model),
            *_cheaper(model, journal, money),
            *_idle(model, money),
            *_overflow(model),
            *_unused(model),
        )
        found += [f"{model.name}: {sentence}" if named else sentence for sentence in sentences]
    return (*found, *_dearest_objective(models, money))


def _missed(model: ModelReport) -> Iterable[str]:
    burn, attained = model.answers.burn(model.slo.target), model.answers.attained
    if burn is not None and attained is not None and burn > 1:
        worst = max(model.days, key=lambda item: item.answers.burn(model.slo.target) or 0.0)
        yield (
            f"The objective was missed: {percent(attained, digits=2)} in time, {percent(model.slo.target)} "
            f"promised, most on {worst.day:%-d %b}. `mark explain` says what was decided then."
        )


def _cheaper(model: ModelReport, journal: str, money: Money) -> Iterable[str]:
    """A baseline that kept the objective for less than we did; `journal` names the arrivals to `mark simulate`."""
    long = [one for one in model.baselines if one.replayed_s >= LEAST_HOURS * HOUR_S and not one.uses_truth]
    kept = [one for one in long if one.attained is None or one.attained >= model.slo.target]
    best = min(kept, key=lambda one: one.usd, default=None)
    if best is not None and best.usd < best.measured_usd:
        yield (
            f"{best.policy} would have kept the objective for {money(best.usd)} USD, "
            f"{money(best.measured_usd - best.usd)} less than {model.policy} took. "
            f"`mark simulate --journal {journal} --policy all` compares them."
        )


def _idle(model: ModelReport, money: Money) -> Iterable[str]:
    used = model.capacity
    if used.idle_hours >= LEAST_HOURS and used.idle_hours >= IDLE_WORTH * used.hours:
        yield (
            f"In {used.idle_hours:,.0f} of {used.hours:,.0f} hours less than a tenth of the ready capacity was "
            f"used; they cost {money(used.idle_usd)} USD. Smaller types or more overflow would cost less."
        )


def _overflow(model: ModelReport) -> Iterable[str]:
    cost, serving_usd = model.cost, model.serving_usd
    if serving_usd > 0 and cost.lambda_ > DEAR_OVERFLOW * serving_usd:
        yield (
            f"Lambda took {percent(cost.lambda_ / serving_usd, digits=0)} of the serving cost, for "
            f"{percent(model.answers.overflow or 0.0, digits=1)} of the requests."
        )


def _unused(model: ModelReport) -> Iterable[str]:
    if not model.never_chosen:
        return
    shown = model.never_chosen[:MOST_NEVER_CHOSEN]
    words = "; ".join(f"{name}{f' ({reason})' if reason else ''}" for name, reason in shown)
    more = len(model.never_chosen) - len(shown)
    yield f"Never chosen: {words}{f'; and {more} more' if more else ''}."


def _dearest_objective(models: Sequence[ModelReport], money: Money) -> Iterable[str]:
    """Objective with the highest cost a request; with one model there is nothing to compare."""
    busy = [model for model in models if model.answers.finished >= LEAST_REQUESTS]
    if len(busy) < 2:
        return
    rates = {model.name: MILLION * model.usd / model.answers.finished for model in busy}
    dearest = max(busy, key=lambda model: rates[model.name])
    others = ", ".join(f"{model.name} {money(rates[model.name])}" for model in busy if model is not dearest)
    promise = f"{percent(dearest.slo.target)} in {format_duration(dearest.slo.latency_s)}"
    yield (
        f"The objective of {dearest.name} ({promise}) costs most: {money(rates[dearest.name])} USD a million "
        f"requests ({others})."
    )
