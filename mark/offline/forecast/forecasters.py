"""Forecasters on a trace: which part they learn from, how they are built, and what their cards say."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mark.config.settings import Settings
from mark.controller.runner import check_forecast
from mark.domain.demand import HORIZON, KEEP_HISTORY, UNIT_S, Demand, Forecast
from mark.domain.errors import Misconfigured, failure_words
from mark.offline.workloads import chosen_workload
from mark.plugins.load import build_forecaster, load_forecaster
from mark.ports import Forecaster, ForecasterSetup
from mark.report.formatting import format_duration
from mark.report.terminal import Report, note
from mark.simulator.backtest import DAY_S
from mark.simulator.backtest_span import demand_between
from mark.simulator.workload import Workload

LEARNT_SHARE = 2 / 3
"""Of the trace, where nothing says how much of it is for learning."""
MAX_TRAIN_DAYS = KEEP_HISTORY * UNIT_S / DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A forecaster, how long it took to make (training included), and its card where it has one."""

    name: str
    forecaster: Forecaster
    train_s: float
    card: Mapping[str, Any] | None


def split_workload(settings: Settings, train_days: float | None) -> Workload:
    """The trace, its replayed part being what is forecast.

    That begins at `trace.start_s`, or after `train_days`, or after two thirds of the trace.
    """
    workload = chosen_workload(settings)
    trace = workload.trace
    start_s = settings.trace.start_s
    if start_s == 0:
        share_s = math.floor(trace.duration_s * LEARNT_SHARE / UNIT_S) * UNIT_S
        start_s = share_s if train_days is None else train_days * DAY_S
        if train_days is not None and start_s >= trace.duration_s:
            raise Misconfigured(
                f"--train-days {train_days:g} leaves nothing to forecast of {trace.name}, which has "
                f"{format_duration(trace.duration_s)}; learn from fewer days"
            )
    split = Workload(trace=trace, seed=settings.seed, start_s=start_s, duration_s=settings.trace.duration_s)
    for text in split.notes:
        note(text)
    return split


def history_units(train_days: float | None) -> int:
    """Units of history to learn from; Misconfigured for more than a forecaster is shown."""
    if train_days is None:
        return KEEP_HISTORY
    units = round(train_days * DAY_S / UNIT_S)
    if not 0 < units <= KEEP_HISTORY:
        raise Misconfigured(
            f"--train-days must be above 0 and at most {MAX_TRAIN_DAYS:g}, which is what a forecaster is shown, "
            f"not {train_days:g}"
        )
    return units


def check_predictors(names: list[str], settings: Settings) -> list[str]:
    """The names, each once, or the settings' forecaster. Misconfigured for none, or one that does not load."""
    if not names and settings.forecaster:
        names = [settings.forecaster]
    if not names:
        raise Misconfigured("name a forecaster with --predictor; `mark policies` lists them")
    for name in names:
        load_forecaster(name)
    return list(dict.fromkeys(names))


def check_predictor(names: list[str], settings: Settings) -> str:
    """The one name. Misconfigured where there are several, or it does not load."""
    name, *others = check_predictors(names, settings)
    if others:
        raise Misconfigured(f"one forecaster at a time, not {', '.join([name, *others])}")
    return name


def build(name: str, history: Demand, *, workload: Workload, cache_dir: Path | None, report: Report) -> Built:
    """Make the forecaster `name` from `history`. Only an oracle looks at the load to come.

    Raises Misconfigured where it cannot be made.
    """
    known_until = min(workload.trace.duration_s, workload.end_s + HORIZON * UNIT_S)
    report(f"building {name}", 0.0)
    setup = ForecasterSetup(
        history=history,
        seed=workload.seed,
        cache_dir=cache_dir,
        progress=report,
    ).with_truth(demand_between(workload, history.end_at, known_until))
    began = time.perf_counter()
    forecaster = build_forecaster(name, setup)
    train_s = time.perf_counter() - began
    card = getattr(forecaster, "card", None)
    return Built(
        name=name, forecaster=forecaster, train_s=train_s, card=card if isinstance(card, Mapping) else None
    )


def ask(built: Built, history: Demand) -> tuple[Forecast, float]:
    """The forecast and the seconds it took. Misconfigured where it fails."""
    began = time.perf_counter()
    try:
        forecast = built.forecaster.forecast(history, HORIZON)
        check_forecast(forecast, history, HORIZON)
    except (Exception, SystemExit) as error:  # a user's forecaster may fail in any way; the cause is chained
        raise Misconfigured(f"{built.name} failed: {failure_words(error)}") from error
    return forecast, time.perf_counter() - began
