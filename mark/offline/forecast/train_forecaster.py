"""`mark forecast train`: make a forecaster ready before it is needed, and print its card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from mark.config.policies import usable_cache
from mark.config.settings import Settings
from mark.domain.demand import Demand
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.offline.forecast.forecasters import Built, ask, build, check_predictor, history_units, split_workload
from mark.offline.workloads import chosen_workload
from mark.report.files import make_folder, write_whole
from mark.report.forecast.forecast_documents import plain
from mark.report.forecast.forecast_table import card_lines, card_table
from mark.report.formatting import format_duration
from mark.report.terminal import progress, show, show_json

FORMS = (".json", ".md")


class TrainDocument(TypedDict):
    """The document of `mark forecast train --json` (docs/json.md)."""

    predictor: str
    trace: str
    #: Length of what it learned from.
    history_s: float
    #: How long that took.
    train_s: float
    #: How a first forecast was made; null where it failed.
    source: str | None
    #: What it says of itself.
    card: Mapping[str, object] | None


def train_settings(
    settings: Settings, predictors: list[str], *, train_days: float | None, out: Path | None, as_json: bool
) -> None:
    """Build one forecaster on the history that a replay from the same start would give it; weights are cached.

    Without a start or a number of days all of the trace is learned from.
    """
    name = check_predictor(predictors, settings)
    if out is not None and out.suffix not in FORMS:
        raise Misconfigured(f"--out {out}: a card is written as .json or .md")
    units = history_units(train_days)
    if settings.trace.start_s or train_days is not None:
        workload = split_workload(settings, train_days)
        until_s = workload.whole_seconds[0]
    else:
        workload = chosen_workload(settings)
        until_s = workload.whole_seconds[1]
    history = workload.history(until_s, units)
    if out is not None:
        make_folder(out.parent)
    with progress() as report:
        built = build(name, history, workload=workload, cache_dir=usable_cache(), report=report)
        source, failure = _format_first_forecast(built, history)
    document = _document(built, workload.trace.name, len(history) * history.unit_s, source)
    if out is not None:
        write_whole(out, _written(document, out.suffix))
    if as_json:
        show_json(document)
    else:
        _print(document, out)
    if failure is not None:
        raise failure


def _format_first_forecast(built: Built, history: Demand) -> tuple[str | None, Misconfigured | None]:
    """Result of a first forecast: whether it learned, what is missing, or why there is none."""
    try:
        forecast, _ = ask(built, history)
    except Misconfigured as error:
        return None, error
    return forecast.label, None


def _print(document: TrainDocument, out: Path | None) -> None:
    name, days = document["predictor"], format_duration(document["history_s"])
    made = f"{name} took {document['train_s']:.1f} s, made from {days} of {document['trace']}"
    show(f"{made}; its forecasts are labelled: {document['source']}" if document["source"] else f"{made}.")
    if document["card"]:  # what learns nothing, or in a second, has none
        show(card_table(document["card"]))
    if out is not None:
        show(f"card: {out}")


def _document(built: Built, trace: str, history_s: float, source: str | None) -> TrainDocument:
    return {
        "predictor": built.name,
        "trace": trace,
        "history_s": history_s,
        "train_s": built.train_s,
        "source": source,
        "card": plain(built.card),
    }


def _written(document: TrainDocument, suffix: str) -> str:
    if suffix == ".json":
        return json_text(document, indent=2) + "\n"
    head = [("trace", document["trace"]), ("history", format_duration(document["history_s"]))]
    rows = [*head, *card_lines(document["card"] or {})]
    lines = [f"| {key.replace('|', '/')} | {value.replace('|', '/')} |" for key, value in rows]
    return "\n".join([f"# {document['predictor']}", "", "| | |", "|---|---|", *lines, ""])
