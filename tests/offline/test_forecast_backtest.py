"""`mark forecast backtest` as the shell sees it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mark.cli.main import INTERRUPTED
from mark.domain.errors import Misconfigured
from mark.offline.forecast import backtest
from mark.offline.forecast.backtest import parse_window
from mark.simulator.traces.trace import Trace, write_trace

MINE = """
import math
import threading
from mark.domain.demand import Forecast, point_forecast

LEVELS = (0.5, 0.75, 0.9, 0.95)

class Bands:
    card = {"family": "bands", "levels": LEVELS, "loss": 0.25, "seeds": [1, 2]}
    def __init__(self, setup):
        self.seed = setup.seed
    def forecast(self, history, horizon):
        mean = tuple(history.mean_rps[-1] * (1 + level) for level in LEVELS)
        peak = tuple(history.max_rps[-1] * (1 + level) for level in LEVELS)
        return Forecast(start_at=history.end_at, mean_rps=(mean,) * horizon, max_rps=(peak,) * horizon,
                        quantiles=LEVELS, source="bands")

class Breaks(Bands):
    def forecast(self, history, horizon):
        if len(history) > 12:
            raise KeyError("thirteen")
        return super().forecast(history, horizon)

class Nan(Bands):
    def forecast(self, history, horizon):
        return point_forecast(history.end_at, mean_rps=(math.nan,) * horizon, max_rps=(1.0,) * horizon, source="")

class Late(Bands):
    def forecast(self, history, horizon):
        if len(history) > 11:
            threading.Event().wait(5)  # in a thread that ends with the process
        return super().forecast(history, horizon)

class Unbuilt:
    def __init__(self, setup):
        raise RuntimeError("no luck")
    def forecast(self, history, horizon): ...

class Interrupts(Bands):
    def __init__(self, setup):
        raise KeyboardInterrupt
"""
BACKTEST = ["forecast", "backtest", "--trace", "ramp.csv.gz", "--start-s", "600"]


def runs(answer) -> list[dict]:
    assert answer.status == 0, answer.err
    return json.loads(answer.out)["runs"]


@pytest.fixture
def ramp(mark):
    """A trace of 20 minutes at 10, 11, 12 ... requests/s, and forecasters in mine.py."""
    trace = Trace(name="ramp", start_at=0.0, bin_s=60.0, rates_rps=np.arange(10.0, 30.0), whole_counts=False)
    write_trace(trace, Path("ramp.csv.gz"))
    Path("mine.py").write_text(MINE)
    return mark


def test_the_document_has_what_is_promised_and_the_scores_are_right(ramp):
    # from minute 10 on 20, 21 ... 29 come; 5 min ahead the last value is 5 too low: six origins have such a target
    answer = ramp(*BACKTEST, "--predictor", "last-value", "--lead-min", "5", "--json")

    (run,) = runs(answer)
    came = sum(range(24, 30))
    assert set(run) >= {"predictor", "trace", "wape", "wql", "mase", "coverage", "train_s", "infer_ms"}
    assert (run["predictor"], run["trace"], run["target"]) == ("last-value", "ramp", "mean")
    assert (run["origins"], run["pairs"], run["levels"]) == (6, 6, 1)
    assert run["wape"] == pytest.approx(30 / came)
    assert run["wql"] == pytest.approx(2 * 0.775 * 30 / came)
    assert run["mase"] is None  # ten minutes of history know no day before
    assert run["coverage"] == {"0.5": 0.0, "0.75": 0.0, "0.9": 0.0, "0.95": 0.0}
    assert run["by_lead"] == [{"lead_min": 5, "wape": run["wape"], "wql": run["wql"]}]
    assert run["by_day"] == [{"day": 1, "pairs": 6, "coverage": run["coverage"]}]
    assert run["notes"] == ["point forecasts: the one value is scored as every quantile"]
    assert run["error"] is None
    assert run["infer_ms"] > 0
    assert json.loads(answer.out)["span"] == {
        "start_s": 600.0, "duration_s": 600.0, "history_days": 10 / 1440,
        "leads_min": [5], "every_min": 1, "leave_out": [],
    }  # fmt: skip


def test_a_class_of_ones_own_is_scored_with_its_quantiles_and_its_card(ramp):
    given = ["--predictor", "mine.py:Bands,last-value", "--lead-min", "1"]

    mine, last = runs(ramp(*BACKTEST, *given, "--json"))

    assert mine["levels"] == 4
    assert mine["card"] == {"family": "bands", "levels": [0.5, 0.75, 0.9, 0.95], "loss": 0.25, "seeds": [1, 2]}
    assert mine["coverage"] == {"0.5": 1, "0.75": 1, "0.9": 1, "0.95": 1}
    assert mine["notes"] == []
    # the median is 1.5 x the last value: 19 ... 28 instead of 20 ... 29
    came = sum(range(20, 30))
    assert mine["wape"] == pytest.approx(sum(1.5 * before - (before + 1) for before in range(19, 29)) / came)
    assert last["wape"] == pytest.approx(10 / came)


def test_the_span_the_target_and_the_origins_are_as_asked(ramp):
    given = ["forecast", "backtest", "--trace", "load.csv.gz", "--predictor", "last-value", "--lead-min", "1,2"]

    by_days = json.loads(ramp(*given, "--train-days", str(5 / 1440), "--duration-s", "300", "--json").out)
    highest = json.loads(ramp(*given, "--target", "max", "--every-min", "2", "--json").out)

    assert (by_days["span"]["start_s"], by_days["span"]["duration_s"]) == (300, 300)
    assert (highest["span"]["start_s"], highest["span"]["duration_s"]) == (600, 300)  # the last third
    assert (highest["runs"][0]["target"], highest["runs"][0]["origins"]) == ("max", 3)
    assert highest["runs"][0]["wape"] != by_days["runs"][0]["wape"]


def test_days_to_learn_from_may_end_where_the_span_starts(ramp):
    given = [*BACKTEST, "--predictor", "last-value", "--train-days", str(3 / 1440), "--json"]

    assert json.loads(ramp(*given).out)["span"]["history_days"] == 3 / 1440


def test_times_of_day_are_left_out(ramp):
    given = [*BACKTEST, "--predictor", "last-value", "--lead-min", "1", "--json"]

    kept = runs(ramp(*given, "--leave-out", "00:12-00:15,00:18-24:00"))[0]

    assert kept["pairs"] == 10 - 3 - 2
    assert "nothing is left to score" in ramp(*given, "--leave-out", "00:00-24:00").err


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        ("23:31-24:00", [(84_660.0, 86_400.0)]),
        ("23:50-00:10", [(85_800.0, 86_400.0), (0.0, 600.0)]),
        ("22:00-00:00", [(79_200.0, 86_400.0)]),
    ],
)
def test_windows_of_the_day(text, windows):
    assert parse_window(text) == windows


@pytest.mark.parametrize("text", ["23:31", "a-b", "12:60-13:00", "12:00-24:01", "12:00-12:00", "-1:00-2:00"])
def test_what_is_no_window_of_the_day_is_refused(text):
    with pytest.raises(Misconfigured, match="--leave-out"):
        parse_window(text)


@pytest.mark.usefixtures("drawn")
def test_the_table_marks_the_best_and_the_page_is_written(ramp):
    answer = ramp(*BACKTEST, "--predictor", "last-value,mine.py:Bands", "--lead-min", "1", "--out", "scores")

    assert answer.status == 0
    assert answer.out.startswith("last-value forecasts best: its weighted quantile loss is ")
    lines = {line.split()[0]: line for line in answer.out.splitlines() if line.strip()}
    assert lines["last-value"].count("*") == 2  # no MASE without a day of history
    assert lines["mine.py:Bands"].count("*") == 0
    assert "page: scores/forecasts.html" in answer.out
    assert max(len(line.rstrip()) for line in answer.out.splitlines()) <= 100
    assert "<svg" in Path("scores/forecasts.html").read_text()
    assert [run["predictor"] for run in json.loads(Path("scores/forecasts.json").read_text())["runs"]] == [
        "last-value", "mine.py:Bands"
    ]  # fmt: skip


def test_those_that_fail_are_reported_and_the_others_go_on(ramp):
    names = "mine.py:Unbuilt,mine.py:Nan,mine.py:Breaks,last-value"

    answer = ramp(*BACKTEST, "--predictor", names, "--json", "--out", "scores")

    found = {run["predictor"]: run for run in json.loads(answer.out)["runs"]}
    assert answer.status == 2
    assert answer.err.count("\n") == 4
    assert answer.err.splitlines()[-1] == (
        "mark: 3 of 4 forecasters failed, as noted above: mine.py:Unbuilt, mine.py:Nan, mine.py:Breaks"
    )
    assert "RuntimeError: no luck" in found["mine.py:Unbuilt"]["error"]
    assert "ValueError at minute 0 of the span" in found["mine.py:Nan"]["error"]
    assert found["mine.py:Breaks"]["error"] == "KeyError at minute 3 of the span: 'thirteen'"
    assert found["mine.py:Breaks"]["wql"] is None
    assert found["last-value"]["wql"] > 0
    assert "failed" in Path("scores/forecasts.html").read_text()


def test_one_that_is_late_fails(ramp):
    answer = ramp(*BACKTEST, "--predictor", "mine.py:Late,last-value", "--deadline-s", "0.05", "--json")

    late, last = json.loads(answer.out)["runs"]
    assert answer.status == 2
    assert late["error"] == "TimeoutError at minute 2 of the span: no forecast within 0.05 s"
    assert last["error"] is None


def test_all_failed_is_no_table(ramp):
    answer = ramp(*BACKTEST, "--predictor", "mine.py:Nan", "--out", "scores")

    assert (answer.status, answer.out) == (2, "")
    assert not list(Path("scores").iterdir())


def test_ctrl_c_leaves_what_is_finished(ramp):
    answer = ramp(*BACKTEST, "--predictor", "last-value,mine.py:Interrupts,oracle", "--json")

    assert answer.status == INTERRUPTED
    assert [run["predictor"] for run in json.loads(answer.out)["runs"]] == ["last-value"]
    assert "interrupted: 1 of 3 forecasters finished" in answer.err


def test_a_page_that_cannot_be_written_loses_no_scores(ramp, monkeypatch):
    def full(*_args, **_kwargs):
        raise Misconfigured("cannot write scores: full")

    monkeypatch.setattr(backtest, "write_backtest", full)

    answer = ramp(*BACKTEST, "--predictor", "last-value,oracle", "--json", "--out", "scores")

    assert answer.status == 2
    assert [run["error"] for run in json.loads(answer.out)["runs"]] == [None, None]
    assert "cannot write scores: full" in answer.err


def test_where_the_page_goes_is_checked_before_anything_is_computed(ramp):
    Path("scores").write_text("no folder")

    answer = ramp(*BACKTEST, "--predictor", "mine.py:Unbuilt", "--out", "scores")

    assert (answer.status, answer.out) == (2, "")
    assert answer.err == "mark: cannot write to --out scores: it is not a folder; name another\n"


def test_fresh_builds_find_an_empty_cache(ramp, monkeypatch):
    seen = []
    build = backtest.build

    def watched(name, history, *, cache_dir, **rest):
        seen.append((cache_dir, sorted(cache_dir.iterdir())))
        return build(name, history, cache_dir=cache_dir, **rest)

    monkeypatch.setattr(backtest, "build", watched)

    assert ramp(*BACKTEST, "--predictor", "last-value", "--fresh").status == 0
    ((folder, held),) = seen
    assert held == []
    assert not folder.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--predictor", "last-valeu"], "did you mean 'last-value'"),
        ([], "name a forecaster with --predictor"),
        (["--predictor", "oracle", "--lead-min", "0"], "--lead-min must be whole minutes from 1 to 60"),
        (["--predictor", "oracle", "--lead-min", "x"], "--lead-min 'x' must be numbers"),
        (["--predictor", "oracle", "--target", "median"], "unknown --target 'median'"),
        (["--predictor", "oracle", "--every-min", "0"], "--every-min must be 1 or more"),
        (["--predictor", "oracle", "--deadline-s", "0"], "--deadline-s must be above 0"),
        (["--predictor", "oracle", "--train-days", "15"], "--train-days must be above 0 and at most 14"),
        (["--predictor", "oracle", "--train-days", "-1"], "--train-days must be above 0"),
        (["--predictor", "oracle", "--duration-s", "30"], "a whole minute"),
        (["--predictor", "oracle", "--leave-out", "noon"], "must read HH:MM-HH:MM"),
    ],
)
def test_what_is_wrong_with_the_flags_is_one_line(ramp, given, said):
    answer = ramp(*BACKTEST, *given)

    assert (answer.status, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_terminal_sees_how_far_it_is(ramp, monkeypatch):
    given = [*BACKTEST, "--predictor", "last-value", "--json"]
    assert ramp(*given).err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    monkeypatch.setenv("TERM", "xterm")

    answer = ramp(*given)

    assert "backtesting last-value" in answer.err
    assert len(runs(answer)) == 1
