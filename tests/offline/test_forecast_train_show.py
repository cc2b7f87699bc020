"""`mark forecast train` and `mark forecast show` as the shell sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mark.simulator.traces.trace import Trace, write_trace

MINE = """
from mark.domain.demand import Forecast, point_forecast

class Counts:
    def __init__(self, setup):
        self.card = {"family": "counts", "units": len(setup.history), "loss": float("nan"), "by": {"a|b": 1.5}}
        if setup.cache_dir:
            (setup.cache_dir / "counts.txt").write_text(repr(setup.history))
    def forecast(self, history, horizon):
        rates = (float(len(history)),) * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="counts")

class Broken(Counts):
    def forecast(self, history, horizon):
        raise ValueError("no idea")

class Upper(Counts):
    def forecast(self, history, horizon):
        rows = ((1.0, 2.0, 3.0, 4.0),) * horizon
        return Forecast(start_at=history.end_at, mean_rps=rows, max_rps=rows, quantiles=(0.5, 0.75, 0.9, 0.95))

class Exits(Counts):
    def forecast(self, history, horizon):
        raise SystemExit(3)
"""
TRAIN = ["forecast", "train", "--trace", "ramp.csv.gz", "--predictor", "mine.py:Counts"]
SHOW = ["forecast", "show", "--trace", "ramp.csv.gz", "--predictor"]


def document(answer) -> dict:
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


@pytest.fixture
def ramp(mark, tmp_path, monkeypatch):
    """A trace of 100 minutes at 10, 11, 12 ... requests/s, forecasters in mine.py, and a cache of its own."""
    monkeypatch.setenv("MARK_CACHE", str(tmp_path / "cache"))
    trace = Trace(name="ramp", start_at=0.0, bin_s=60.0, rates_rps=np.arange(10.0, 110.0), whole_counts=False)
    write_trace(trace, Path("ramp.csv.gz"))
    Path("mine.py").write_text(MINE)
    return mark


def test_training_prints_the_card(ramp):
    answer = ramp(*TRAIN)

    assert answer.status == 0
    assert re.match(r"mine\.py:Counts took \d+\.\d s, made from 100 min of ramp; ", answer.out)
    assert answer.out.splitlines()[0].endswith("its forecasts are labelled: counts")
    lines = [line.split() for line in answer.out.splitlines()[1:]]
    assert lines == [["family", "counts"], ["units", "100"], ["loss", "-"], ["by:", "a|b", "1.5"]]


@pytest.mark.parametrize(
    ("given", "units"),
    [([], 100), (["--start-s", "1800"], 30), (["--train-days", "0.01"], 14),
     (["--start-s", "1800", "--train-days", "0.01"], 14)],
)  # fmt: skip
def test_it_learns_from_what_it_is_told_to(ramp, given, units):
    found = document(ramp(*TRAIN, *given, "--json"))

    assert (found["predictor"], found["trace"], found["history_s"]) == ("mine.py:Counts", "ramp", 60 * units)
    assert found["card"] == {"family": "counts", "units": units, "loss": None, "by": {"a|b": 1.5}}


def test_training_says_what_was_too_short_to_learn_from(ramp):
    command = ["forecast", "train", "--trace", "ramp.csv.gz", "--predictor", "lstm-vanilla"]
    answer, found = ramp(*command), document(ramp(*command, "--json"))

    assert found["source"] == "lstm-vanilla: under a day of history, last hour's maximum"
    assert answer.out.splitlines()[0].endswith(f"its forecasts are labelled: {found['source']}")


def test_training_one_that_cannot_forecast_fails_after_its_card(ramp):
    answer = ramp(*TRAIN[:-1], "mine.py:Broken")

    assert answer.status == 2
    assert "family" in answer.out
    assert "mine.py:Broken failed: ValueError: no idea" in answer.err


def test_a_forecaster_that_exits_is_named(ramp):
    answer = ramp(*SHOW, "mine.py:Exits")

    assert answer.status == 2
    assert "mine.py:Exits failed: it called exit(3)" in answer.err


@pytest.mark.slow
def test_a_replay_finds_what_was_learned(ramp):
    """The same history to the last digit: it is what weights in the cache are known by."""
    replay = ["simulate", "--trace", "ramp.csv.gz", "--model", "inception-v3", "--policy", "reactive"]
    ramp(*TRAIN, "--start-s", "1800")
    trained = Path("cache/counts.txt").read_text()
    Path("cache/counts.txt").unlink()

    answer = ramp(*replay, "--forecaster", "mine.py:Counts", "--start-s", "1800", "--duration-s", "60")

    assert answer.status == 0, answer.err
    assert Path("cache/counts.txt").read_text() == trained


@pytest.mark.parametrize("name", ["card.json", "card.md"])
def test_the_card_is_written(ramp, name):
    assert ramp(*TRAIN, "--out", name).status == 0

    text = Path(name).read_text()
    if name.endswith("json"):
        assert json.loads(text)["card"]["family"] == "counts"
    else:
        assert text.startswith("# mine.py:Counts\n")
        assert "| units | 100 |" in text
        assert "| by: a/b | 1.5 |" in text


def test_without_a_card_it_mentions_none(ramp):
    answer = ramp("forecast", "train", "--trace", "ramp.csv.gz", "--predictor", "last-value")

    assert "card" not in answer.out


def test_a_forecast_is_shown_beside_what_came(ramp):
    # an hour in, 60 minutes have ended at 10 ... 69 requests/s; 40 more are known
    found = document(ramp(*SHOW, "last-value", "--at", "3600", "--json"))

    assert (found["at_s"], found["history_min"], found["quantiles"]) == (3600, 60, [0.5])
    assert [item["minute"] for item in found["minutes"]] == list(range(1, 61))
    assert [item["mean_rps"] for item in found["minutes"]] == [[69.0]] * 60
    came = [item["actual_mean_rps"] for item in found["minutes"]]
    assert came == [*range(70, 110), *[None] * 20]


def test_the_table_holds_some_minutes(ramp):
    answer = ramp(*SHOW, "last-value", "--at", "3600")

    rows = [line.split() for line in answer.out.splitlines() if line.strip()]
    assert rows[0][:4] == ["last-value", "at", "3600", "s"]
    assert ["mean", "1", "69.0", "70.0"] in rows
    assert ["30", "69.0", "99.0"] in rows
    assert ["60", "69.0", "-"] in rows


def test_at_the_end_nothing_that_came_is_known(ramp):
    answer = ramp(*SHOW, "mine.py:Counts", "--json")

    found = document(answer)
    assert (found["at_s"], found["minutes"][0]["mean_rps"]) == (6000, [100.0])
    assert {item["actual_mean_rps"] for item in found["minutes"]} == {None}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([*SHOW, "last-value", "--at", "30"], "--at must lie from 60 to 6000 s"),
        ([*SHOW, "last-value", "--at", "6001"], "--at must lie from 60 to 6000 s"),
        ([*SHOW, "last-value,oracle"], "one forecaster at a time, not last-value, oracle"),
        ([*SHOW, "mine.py:Broken"], "mine.py:Broken failed: ValueError: no idea"),
        ([*TRAIN, "--out", "card.txt"], "a card is written as .json or .md"),
        ([*TRAIN, "--train-days", "20"], "--train-days must be above 0 and at most 14"),
        ([*TRAIN, "--train-days", "2"], "--train-days 2 leaves nothing to forecast of ramp, which has 100 min"),
        ([*TRAIN[:4]], "name a forecaster with --predictor"),
    ],
)
def test_what_is_wrong_is_one_line(ramp, given, said):
    answer = ramp(*given)

    assert (answer.status, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_configuration_names_trace_and_forecaster(ramp):
    Path("mark.yaml").write_text("trace: {file: ramp.csv.gz, start_s: 1800}\nforecaster: mine.py:Counts\n")

    trained = document(ramp("forecast", "train", "--config", "mark.yaml", "--json"))
    shown = document(ramp("forecast", "show", "--config", "mark.yaml", "--at", "1800", "--json"))
    (scored,) = document(ramp("forecast", "backtest", "--config", "mark.yaml", "--json"))["runs"]

    assert trained["card"]["units"] == 30
    assert shown["minutes"][0]["mean_rps"] == [30]
    assert scored["predictor"].endswith("mine.py:Counts")
