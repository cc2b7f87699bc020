"""`mark forecast`: flags and help of its commands."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.config.short_names import split_list

Predictor = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Forecaster: a name of `mark policies`, module:attribute or file.py:Name.  "
        "[default: forecaster of the "
        "settings]",
        autocompletion=complete.forecasters,
    ),
]
TrainDays = Annotated[
    float | None,
    typer.Option(
        metavar="DAYS",
        help="Days of history to train on, at most 14, up to the start.  [default: all there are, up to 14]",
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the page.  [default: no page]")]

TRAIN_EXAMPLES = (
    "mark forecast train --trace load.csv.gz --predictor last-value",
    "mark forecast train --trace load.csv.gz --predictor lstm-vanilla --start-s 300 --out card.md",
)
BACKTEST_EXAMPLES = (
    "mark forecast backtest --trace load.csv.gz --predictor last-value,seasonal-naive --start-s 300 --out scores",
    "mark forecast backtest --trace load.csv.gz --predictor last-value --lead-min 5 --target max --json",
)
SHOW_EXAMPLES = (
    "mark forecast show --trace load.csv.gz --predictor last-value --at 600",
    "mark forecast show --trace load.csv.gz --predictor last-value --json",
)


def train(
    *,
    trace: given.Trace = None,
    predictor: Predictor = None,
    train_days: TrainDays = None,
    start_s: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Train on what lies before.  [default: the whole trace]"),
    ] = None,
    mean_rps: given.MeanRps = None,
    seed: given.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the card to a .json or .md file.  [default: printed only]"),
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Train a forecaster ahead of time, and print its card.

    The trained forecaster is kept in the cache, where a replay or a service with the same history and seed finds
    it.
    """
    settings = given.settings_of(locals(), "trace", "start_s", "mean_rps", "seed")
    from mark.offline.forecast.train_forecaster import train_settings

    train_settings(settings, split_list(predictor), train_days=train_days, out=out, as_json=json)


def backtest(
    *,
    trace: given.Trace = None,
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="Forecasters to score: names, module:attribute or file.py:Name; may repeat.  "
            "[default: forecaster of "
            "the settings]",
            autocompletion=complete.forecasters,
        ),
    ] = None,
    lead_min: Annotated[
        str | None, typer.Option(metavar="MIN,...", help="Leads to score, minutes ahead.  [default: 1 to 60]")
    ] = None,
    target: Annotated[
        str,
        given.choice("mean|max", "Score a minute's mean rate, or its highest 5 s rate."),
    ] = "mean",
    train_days: TrainDays = None,
    start_s: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Start of the scored span.  [default: two thirds into the trace]"),
    ] = None,
    duration_s: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of the span.  [default: to the end]")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="HH:MM-HH:MM", help="Time of day not to score; may repeat.  [default: none]"),
    ] = None,
    every_min: Annotated[
        int,
        typer.Option(
            metavar="MIN",
            help="Minutes between two forecasts; a prime, such as 7, covers all minutes of the hour.",
        ),
    ] = 1,
    deadline_s: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time limit of one forecast; a forecaster that exceeds it fails."),
    ] = 2.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train again, even where the cache has it.")] = False,
    mean_rps: given.MeanRps = None,
    seed: given.Seed = None,
    out: Out = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Score forecasters on the same minutes of a trace.

    Each is trained on what lies before the span and forecasts at every minute of it. docs/forecasters.md
    explains the scores. A forecaster that fails or is late is reported; the others go on, and the exit status is
    2.
    """
    settings = given.settings_of(locals(), "trace", "start_s", "duration_s", "mean_rps", "seed", "out")
    from mark.offline.forecast.backtest import BacktestOptions, backtest_settings

    options = BacktestOptions(
        predictors=split_list(predictor),
        leads=given.number_list("--lead-min", lead_min or ""),
        train_days=train_days,
        target=target,
        leave_out=split_list(leave_out),
        every_min=every_min,
        deadline_s=deadline_s,
        fresh=fresh,
    )
    backtest_settings(settings, options, as_json=json)


def show(
    *,
    trace: given.Trace = None,
    predictor: Predictor = None,
    at: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Moment on the trace's clock.  [default: its end]"),
    ] = None,
    mean_rps: given.MeanRps = None,
    seed: given.Seed = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Show a forecast at one moment of a trace, and what came."""
    settings = given.settings_of(locals(), "trace", "mean_rps", "seed")
    from mark.offline.forecast.show import show_settings

    show_settings(settings, split_list(predictor), at_s=at, as_json=json)
