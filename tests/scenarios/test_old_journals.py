"""Journals that versions 2 and 3 of the journal's form wrote: what reads journals today reads them too.

`journals/replay.v2` is a replay on spot with refusals, interruptions, a forecaster that fails and one that lacks
an expert; `service-1.v2` and `service-2.v2` are two segments of a service with guardrails, refusals by AWS and
trainings. They were recorded by the program of then and are never written anew; `.v3` is the same service as the
program wrote it whose fields had other names.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from mark.controller.journal import VERSION, read_journal
from mark.controller.recovery import recover
from mark.controller.replay_check import mismatches
from mark.controller.state import NoteKind
from mark.domain.errors import Misconfigured
from mark.domain.orders import LaunchRefused, RefusalCause
from mark.offline.explain import explain_journal

FOLDER = Path(__file__).parent / "journals"
FACTS = {
    "replay": {"forecast-failed": 3, "launch-refused": 5, "spot-warned": 4},
    "service-1": {"forecast-failed": 3, "launch-refused": 6, "spot-warned": 10},
    "service-2": {"launch-refused": 2, "spot-warned": 5},
}


def old_lines(name: str, version: int = 2) -> list[bytes]:
    return gzip.decompress((FOLDER / f"{name}.v{version}.jsonl.gz").read_bytes()).splitlines(keepends=True)


@pytest.mark.parametrize(("name", "version"), [*((name, 2) for name in FACTS), ("service-1", 3), ("service-2", 3)])
def test_replaying_an_old_journal_gives_its_orders_and_its_plans(name: str, version: int) -> None:
    assert list(mismatches(*read_journal(old_lines(name, version)))) == []


@pytest.mark.parametrize("name", ["service-1", "service-2"])
def test_the_fields_of_version_three_are_read_under_their_names_of_today(name: str) -> None:
    (older, before), (newer, after) = (read_journal(old_lines(name, version)) for version in (2, 3))
    assert newer.checkpoint == older.checkpoint
    told = list(after)
    assert told == list(before)
    assert any(instance.terminates_at is not None for tick in told for instance in tick.seen.fleet)


def test_the_shortfall_of_an_old_plan_is_read() -> None:
    lines = [line.replace(b'"spill_rps":0.0', b'"spill_rps":7.5') for line in old_lines("service-1", 3)]
    plans = [tick.seen.plan for tick in read_journal(lines)[1] if tick.seen.plan is not None]
    assert {plan.shortfall_rps for plan in plans} == {7.5}


def test_a_journal_of_the_first_version_which_had_no_checkpoints_is_replayed() -> None:
    first, *lines = old_lines("replay")
    header = {key: value for key, value in json.loads(first).items() if key != "checkpoint"} | {"version": 1}
    assert list(mismatches(*read_journal([json.dumps(header).encode(), *lines]))) == []


def test_a_journal_of_the_version_to_come_is_refused() -> None:
    first, *lines = old_lines("replay")
    header = json.loads(first) | {"version": VERSION + 1}
    with pytest.raises(Misconfigured, match=f"version {VERSION + 1}"):
        read_journal([json.dumps(header).encode(), *lines])


@pytest.mark.parametrize("name", FACTS)
def test_an_old_journal_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = old_lines(name)
    explain_journal(lambda: lines, minute=None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["facts"] == FACTS[name]
    assert (told["reproduces"], told["missing"], told["tick_count"]) == (True, [], len(lines) - 1)


def test_the_trainings_of_an_old_journal_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = old_lines("service-2")
    explain_journal(lambda: lines, minute=None, as_json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert "training begins (schedule) on 110 min, 60 min at most" in told
    assert "training (schedule) on 110 min failed after 3.0 s: out of memory; the one before goes on" in told


def test_the_kinds_of_old_notes_are_told_from_their_words() -> None:
    ticks = [tick for name in FACTS for tick in read_journal(old_lines(name))[1]]
    kinds = Counter(note.kind for tick in ticks for note in tick.notes)
    assert kinds == {
        NoteKind.CAPACITY_BACKOFF: 11,
        NoteKind.TRAINING: 4,
        NoteKind.KEPT: 4,
        NoteKind.GUARDRAIL: 4,
        NoteKind.GUARDRAIL_HOLD: 2,
        NoteKind.INSTANCE_LIMIT: 2,
    }


def test_what_an_old_forecast_lacked_is_told_from_its_source() -> None:
    _, ticks = read_journal(old_lines("replay"))
    forecasts = [tick.seen.forecast for tick in ticks if tick.seen.forecast is not None]
    assert Counter((forecast.source, forecast.degraded) for forecast in forecasts) == {
        ("mixture", None): 10,
        ("mixture", "without lstm: it is not trained yet"): 26,
        ("last-value", None): 3,
    }


def test_the_causes_of_old_refusals_are_told_from_their_words() -> None:
    """An order that two of AWS's codes refused is two facts, and counted once."""
    _, ticks = read_journal(old_lines("service-1"))
    refused = [fact for tick in ticks for fact in tick.seen.facts if isinstance(fact, LaunchRefused)]
    assert [(fact.count, fact.cause, fact.code, fact.detail) for fact in refused] == [
        (1, RefusalCause.GUARDRAIL, "", "8 instances and 5 more exceed 10"),
        (1, RefusalCause.CAPACITY, "InsufficientInstanceCapacity", ""),
        (0, RefusalCause.CAPACITY, "UnfulfillableCapacity", ""),
        (1, RefusalCause.QUOTA, "MaxSpotInstanceCountExceeded", ""),
        (1, RefusalCause.GUARDRAIL, "", "waking: 0.1664 USD an hour and 0.0832 more exceed 0.208"),
        (1, RefusalCause.GUARDRAIL, "", "waking: 0.1664 USD an hour and 0.0832 more exceed 0.208"),
        (1, RefusalCause.FORBIDDEN, "", "one costs 0.0850 USD an hour, the limit is 0.0425"),
    ]


def test_an_old_segment_follows_from_the_one_before() -> None:
    """The header's checkpoint is where the lines before it fold to."""
    recovered = recover(*read_journal(old_lines("service-1")))
    header, _ = read_journal(old_lines("service-2"))
    assert recovered is not None
    assert header.checkpoint is not None
    assert (header.checkpoint.state, header.checkpoint.fleet) == (recovered.state, recovered.fleet)
