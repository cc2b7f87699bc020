"""`mark forecast`: flags and help of its commands."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

Predictor = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A name of docs/forecasters.md, module:attribute or file.py:Name."),
]
TrainDays = Annotated[
    float | None,
    typer.Option(
        metavar="DAYS", help="Learn from so many days, 14 at most: those before the start, or the first."
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the page; made where missing.")]

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
    "mark forecast show --trace load.csv.gz --predictor last-value --out forecast --json",
)


def train(
    *,
    trace: given.Trace = None,
    predictor: Predictor = None,
    train_days: TrainDays = None,
    start_s: Annotated[float | None, typer.Option(metavar="SECONDS", help="Learn from what lies before.")] = None,
    mean_rps: given.MeanRps = None,
    seed: given.Seed = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the card to a .json or .md file.")
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Train a forecaster before it is needed, and print its card.

    What it learned is kept in the cache, where a replay or a service with the same history and seed finds it.
    Without a start and a number of days, all of the trace is learned from.
    """
    settings = given.settings_from(
        config, trace__file=trace, trace__start_s=start_s, trace__mean_rps=mean_rps, seed=seed
    )
    from mark.offline.forecast.train import train_settings

    train_settings(settings, given.split_list(predictor), train_days=train_days, out=out, as_json=json)


def backtest(
    *,
    trace: given.Trace = None,
    predictor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,...", help="Forecasters, comma list; may repeat. Names, or one of your own."),
    ] = None,
    lead_min: Annotated[
        str | None, typer.Option(metavar="MIN,...", help="Score these minutes ahead; 1 to 60 when left out.")
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="KIND", help="mean, a minute's mean rate, or max, its highest 5 s rate.")
    ] = "mean",
    train_days: TrainDays = None,
    start_s: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Where the span starts; two thirds into the trace when left out."),
    ] = None,
    duration_s: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long the span lasts.")] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="HH:MM-HH:MM", help="Do not score this time of each day; comma list, may repeat."),
    ] = None,
    every_min: Annotated[
        int,
        typer.Option(
            metavar="MIN",
            help="Forecast each so many minutes; 7, say: 10 always meets the same minutes of the hour.",
        ),
    ] = 1,
    deadline_s: Annotated[
        float, typer.Option(metavar="SECONDS", help="A forecast that takes longer fails the forecaster.")
    ] = 2.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train anew, whatever the cache holds.")] = False,
    mean_rps: given.MeanRps = None,
    seed: given.Seed = None,
    out: Out = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Score forecasters on the same minutes of a trace.

    Each is built from what lies before the span and asked at every minute of it. docs/forecasters.md says what the
    scores mean. A forecaster that fails or is late is reported, the others go on, and the exit status is 2.
    """
    settings = given.settings_from(
        config,
        trace__file=trace,
        trace__start_s=start_s,
        trace__duration_s=duration_s,
        trace__mean_rps=mean_rps,
        seed=seed,
        out=out,
    )
    from mark.offline.forecast.backtest import BacktestOptions, backtest_settings

    options = BacktestOptions(
        predictors=given.split_list(predictor),
        leads=given.number_list("--lead-min", lead_min or ""),
        train_days=train_days,
        target=target,
        leave_out=given.split_list(leave_out),
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
        typer.Option(metavar="SECONDS", help="The moment on the trace's clock; its end when left out."),
    ] = None,
    mean_rps: given.MeanRps = None,
    seed: given.Seed = None,
    out: Out = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Show what a forecaster expects at one moment of a trace, and what came where that is known."""
    settings = given.settings_from(config, trace__file=trace, trace__mean_rps=mean_rps, seed=seed, out=out)
    from mark.offline.forecast.show import show_settings

    show_settings(settings, given.split_list(predictor), at_s=at, as_json=json)
