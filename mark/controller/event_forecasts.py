"""Announced events in forecasts: added to what a forecaster expects, and taken out of what it is shown. Pure.

An event expects a multiple of the load that would come without it, or so many requests/s at least, from one
instant to another. A forecaster knows nothing of it. So its forecast is multiplied in that time, and what the
event brought is taken out of the history that it is shown: else it would forecast the event's load as the usual
one, to be multiplied again, and a seasonal forecaster would expect the event once more a day and a week later.

What an event brought is measured against the hour before it, unit by unit (`before` is that hour's mean):

    without = rate                        where rate <= before: nothing came of it
              max(before, rate / factor)  where more came

so that a forecast in an event whose load came as announced is that load; where more came, it is more; where
nothing came, the announcement still stands; and a forecast after the event is the usual one. An event of so many
requests/s takes nothing out: it is a least rate, and the forecaster sees what comes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from mark.domain.demand import Demand, Forecast
from mark.domain.load.announced_events import AnnouncedEvent, Events

BEFORE_S = 3600.0
"""What an event's load is measured against: the mean of so long before it."""
MOST_RPS = 1e12
"""Events at once multiply: no more than this, so that a hundred of them stay a number."""


def _events_in(events: Sequence[AnnouncedEvent], forecast: Forecast) -> Events:
    """Those that change a forecast."""
    end_at = forecast.start_at + len(forecast) * forecast.unit_s
    return tuple(event for event in events if event.touches(forecast.start_at, end_at))


def with_events(forecast: Forecast, events: Sequence[AnnouncedEvent]) -> Forecast:
    """The forecast with what the events expect, in each unit that one of them touches."""
    found = _events_in(events, forecast)
    for event in found:
        touched = _touched(event, forecast.start_at, len(forecast), forecast.unit_s)
        forecast = replace(
            forecast,
            mean_rps=_expecting(event, forecast.mean_rps, touched),
            max_rps=_expecting(event, forecast.max_rps, touched),
        )
    return replace(forecast, events=found) if found else forecast


def without_events(history: Demand, events: Sequence[AnnouncedEvent]) -> Demand:
    """The history as it would have been without the events; later ones are measured against what is left."""
    start_at = history.end_at - len(history) * history.unit_s
    for event in sorted(events, key=lambda event: (event.at, event.name)):
        if event.factor <= 1.0 or not event.touches(start_at, history.end_at):
            continue
        touched = _touched(event, start_at, len(history), history.unit_s)
        first = touched.start
        before = slice(max(0, first - round(BEFORE_S / history.unit_s)), first)
        history = replace(
            history,
            mean_rps=_usual(event, history.mean_rps, touched, before),
            max_rps=_usual(event, history.max_rps, touched, before),
        )
    return history


def _touched(event: AnnouncedEvent, start_at: float, units: int, unit_s: float) -> range:
    """The units, counted from `start_at`, that an event touches, by bisection: a history has weeks of them."""
    places = range(units)
    first = bisect_right(places, event.at, key=lambda at: start_at + (at + 1) * unit_s)
    return range(first, max(first, bisect_left(places, event.until, key=lambda at: start_at + at * unit_s)))


def _expecting(
    event: AnnouncedEvent, rates: tuple[tuple[float, ...], ...], touched: range
) -> tuple[tuple[float, ...], ...]:
    return tuple(
        tuple(max(rate, event.least_rps, min(event.factor * rate, MOST_RPS)) for rate in row)
        if at in touched
        else row
        for at, row in enumerate(rates)
    )


def _usual(event: AnnouncedEvent, rates: tuple[float, ...], touched: range, before: slice) -> tuple[float, ...]:
    reference = rates[before]
    # a service that began within the event knows no load before it
    usual = sum(reference) / len(reference) if reference else 0.0
    without = (max(min(rate, usual), rate / event.factor) for rate in rates[touched.start : touched.stop])
    return (*rates[: touched.start], *without, *rates[touched.stop :])
