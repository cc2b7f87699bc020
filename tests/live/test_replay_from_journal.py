from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.load_history import dump_load
from mark.config.capacity import CapacitySettings
from mark.config.settings import Settings, load_settings
from mark.domain.demand import Demand
from mark.live.replay_from_journal import Journalled, demand_trace, journalled_run, merged, service_journal


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Minutes as a live plane makes them: whole counts in 12 windows of 5 s."""
    windows = draw(st.lists(st.lists(st.integers(0, 60), min_size=12, max_size=12), min_size=1, max_size=20))
    return Demand(
        end_at=6000.0,
        mean_rps=tuple(sum(counts) / 60 for counts in windows),
        max_rps=tuple(max(counts) / 5 for counts in windows),
    )


@given(demand=demands(), seed=st.integers(0, 9))
def test_the_trace_has_each_minutes_count_and_its_largest_window(demand: Demand, seed: int) -> None:
    trace = demand_trace(Journalled(name="j", demand=demand, observed_from=0.0), seed)

    assert trace.whole_counts
    assert trace.start_at == 6000.0 - 60 * len(demand)
    windows = trace.rates_rps.reshape(-1, 12, 5).sum(axis=2)
    np.testing.assert_allclose(windows.sum(axis=1), np.array(demand.mean_rps) * 60)
    np.testing.assert_allclose(windows.max(axis=1), np.array(demand.max_rps) * 5)


def test_what_is_given_wins_part_by_part() -> None:
    own = Settings.model_validate({"model": "digits", "objective": {"latency_ms": 100.0, "target": 0.9}})
    given_ = load_settings(None, {"objective.target": ("--slo-target", 0.99), "market": ("--market", "spot")})
    found = merged(own, given_)

    assert found.model == "digits"
    assert found.objective.latency_ms == 100.0
    assert found.objective.target == 0.99
    assert found.market == "spot"


@pytest.mark.usefixtures("undrawn")
def test_a_replays_journal_is_replayed_under_another_policy(mark) -> None:
    line = "simulate --trace load.csv.gz --model inception-v3 --start-s 300 --policy reactive --slo-ms 700"
    first = mark(*line.split(), "--out", "run", "--json")
    (ran,) = json.loads(first.out)["runs"]
    again = mark("simulate", "--journal", "run", "--policy", "static-peak", "--json")
    assert again.status == 0, again.err
    (other,) = json.loads(again.out)["runs"]

    assert other["policy"] == "static-peak"
    assert other["model"] == "inception-v3"
    assert other["slo"]["latency_ms"] == 700
    # the journal's last minute is still open when the run ends
    assert 0.85 * ran["requests"] <= other["requests"] <= ran["requests"]

    segment = Path("downloaded/2026-11-21/080000-run-000001.jsonl.gz")
    segment.parent.mkdir(parents=True)
    segment.write_bytes(gzip.compress(Path("run/journal.jsonl").read_bytes()))
    for place in ("downloaded", str(segment)):
        archived = mark("simulate", "--journal", place, "--policy", "reactive", "--start-s", "0", "--json")
        assert archived.status == 0, archived.err
        (run,) = json.loads(archived.out)["runs"]
        assert (run["model"], run["requests"]) == (other["model"], other["requests"])
        assert run["slo"]["latency_ms"] == 700


@pytest.mark.usefixtures("undrawn")
def test_a_replay_of_a_journal_knows_the_events_that_its_plans_counted(mark) -> None:
    line = "simulate --trace load.csv.gz --model inception-v3 --start-s 300 --policy hedged --slo-ms 700"
    first = mark(*line.split(), "--event", "600;5m;3x", "--out", "run", "--json")
    assert first.status == 0, first.err

    settings, _ = journalled_run(Settings(), "run")
    (event,) = settings.events
    assert event.event.at == 600.0
    assert (event.event.until - event.event.at, event.event.factor) == (300.0, 3.0)
    given_ = Settings.model_validate(
        {"events": [{"name": event.name, "at": 700, "duration": "1m", "expect": "2x"}]}
    )
    settings, _ = journalled_run(given_, "run")
    assert [item.event.factor for item in settings.events] == [2.0]  # what is given wins
    again = mark("simulate", "--journal", "run", "--policy", "hedged", "--out", "again", "--json")
    assert again.status == 0, again.err
    _, *ticks = Path("again/journal.jsonl").read_text().splitlines()  # the first line has the settings' own
    assert any('"factor":3.0' in tick.replace(" ", "") for tick in ticks)


@pytest.mark.usefixtures("undrawn")
def test_a_replay_of_a_journal_has_the_bounds_of_its_dates(mark) -> None:
    """A trace of 2026: its replay's clock begins at 0, and its bounds go by dates."""
    begin = datetime(2026, 5, 4, 7, 30, tzinfo=UTC).timestamp()  # a Monday
    rows = "".join(f"{begin + 60 * minute:.0f},20\n" for minute in range(120))
    Path("dated.csv").write_text(f"timestamp_s,rate_rps\n{rows}")
    capacity = [{"start": "09:00", "end": "10:00", "days": "mon-fri", "timezone": "Europe/London", "min_rps": 300}]
    Path("bounds.yaml").write_text(yaml.safe_dump({"capacity": capacity}))
    line = "simulate --trace dated.csv --model inception-v3 --policy mark --config bounds.yaml --out run --json"
    first = mark(*line.split())
    assert first.status == 0, first.err
    settings, workload = journalled_run(Settings(), "run")
    assert [item.window for item in settings.capacity] == [CapacitySettings.model_validate(capacity[0]).window]
    assert workload.trace.start_at == pytest.approx(begin, abs=60)
    again = mark("simulate", "--journal", "run", "--start-s", "0", "--json")
    ran, other = (json.loads(done.out)["runs"][0]["cost_usd"]["instances"] for done in (first, again))
    assert other == pytest.approx(ran, rel=0.1)
    free = mark("simulate", "--trace", "dated.csv", "--model", "inception-v3", "--policy", "mark", "--json")
    assert ran > 2 * json.loads(free.out)["runs"][0]["cost_usd"]["instances"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--journal", "nowhere"), "no service named nowhere is up"),
        (("--journal", "empty"), "holds no journal.jsonl"),
        (("--journal", "empty", "--trace", "load.csv.gz"), "give one of them"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(mark, tmp_path, monkeypatch, arguments, said) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    Path("empty").mkdir()
    answer = mark("simulate", *arguments)

    assert answer.status == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1


class Kept:
    """A store whose journal begins at minute 100 with a checkpoint, and whose kept load goes back to minute 0."""

    def __init__(self, *, load: Demand | None) -> None:
        self._load = load

    def status(self, _name: str):
        return None if self._load is None else dump_load(self._load)


def test_what_was_kept_of_before_the_journal_is_replayed_too(monkeypatch) -> None:
    def minutes(first: int, last: int) -> Demand:
        span = range(first, last)
        return Demand(end_at=60.0 * last, mean_rps=tuple(n / 60 for n in span), max_rps=tuple(n / 5 for n in span))

    monkeypatch.setattr("mark.live.replay_from_journal.journal_of", lambda *_, **__: None)
    monkeypatch.setattr(
        "mark.live.replay_from_journal.journal_demand", lambda _segments: (minutes(100, 220), 6000.0)
    )
    bare = service_journal(Kept(load=None), "s", "m")
    assert (bare.demand, bare.observed_from, bare.begin_at) == (minutes(100, 220), 6000.0, 6000.0 + 3600.0)
    whole = service_journal(Kept(load=minutes(0, 200)), "s", "m")
    assert (whole.demand, whole.observed_from) == (minutes(0, 220), 0.0)
    assert whole.begin_at == 3600.0


def test_what_is_neither_a_service_nor_a_folder_is_said_in_a_line(mark) -> None:
    answer = mark("simulate", "--journal", "nothere", "--policy", "reactive")
    assert answer.status == 2
    assert "no folder or file of journals has that name" in answer.err
    assert answer.err.count("\n") == 1
