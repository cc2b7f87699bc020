"""The acceptance page says what was missed, and so does the exit code."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mark.domain.demand import Demand, Forecast
from mark.domain.offering import Market
from mark.plugins.load import build_forecaster
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.backtest import run_backtest
from mark.simulator.traces.generators import mmpp
from mark.simulator.traces.trace import Trace
from scripts.acceptance import ablation, elsewhere, figures_page, forecasts, run
from scripts.acceptance import loads as acceptance_loads
from scripts.acceptance.figures_page import Check, FigureTable, Gap, part_text, write_parts
from scripts.acceptance.loads import AcceptanceLoad, Foretold, Remembering

KEPT = Check("ratio", "1.73", ">= 1.45", True)
MISSED = Check("shed", "2.000%", "<= 0.1%", False)
HOUR_S = 3600.0


@pytest.fixture
def quiet_hour() -> AcceptanceLoad:
    """Ten minutes, after an hour of history."""
    trace = mmpp((20.0, 40.0), (300.0, 300.0), duration_s=HOUR_S + 600.0, seed=1)
    return AcceptanceLoad(label="a quiet hour", trace=trace, start_s=HOUR_S, duration_s=600.0)


@pytest.fixture
def simple(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every forecaster is the one that learns nothing, so that nothing is trained."""
    monkeypatch.setattr(
        acceptance_loads, "build_forecaster", lambda _, setup: build_forecaster("last-value", setup)
    )


def test_a_part_counts_what_is_kept_and_names_what_is_not() -> None:
    gap = Gap(where="a day", policy="mark", gaps=np.array([0.9, 1.0, 1.0, 1.2]))
    text = part_text(
        "A part", "A note.", FigureTable(checks=[KEPT, MISSED], gaps=[gap], rows=[("1", "2")]), ("a", "b")
    )
    assert text.startswith("## A part\n")
    assert "1 of 2 kept." in text
    assert "| ratio | 1.73 | >= 1.45 | yes |" in text
    assert "| shed | 2.000% | <= 0.1% | **no** |" in text
    assert "| a day | mark | 4 | 0.915 | 1.000 | 1.170 | 1.200 | 25.0% |" in text
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |" in text


def test_of_many_checks_only_the_missed_are_listed() -> None:
    text = part_text("A part", "", FigureTable(checks=[KEPT, MISSED]), every_check=False)
    assert "1 of 2 kept." in text
    assert "ratio" not in text
    assert "| shed |" in text


def test_a_command_leaves_the_parts_of_others_as_they_are(tmp_path: Path) -> None:
    page = tmp_path / "figures.md"
    write_parts({"forecasts": "## F\n\nkept", "judged": "## J\n\nfirst"}, page)
    write_parts({"judged": "## J\n\nsecond"}, page)
    text = page.read_text()
    assert text.count("## J") == text.count("## F") == 1
    assert text.index("second") < text.index("kept")
    assert "first" not in text
    write_parts({}, page)
    assert page.read_text() == text


def test_the_page_that_ships_is_made_of_known_parts() -> None:
    text = figures_page.PAGE.read_text()
    assert text.startswith(figures_page.HEAD)
    told = [part for part in figures_page.PARTS if f"<!-- {part} -->" in text]
    assert told
    assert text.count("\n<!-- end of ") == len(told)


@pytest.mark.parametrize(("found", "code"), [([KEPT], None), ([KEPT, MISSED], "1 figures miss: shed")])
def test_a_miss_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: list[Check], code: str | None
) -> None:
    monkeypatch.setenv("MARK_DATA", str(tmp_path))
    written: list[dict[str, str]] = []
    tasks = [run.FigureTask("days", check.what, partial(FigureTable, checks=[check])) for check in found]
    monkeypatch.setattr(run, "tasks", lambda: iter(tasks))
    monkeypatch.setattr(run, "write_parts", written.append)
    if code is None:
        run.main(["--jobs", "1"])
    else:
        with pytest.raises(SystemExit, match=code):
            run.main(["--jobs", "1"])
    assert [list(parts) for parts in written] == [["days"]]


def forbidden() -> FigureTable:
    raise AssertionError("this part was not asked for")


def test_only_known_parts_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "tasks", lambda: iter([run.FigureTask("risk", "never", forbidden)]))
    monkeypatch.setattr(run, "write_parts", lambda parts: None)
    monkeypatch.setenv("MARK_DATA", "somewhere")
    run.main(["days"])
    with pytest.raises(SystemExit):
        run.main(["daze"])
    assert "no part daze" in capsys.readouterr().err


def test_every_part_of_the_page_is_measured_by_a_command() -> None:
    assert {task.part for task in run.tasks()} == set(run.texts())
    assert {*run.texts(), "forecasts"} == set(figures_page.PARTS)


def test_loads_elsewhere_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    day = Trace(name="x", start_at=0.0, bin_s=60.0, rates_rps=np.ones(130_000), whole_counts=False)
    monkeypatch.setattr(acceptance_loads, "trace_of", lambda _: day)
    loads = [make() for make in acceptance_loads.ELSEWHERE.values()]
    assert len({load.label for load in loads}) == len(loads) == 9
    assert all(load.start_s + load.duration_s <= load.trace.duration_s for load in loads)


def test_a_model_is_compared_in_both_markets(quiet_hour: AcceptanceLoad, simple: None) -> None:
    found = elsewhere.compare("lstm-ptb", quiet_hour, Foretold())
    assert [row[2] for row in found.rows] == [market.value for market in Market]
    assert sum("hedged / mark" in check.what for check in found.checks) == 2
    for row, check in zip(found.rows, (c for c in found.checks if "hedged / mark" in c.what), strict=True):
        assert float(row[4]) == float(check.value)
        assert check.kept == (found.numbers[f"a quiet hour, lstm-ptb, {row[2]} / mark"] <= elsewhere.MOST)
    assert "Geometric means over 2 cases" in elsewhere.summary(found)


def test_each_change_of_hedged_changes_something(quiet_hour: AcceptanceLoad, simple: None) -> None:
    spec = acceptance_loads.spec_of(quiet_hour, Market.SPOT)
    labels = [variant.label for variant in ablation.variants()]
    assert len(set(labels)) == len(labels)
    usual = ablation.Ablated(spec, next(ablation.variants()), Foretold()).bundle("hedged")
    for variant in list(ablation.variants())[1:]:
        experiment = ablation.Ablated(spec, variant, Foretold())
        changed = experiment.bundle("hedged")
        with variant.around() as around:
            assert changed != usual or experiment.spec != spec or variant.median or around is not None, (
                variant.label
            )


def test_what_is_changed_is_what_runs(quiet_hour: AcceptanceLoad, simple: None) -> None:
    spec = acceptance_loads.spec_of(quiet_hour, Market.SPOT)
    runs = {
        variant.label: ablation.Ablated(spec, variant, Foretold()).run("hedged")
        for variant in ablation.variants()
        if variant.label in ("as it is", "no standbys", "standbys are c5.2xlarge")
    }
    assert runs["as it is"].cost.standby > 0
    assert runs["no standbys"].cost.standby == 0
    assert runs["standbys are c5.2xlarge"].cost.standby != runs["as it is"].cost.standby


def test_the_default_forecaster_is_held_against_the_best_single_one() -> None:
    kept = ablation.beside_singles("here", 10.2, {"last-value": 10.0, "ridge": 12.0})
    missed = ablation.beside_singles("here", 10.4, {"last-value": 12.0, "ridge": 10.0})

    assert kept.kept
    assert "best single (last-value)" in kept.what
    assert not missed.kept
    assert "best single (ridge)" in missed.what


class Told:
    """A forecaster that counts its questions."""

    asked = 0

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        self.asked += 1
        rows = ((1.0, 2.0, 9.0),) * horizon
        return Forecast(start_at=history.end_at, mean_rps=rows, max_rps=rows, quantiles=(0.25, 0.5, 0.9))


def history(units: int) -> Demand:
    return Demand(end_at=units * 60.0, mean_rps=(1.0,) * units, max_rps=(1.0,) * units)


def test_a_question_is_asked_once() -> None:
    told = Told()
    remembering = Remembering(told)
    first = remembering.forecast(history(3), 2)
    assert remembering.forecast(history(3), 2) is first
    assert told.asked == 1
    assert remembering.forecast(history(4), 2) is not first
    assert len(remembering.forecast(history(4), 5)) == 5
    assert told.asked == 3


def test_the_median_alone_is_a_point() -> None:
    point = ablation.Median(Told()).forecast(history(3), 2)
    assert point.quantiles == (0.5,)
    assert point.mean_rps == point.max_rps == ((2.0,), (2.0,))


def flat(setup: ForecasterSetup) -> Forecaster:
    """A forecaster that is wide off."""
    del setup
    return Told()


def test_forecasts_are_judged_by_what_they_score(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = 50.0 + 10.0 * np.sin(np.arange(1_000) / 20.0)
    trace = Trace(name="waves", start_at=0.0, bin_s=60.0, rates_rps=rates, whole_counts=False)
    monkeypatch.setattr(forecasts, "trace_of", lambda _: trace)
    window = forecasts.Window(
        label="waves", file="waves", start_min=0, train_min=600, test_min=100, names=("last-value", "moving-mean")
    )
    found = forecasts.measure(window)
    assert [row[:3] for row in found.rows] == [
        ("waves", target, name) for target in ("mean", "max") for name in window.names
    ]
    assert found.checks == []
    spans = {"mean": window.span("mean")}
    asked = {
        name: forecasts.Asked(
            name=name,
            train_s=1.0,
            update_ms=3.0,
            card={},
            scores={"mean": run_backtest(spans["mean"], teller, lambda _: None)},
        )
        for name, teller in (
            ("last-value", build_forecaster("last-value", _setup())),
            ("mixture", Told()),
        )
    }
    judged = forecasts.judge(window, "mean", asked)
    (check,) = judged.checks
    assert "mixture / best single (last-value)" in check.what
    assert not check.kept


def _setup() -> ForecasterSetup:
    return ForecasterSetup(history=history(3), seed=1)


def test_windows_learn_before_they_forecast() -> None:
    labels = [window.label for window in forecasts.windows()]
    assert len(set(labels)) == len(labels) == 13
    for window in forecasts.windows():
        assert window.train_min >= 60
        assert window.is_first_hours == ("after" in window.label)
