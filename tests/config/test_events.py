"""Announced events as people write them, and one line where they cannot be read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.config.events import (
    LONGEST_S,
    EventSettings,
    default_name,
    parse_duration,
    parse_event,
    parse_expectation,
    parse_name,
    parse_time,
)
from mark.config.policies import chosen_policies
from mark.config.settings import load_settings
from mark.domain.errors import Misconfigured
from mark.domain.load.announced_events import AnnouncedEvent
from mark.live.commands.event import EventOptions


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T01:00", 3600.0),
        ("1970-01-01 01:00:30+00:30", 1830.0),
        ("1970-01-02", 86_400.0),
        ("5400", 5400.0),
    ],
)
def test_times_are_utc_without_a_zone_or_seconds_of_a_traces_clock(text: str, at: float) -> None:
    assert parse_time(text) == at


@given(st.one_of(st.integers(0, int(1e11)), st.floats(0, 1e11)))
def test_a_number_of_seconds_in_yaml_keeps_its_digits(seconds: float) -> None:
    assert EventSettings(at=seconds, duration="1h", expect="2x").event.at == seconds  # type: ignore[arg-type]


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_time, parse_duration, parse_expectation, parse_name, parse_event):
        with suppress(Misconfigured):
            parse(text)
            if parse is parse_time:
                default_name(parse_time(text) + LONGEST_S)


def test_the_command_refuses_what_the_settings_do() -> None:
    given_ = {"name": None, "at": "3600", "duration": "1h", "expect": "2x", "model": None}
    assert EventOptions(**given_).event.name == "1970-01-01T01:00:00Z"  # type: ignore[arg-type]
    for odd in ({"name": ""}, {"name": "a\nb"}, {"at": "9999-12-31T23:59"}, {"expect": "9" * 400 + "rps"}):
        with pytest.raises(Misconfigured):
            _ = EventOptions(**(given_ | odd)).event  # type: ignore[arg-type]


def test_lengths_and_expectations_read_as_people_write_them() -> None:
    assert [parse_duration(text) for text in ("2h", "90m", "1h30m", "1d", "45min", "0.5h")] == [
        7200.0, 5400.0, 5400.0, 86_400.0, 2700.0, 1800.0,
    ]  # fmt: skip
    assert [parse_expectation(text) for text in ("3x", "1.5x", "500rps")] == [(3.0, 0.0), (1.5, 0.0), (1.0, 500.0)]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{at: noon, duration: 2h, expect: 3x}", "2026-12-01T18:00"),
        ("{at: 2026-12-01T18:00, duration: 2 hours, expect: 3x}", "2h or 90m"),
        ("{at: 2026-12-01T18:00, duration: 0h, expect: 3x}", "at most 31d"),
        ("{at: 2026-12-01T18:00, duration: 2h, expect: three}", "3x or 500rps"),
        ("{at: 2026-12-01T18:00, duration: 2h, expect: 0.5x}", "above 1x"),
        ("{at: 2026-12-01T18:00, duration: 2h, expect: 5000x}", "like 500rps"),
        ("{at: -5, duration: 2h, expect: 3x}", "is not a time"),
        ("{at: 9999-12-31T23:59, duration: 2h, expect: 3x}", "is not a time"),
        ("{at: 1969-12-31T23:59, duration: 2h, expect: 3x}", "is not a time"),
        ("{at: .nan, duration: 2h, expect: 3x}", "is not a time"),
        ("{at: 0, duration: 2h, expect: %srps}" % ("9" * 400), "at most 1e+09 requests/s"),
        ('{name: "a\\nb", at: 0, duration: 2h, expect: 3x}', "cannot name an event"),
        ('{name: "\\e[31m", at: 0, duration: 2h, expect: 3x}', "cannot name an event"),
        ("{name: '[/red]', at: 0, duration: 2h, expect: 3x}", "and no ["),
        ("{name: ' ', at: 0, duration: 2h, expect: 3x}", "cannot name an event"),
        ("{name: '', at: 0, duration: 2h, expect: 3x}", "cannot name an event"),
        ("{name: %s, at: 0, duration: 2h, expect: 3x}" % ("n" * 81), "1 to 80 characters"),
        ("{duration: 2h, expect: 3x}", "at is missing"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, entry: str, says: str) -> None:
    path = tmp_path / "mark.yaml"
    path.write_text(f"events: [{entry}]\n")
    with pytest.raises(Misconfigured) as caught:
        load_settings(path, {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_policy_has_the_events_of_its_model_as_yaml_and_flags_write_them(tmp_path: Path) -> None:
    path = tmp_path / "mark.yaml"
    path.write_text(
        "model: inception-v3\n"
        "events:\n"
        "- {name: sale, at: 1970-01-01T02:00:00, duration: 1h, expect: 500rps}\n"
        "- {at: 3600, duration: 2h, expect: 3x, model: inception-v3}\n"
        "- {at: 3600, duration: 2h, expect: 3x, model: nasnet}\n"
    )
    early = AnnouncedEvent(
        name="1970-01-01T01:00:00Z", at=3600.0, until=10_800.0, factor=3.0, model="inception-v3"
    )
    sale = AnnouncedEvent(name="sale", at=7200.0, until=10_800.0, least_rps=500.0)
    assert chosen_policies(load_settings(path, {})).events == (early, sale)
    flags = {"events": ("--event", [parse_event("3600; 2h; 3x")])}
    assert [one.factor for one in chosen_policies(load_settings(path, flags)).events] == [3.0]
    with pytest.raises(Misconfigured, match="--event"):
        parse_event("3600,2h,3x")


@given(
    at=st.floats(0.0, 1e11),
    length=st.floats(1.0, 30 * 86_400.0),
    rate=st.one_of(st.floats(1e-9, 1e9), st.none()),
    factor=st.floats(1.001, 1000.0),
)
def test_an_event_that_a_service_knew_is_the_same_in_settings(
    at: float, length: float, rate: float | None, factor: float
) -> None:
    expected = {"factor": factor} if rate is None else {"least_rps": rate}
    event = AnnouncedEvent(name="sale", at=at, until=at + length, **expected)
    found = EventSettings.of(event).event

    assert (found.name, found.at, found.factor, found.least_rps) == ("sale", at, event.factor, event.least_rps)
    assert found.until == pytest.approx(event.until)
