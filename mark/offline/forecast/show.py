"""`mark forecast show`: one forecast, from one moment of a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from mark.config.policies import usable_cache
from mark.config.settings import Settings
from mark.domain.demand import HORIZON, UNIT_S, Demand, Forecast
from mark.domain.errors import Misconfigured
from mark.offline.forecast.forecasters import Built, ask, build, check_predictor
from mark.offline.workloads import chosen_workload
from mark.report.forecast.forecast_table import forecast_table
from mark.report.formatting import format_duration
from mark.report.terminal import Report, progress, show, show_json
from mark.simulator.backtest_span import demand_between, history_before
from mark.simulator.workload import Workload


class ShownMinute(TypedDict):
    """A minute of a forecast, rates by quantile; what came is null where it is not known."""

    minute: int
    mean_rps: list[float]
    max_rps: list[float]
    actual_mean_rps: float | None
    actual_max_rps: float | None


class ShownForecast(TypedDict):
    """The document of `mark forecast show --json` (docs/json.md)."""

    predictor: str
    trace: str
    at_s: float
    history_min: int
    source: str
    quantiles: list[float]
    minutes: list[ShownMinute]
    train_s: float
    infer_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A forecast from a moment of a load, and what came."""

    document: ShownForecast
    forecast: Forecast
    actual: Demand


def show_settings(settings: Settings, predictors: list[str], *, at_s: float | None, as_json: bool) -> None:
    """Print the forecast from `at_s` on the trace's clock, the trace's end where left out."""
    name = check_predictor(predictors, settings)
    workload = chosen_workload(settings)
    with progress() as report:
        shown = forecast_at(workload, name, at_s, report)
    document, forecast = shown.document, shown.forecast
    if as_json:
        show_json(document)
    else:
        at, known = f"{document['at_s']:.10g} s", format_duration(document["history_min"] * UNIT_S)
        show(f"{name} at {at} of {document['trace']}, after {known}: {forecast.label or 'no source'}")
        show("", forecast_table(forecast, shown.actual))


def forecast_at(workload: Workload, name: str, at_s: float | None, report: Report) -> Shown:
    """The forecast of a forecaster from `at_s` on the trace's clock, the trace's end where left out.

    Misconfigured where the moment lies outside of the trace.
    """
    end_s = math.floor(workload.trace.duration_s)
    at_s = float(end_s if at_s is None else math.floor(at_s))
    if not UNIT_S <= at_s <= end_s:
        raise Misconfigured(f"--at must lie from {UNIT_S:g} to {end_s} s, within the trace, not at {at_s:g}")
    history = history_before(workload, at_s)
    built = build(name, history, workload=workload, cache_dir=usable_cache(), report=report)
    forecast, infer_s = ask(built, history)
    actual = demand_between(workload, at_s, min(end_s, at_s + HORIZON * UNIT_S))
    document = _document(built, workload, history, forecast, actual, infer_s)
    return Shown(document=document, forecast=forecast, actual=actual)


def _document(
    built: Built, workload: Workload, history: Demand, forecast: Forecast, actual: Demand, infer_s: float
) -> ShownForecast:
    minutes: list[ShownMinute] = [
        {
            "minute": place + 1,
            "mean_rps": [float(rate) for rate in forecast.mean_rps[place]],
            "max_rps": [float(rate) for rate in forecast.max_rps[place]],
            "actual_mean_rps": actual.mean_rps[place] if place < len(actual) else None,
            "actual_max_rps": actual.max_rps[place] if place < len(actual) else None,
        }
        for place in range(len(forecast))
    ]
    return {
        "predictor": built.name,
        "trace": workload.trace.name,
        "at_s": history.end_at,
        "history_min": len(history),
        "source": forecast.label,
        "quantiles": [float(level) for level in forecast.quantiles],
        "minutes": minutes,
        "train_s": built.train_s,
        "infer_ms": 1000 * infer_s,
    }
