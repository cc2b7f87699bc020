"""Backtests on paper: who is best, a table that fits, and a page that needs nothing beside it."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from mark.domain.demand import Demand, Forecast
from mark.report.forecast.forecast_documents import (
    BacktestRun,
    backtest_document,
    backtest_headline,
    format_leads,
    least_of,
    marked_scores,
    plain,
    scored_runs,
)
from mark.report.forecast.forecast_page import render_backtest, write_backtest
from mark.report.forecast.forecast_table import backtest_table, card_table, forecast_table
from mark.simulator.backtest import MEDIAN, BacktestSpan, run_backtest
from tests.report.browser import look_at, needs_browser
from tests.report.outline import outline

EVIL = "<b>evil</b> & $x$ [bold]b[/bold] one.module.of.mine:ForecasterWithAVeryLongNameIndeed"
LEVELS = (0.1, 0.5, 0.9)


class Shaped:
    """The last value, times a factor a level."""

    def __init__(self, factors: tuple[float, ...]) -> None:
        self.factors = factors

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        def row(last: float) -> tuple[float, ...]:
            return tuple(last * factor for factor in self.factors)

        return Forecast(
            start_at=history.end_at,
            mean_rps=(row(history.mean_rps[-1]),) * horizon,
            max_rps=(row(history.max_rps[-1]),) * horizon,
            quantiles=LEVELS if len(self.factors) > 1 else (0.5,),
        )


def sine(units: int, first: int = 0) -> Demand:
    places = np.arange(first, first + units)
    means = 60 - 40 * np.cos(2 * np.pi * places / 1440) + 5 * np.sin(places * 1.7)
    return Demand(end_at=60.0 * (first + units), mean_rps=tuple(means), max_rps=tuple(1.2 * means))


def span(units: int = 900, *, leads: tuple[int, ...] = (1, 5, 60)) -> BacktestSpan:
    known = 1500
    return BacktestSpan(
        trace="sine",
        history=sine(known),
        future=sine(units, known),
        kept=np.ones(units, dtype=np.bool_),
        leads=leads,
        drawn_lead=5,
        every=3,
    )


ASKED = span()


def run(name: str, *factors: float, asked: BacktestSpan = ASKED) -> BacktestRun:
    scores = run_backtest(asked, Shaped(factors or (1.0,)), lambda _share: None)
    return BacktestRun(
        predictor=name,
        trace="sine",
        target="mean",
        scores=scores,
        train_s=12.0,
        infer_ms=0.3,
        card={"a": (1, 2.5)},
    )


BANDS, POINT = run("bands", 0.85, 1.0, 1.15), run("point")
FAILED = BacktestRun(predictor="broken", trace="sine", target="mean", error="ValueError: <none>")
RUNS = (POINT, BANDS, FAILED)


def printed(table: object) -> list[str]:
    written = io.StringIO()
    Console(width=100, file=written).print(table)
    return written.getvalue().splitlines()


def test_the_least_loss_is_the_best_and_failures_and_blanks_are_none() -> None:
    blank = replace(BANDS, predictor="blank", scores=replace(BANDS.scores, wql=math.nan))  # type: ignore[type-var]

    assert BANDS.scores is not None
    assert POINT.scores is not None
    assert BANDS.scores.wql < POINT.scores.wql
    assert least_of((FAILED, blank, POINT, BANDS), "wql") == BANDS.scores.wql
    assert math.isnan(least_of((FAILED,), "wql"))
    twin = replace(BANDS, predictor="twin")
    assert not marked_scores(POINT.scores, (POINT, BANDS, twin))[0][1]
    assert marked_scores(BANDS.scores, (BANDS, twin))[0] == (f"{BANDS.scores.wql:.4f}", True)
    assert [item[0].predictor for item in scored_runs(RUNS)] == ["point", "bands"]


def test_the_headline_says_by_how_much() -> None:
    assert BANDS.scores is not None
    assert POINT.scores is not None
    less = 100 * (1 - BANDS.scores.wql / POINT.scores.wql)

    assert backtest_headline(RUNS) == (
        f"bands forecasts best: its weighted quantile loss is {BANDS.scores.wql:.4f}, {less:.1f} % below point's."
    )
    assert backtest_headline((POINT,)) == f"point has a weighted quantile loss of {POINT.scores.wql:.4f}."
    assert backtest_headline((POINT, replace(POINT, predictor="twin"))).endswith(", and so has twin.")
    assert backtest_headline((FAILED,)).startswith("Nothing arrived")


@pytest.mark.parametrize(
    ("leads", "words"), [((5,), "5 min"), ((1, 2), "1, 2 min"), ((1, 2, 3), "1 to 3 min"), ((1, 5), "1, 5 min")]
)
def test_leads_in_words(leads: tuple[int, ...], words: str) -> None:
    assert format_leads(leads) == words


def test_the_document_is_plain_json() -> None:
    odd = replace(POINT, card={"level": (0.5, math.inf), "path": Path("x"), "deep": {1: None, "b": True}})

    document = json.loads(json.dumps(backtest_document((odd, FAILED), ASKED, ["23:31-24:00"]), allow_nan=False))

    assert document["runs"][0]["card"] == {"level": [0.5, None], "path": "x", "deep": {"1": None, "b": True}}
    assert document["runs"][1]["wql"] is None
    assert document["runs"][1]["error"] == "ValueError: <none>"
    assert set(document["runs"][1]) == set(document["runs"][0])
    assert document["span"]["leave_out"] == ["23:31-24:00"]
    assert plain(None) is None


def test_the_table_fits_and_marks_the_best() -> None:
    lines = printed(backtest_table((replace(BANDS, predictor=EVIL), *RUNS), ASKED))

    assert max(len(line.rstrip()) for line in lines) <= 100
    marks = {name: next(line.count("*") for line in lines if line.startswith(name)) for name in ("point", "bands")}
    assert marks == {"point": 2, "bands": 3}  # their medians are the same
    assert any("failed" in line for line in lines)
    assert "[bold]b[/bold]" in " ".join(lines)
    assert any("point forecasts: the one value is scored as every quantile" in line for line in lines)


def test_the_table_of_a_forecast_and_a_card() -> None:
    history = sine(1500)
    forecast = Shaped((0.5, 1.0, 2.0)).forecast(history, 60)

    lines = printed(forecast_table(forecast, sine(10, 1500)))
    card = printed(card_table({"family": "[red]", "losses": {"a": 0.125, "b": None}, "levels": (0.5, 0.9)}))

    assert sum("requests/s" in line for line in lines) == 1
    unknown = [line for line in lines if line.split() and line.split()[0] in {"15", "30", "60"}]
    assert [line.split()[-1] for line in unknown] == ["-"] * 6
    assert card[0].split() == ["family", "[red]"]
    assert [line.split() for line in card[1:3]] == [["losses:", "a", "0.125"], ["losses:", "b", "-"]]
    assert "0.5, 0.9" in card[3]


def test_the_page_is_self_contained_and_well_formed(written: Path) -> None:
    text = written.read_text()

    found = outline(text)
    assert not {"script", "link", "img", "iframe", "object", "b"} & set(found.tags)
    assert found.tags.count("svg") == 2 * (2 + 3), "wide and narrow"
    assert "http://" not in text
    assert "https://" not in text
    assert len(found.ids) == len(set(found.ids))
    assert all("".join(pair) in found.ids for pair in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text))
    assert "mark forecast &lt;x&gt;" in text
    assert "ValueError: &lt;none&gt;" in text


def test_bands_below_the_median_are_named_only_where_they_were_given(written: Path) -> None:
    assert "50 to 90 %" not in written.read_text()

    scores = BANDS.scores
    assert scores is not None
    quantiles = scores.path.quantiles.copy()
    quantiles[:, :MEDIAN] = quantiles[:, [MEDIAN]]
    upper = replace(BANDS, scores=replace(scores, path=replace(scores.path, quantiles=quantiles)))
    text = render_backtest((upper,), ASKED, command="c")
    assert "50 to 90 %" in text
    assert "10 to 90 %" not in text


def test_point_forecasts_alone_have_no_figure_of_calibration() -> None:
    text = render_backtest((POINT,), ASKED, command="c")

    assert "Are the quantiles calibrated?" not in text
    assert outline(text).tags.count("svg") == 2 * 2


@pytest.mark.parametrize(("units", "leads"), [(6, (5,)), (8, tuple(range(1, 61)))])
def test_short_spans_are_drawn_too(units: int, leads: tuple[int, ...]) -> None:
    asked = span(units, leads=leads)

    text = render_backtest((run("bands", 0.8, 1.0, 1.2, asked=asked),), asked, command="c")

    assert outline(text).tags.count("svg") == 2 * 3


def test_the_page_of_a_forecaster_over_two_weeks_stays_below_a_quarter_of_1_5_mb() -> None:
    asked = replace(span(14 * 1440), every=1)
    one = run("bands", 0.85, 1.0, 1.15, asked=replace(asked, every=7))

    assert len(render_backtest([one], asked, command="c")) < 375_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all runs, drawn once."""
    folder = tmp_path_factory.mktemp("backtest") / "new"
    runs = (replace(BANDS, predictor=EVIL), *RUNS)
    return write_backtest(folder, runs, ASKED, leave_out=["23:31-24:00"], command="mark forecast <x>")


def test_both_files_are_written(written: Path) -> None:
    assert sorted(path.name for path in written.parent.iterdir()) == ["forecasts.html", "forecasts.json"]
    assert "23:31-24:00" in written.read_text()


@needs_browser
def test_a_browser_shows_the_page(tmp_path: Path, written: Path) -> None:
    look = look_at(tmp_path, written.read_text(), width=1280, dark=False)
    look.check(dark=False)
    look.check_drawn(colours=100)
