"""Backtest of a forecaster: its forecast at each minute of a span (rolling origin) against the outcomes.

Forecasters are called through their port alone, as the controller calls them: with the units that had ended, two
weeks of them at most, for a whole horizon. A pair of an origin and a lead is scored where its target lies within
the span, so that nothing beyond it is looked at. All answers are brought to the same levels first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.controller.runner import check_forecast
from mark.domain.demand import HORIZON, KEEP_HISTORY, Demand, Forecast
from mark.domain.errors import Misconfigured
from mark.ports import Forecaster
from mark.simulator import scores
from mark.simulator.scores import SCORED_LEVELS, Floats

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TARGETS = ("mean", "max")
"""Targets of a minute: its mean rate, or its highest 5 s rate."""
KEPT_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Levels at which forecasts are kept: those that are scored, and those that a plot draws beside them."""
MEDIAN = KEPT_LEVELS.index(0.5)
SCORED = tuple(KEPT_LEVELS.index(level) for level in SCORED_LEVELS)
DAY_S = 86_400.0
ForecastSource = tuple[str, str | None]
"""A forecast's `source` and `degraded`."""
MOST_SOURCES = 3
"""Sources of its forecasts that are passed on of a forecaster, at most."""
STEPS = 200
"""Reports of progress at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BacktestSpan:
    """The task of every forecaster alike."""

    trace: str
    #: Load before the first origin.
    history: Demand
    #: Units of the span.
    future: Demand
    #: False where a unit is not scored, shape (units,).
    kept: Flags
    #: Leads that are scored, units, rising: 1 is the next one.
    leads: tuple[int, ...]
    #: Lead, one of those, at which forecasts are kept for a plot.
    drawn_lead: int
    #: One of TARGETS.
    target: str = "mean"
    #: Units between two origins.
    every: int = 1

    def __post_init__(self) -> None:
        if not len(self.future):
            raise Misconfigured("a backtest needs a whole minute at least; give a longer span")
        if not self.kept.any():
            raise Misconfigured("every minute of the span is left out: nothing is left to score")
        if not len(self.origins):
            raise Misconfigured(f"the span has {len(self.future)} minutes: too few for a lead of {self.leads[0]}")

    @property
    def origins(self) -> Ints:
        """Units of the span that are known at each origin, shape (origins,)."""
        return np.arange(0, len(self.future) - self.leads[0] + 1, self.every)

    @property
    def day_units(self) -> int:
        """Units of a day."""
        return round(DAY_S / self.future.unit_s)

    def rates(self, demand: Demand) -> Floats:
        """The target's rates, shape (units,)."""
        return np.array(demand.mean_rps if self.target == "mean" else demand.max_rps)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadScore:
    """Scores of one lead over all origins."""

    lead: int
    wape: float
    wql: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DayScore:
    """Coverage of one day of the span, counted from 1. coverage: shape (kept levels,)."""

    day: int
    pairs: int
    coverage: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeadPath:
    """Forecasts at one lead beside the outcomes."""

    #: Units.
    lead: int
    #: Starts of the target units, seconds since the span's start, shape (origins,).
    at_s: Floats
    #: Outcomes, requests/s, shape (origins,).
    actual: Floats
    #: Forecasts, requests/s, shape (origins, kept levels).
    quantiles: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BacktestScores:
    """One forecaster's scores, over `pairs` of an origin and a lead. coverage: shape (kept levels,)."""

    origins: int
    pairs: int
    wape: float
    wql: float
    mase: float
    coverage: Floats
    by_lead: tuple[LeadScore, ...]
    by_day: tuple[DayScore, ...]
    path: LeadPath
    levels: int
    notes: tuple[str, ...] = ()


def run_backtest(span: BacktestSpan, forecaster: Forecaster, progress: Callable[[float], None]) -> BacktestScores:
    """Ask `forecaster` at every origin and score it. `progress` is called with the share done.

    Raises Misconfigured, in one line, where the forecaster raises or answers what the controller would refuse.
    """
    answers, levels, sources = _ask(span, forecaster, progress)
    notes = (*_level_notes(levels, len(span.origins)), *_source_notes(sources))
    return _score(span, answers, max(len(own) for own in levels), notes)


def _ask(
    span: BacktestSpan, forecaster: Forecaster, progress: Callable[[float], None]
) -> tuple[Floats, Counter[tuple[float, ...]], list[ForecastSource]]:
    """Answers, shape (origins, leads, kept levels), how often which levels came with them, and their sources."""
    known = len(span.history)
    means = (*span.history.mean_rps, *span.future.mean_rps)
    maxima = (*span.history.max_rps, *span.future.max_rps)
    origins, rows = span.origins, np.array(span.leads) - 1
    answers = np.empty((len(origins), len(rows), len(KEPT_LEVELS)))
    levels: Counter[tuple[float, ...]] = Counter()
    sources: list[ForecastSource] = []
    step = max(1, len(origins) // STEPS)
    for place, origin in enumerate(origins.tolist()):
        units = slice(max(0, known + origin - KEEP_HISTORY), known + origin)
        end_at = span.history.end_at + origin * span.future.unit_s
        history = Demand(end_at=end_at, mean_rps=means[units], max_rps=maxima[units], unit_s=span.future.unit_s)
        forecast = _forecast(forecaster, history, minute=origin)
        rates = np.array(forecast.mean_rps if span.target == "mean" else forecast.max_rps)
        answers[place] = scores.at_levels(rates[rows], forecast.quantiles, KEPT_LEVELS)
        levels[tuple(forecast.quantiles)] += 1
        sources.append((forecast.source, forecast.degraded))
        if place % step == 0:
            progress((place + 1) / len(origins))
    return answers, levels, sources


def _forecast(forecaster: Forecaster, history: Demand, *, minute: int) -> Forecast:
    try:
        forecast = forecaster.forecast(history, HORIZON)
        check_forecast(forecast, history, HORIZON)
    except Exception as error:  # a user's forecaster may fail in any way; the cause is chained
        reason = " ".join(str(error).split()) or "no message"
        raise Misconfigured(f"{type(error).__name__} at minute {minute} of the span: {reason}") from error
    return forecast


def _score(span: BacktestSpan, answers: Floats, levels: int, notes: tuple[str, ...]) -> BacktestScores:
    """answers: shape (origins, leads, kept levels)."""
    units = len(span.future)
    targets: Ints = span.origins[:, None] + np.array(span.leads)[None, :] - 1
    inside = targets < units
    targets = np.minimum(targets, units - 1)
    scored = inside & span.kept[targets]
    actual = span.rates(span.future)[targets]
    naive = scores.seasonal_error(span.rates(span.history), span.day_units)
    median = answers[..., MEDIAN]
    return BacktestScores(
        origins=len(answers),
        pairs=int(scored.sum()),
        wape=scores.absolute_percentage(actual[scored], median[scored]),
        wql=_wql(actual[scored], answers[scored]),
        mase=scores.scaled_error(actual[scored], median[scored], naive_error=naive),
        coverage=scores.coverage(actual[scored], answers[scored]),
        by_lead=tuple(
            LeadScore(
                lead=lead,
                wape=scores.absolute_percentage(actual[here, column], median[here, column]),
                wql=_wql(actual[here, column], answers[here, column]),
            )
            for column, (lead, here) in enumerate(zip(span.leads, scored.T, strict=True))
        ),
        by_day=_by_day(targets // span.day_units, scored, actual, answers),
        path=_path(span, inside, targets, actual, answers),
        levels=levels,
        notes=notes,
    )


def _wql(actual: Floats, answers: Floats) -> float:
    return scores.weighted_quantile_loss(actual, answers[:, SCORED], SCORED_LEVELS)


def _by_day(days: Ints, scored: Flags, actual: Floats, answers: Floats) -> tuple[DayScore, ...]:
    """days, scored, actual: shape (origins, leads); days of the span that hold nothing scored are left out."""
    found = []
    for day in np.unique(days[scored]).tolist():
        here = scored & (days == day)
        covered = scores.coverage(actual[here], answers[here])
        found.append(DayScore(day=day + 1, pairs=int(here.sum()), coverage=covered))
    return tuple(found)


def _path(span: BacktestSpan, inside: Flags, targets: Ints, actual: Floats, answers: Floats) -> LeadPath:
    column = span.leads.index(span.drawn_lead)
    here = inside[:, column]
    return LeadPath(
        lead=span.drawn_lead,
        at_s=targets[here, column] * span.future.unit_s,
        actual=actual[here, column].copy(),
        quantiles=answers[here, column].copy(),  # not a view: the answers are large
    )


def _level_notes(levels: Counter[tuple[float, ...]], total: int) -> tuple[str, ...]:
    """Notes on the values that stand in for levels that a forecaster does not give."""
    notes = []
    points = sum(count for own, count in levels.items() if len(own) == 1)
    if points:
        which = "point forecasts" if points == total else f"{points} of {total} forecasts are points"
        notes.append(f"{which}: the one value is scored as every quantile")
    lowest = min((max(own) for own in levels if len(own) > 1), default=1.0)
    if lowest < max(SCORED_LEVELS):
        notes.append(f"no level above {lowest:g}: that one is scored as those above it")
    return tuple(notes)


def _source_notes(sources: Sequence[ForecastSource]) -> tuple[str, ...]:
    """A note on the sources of a forecaster's forecasts, where they differ in name or some are degraded."""
    counts = Counter((source, degraded is not None) for source, degraded in sources)
    if len(counts) == 1:
        return ()
    first = {(source, degraded is not None): degraded for source, degraded in reversed(sources)}
    named = [
        f"{key[0]}, degraded ({count} times, first: {first[key]})" if first[key] else f"{key[0]} ({count} times)"
        for key, count in counts.most_common(MOST_SOURCES)
    ]
    if len(counts) > MOST_SOURCES:
        named.append(f"{len(counts) - MOST_SOURCES} more")
    return (f"sources of its forecasts: {'; '.join(named)}",)
