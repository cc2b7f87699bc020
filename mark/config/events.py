"""Announced events as people write them: in mark.yaml and on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from mark.config.parts import Part
from mark.domain.errors import Misconfigured
from mark.domain.load.announced_events import AnnouncedEvent

SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_S = 31 * SECONDS["d"]
LATEST_S = 1e11
"""Some millennia from now."""
LARGEST = 1000.0
"""No announcement multiplies a load by more: who writes 3000x meant requests/s."""
LARGEST_RPS = 1e9
"""No announcement expects more requests/s."""
LONGEST_NAME = 80
"""Characters: a name stands in tables, logs and every plan that counts the event."""


def parse_time(text: str) -> float:
    """Epoch seconds of 2026-12-01T18:00, UTC without a zone, or of a number of them. Misconfigured."""
    try:
        found = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise Misconfigured(
                f"{text!r} is not a time; write it like 2026-12-01T18:00 (UTC) or 2026-12-01T18:00+01:00"
            ) from error
        found = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0.0 <= found <= LATEST_S:
        raise Misconfigured(f"{text!r} is not a time; write it like 2026-12-01T18:00")
    return found


def parse_duration(text: str) -> float:
    """Seconds of 90m, 2h, 1d or 1h30m. Misconfigured."""
    if not re.fullmatch(r"(\d+(\.\d+)?(s|min|m|h|d))+", text):
        raise Misconfigured(f"{text!r} is not a length of time; write it like 2h or 90m")
    parts: list[tuple[str, str, str]] = re.findall(r"(\d+(\.\d+)?)(s|min|m|h|d)", text)
    found = sum(float(number) * SECONDS[unit] for number, _, unit in parts)
    if not 0 < found <= LONGEST_S:
        raise Misconfigured(f"an event cannot last {text[:20]!r}; at most {LONGEST_S / SECONDS['d']:g}d")
    return found


def parse_expectation(text: str) -> tuple[float, float]:
    """Factor and least rate, requests/s, of 3x or 500rps. Misconfigured."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(x|rps)", text)
    if found is None:
        raise Misconfigured(f"{text!r} is not an expectation; write it like 3x or 500rps")
    number = float(found[1])
    if found[2] == "rps":
        if number <= 0:
            raise Misconfigured("0rps expects nothing; name the requests/s that come")
        if number > LARGEST_RPS:
            raise Misconfigured(f"an event can expect at most {LARGEST_RPS:g} requests/s")
        return 1.0, number
    if not 1.0 < number <= LARGEST:
        raise Misconfigured(f"{text} must be above 1x and at most {LARGEST:g}x; for a rate write it like 500rps")
    return number, 0.0


def parse_name(text: str) -> str:
    """The name of an event. Misconfigured where it does not fit in a line of a table or a log."""
    if not text.strip() or not text.isprintable() or len(text) > LONGEST_NAME or "[" in text:  # rich's markup
        raise Misconfigured(
            f"{text[:LONGEST_NAME]!r} cannot name an event: it takes 1 to {LONGEST_NAME} characters in one line, "
            "and no ["
        )
    return text


def parse_event(text: str) -> dict[str, str]:
    """The settings of `TIME;LENGTH;EXPECTATION`, which --event takes. Misconfigured."""
    parts = text.split(";")
    if len(parts) != 3:
        raise Misconfigured(f"--event {text!r} must read TIME;LENGTH;EXPECT, such as 2026-12-01T18:00;2h;3x")
    return dict(zip(("at", "duration", "expect"), (part.strip() for part in parts), strict=True))


def default_name(at: float) -> str:
    """The name of an event that has none: when it begins."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _checked_by(parse: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        try:
            parse(text)
        except Misconfigured as error:
            raise ValueError(str(error)) from error  # it names what is wrong itself
        return text

    return AfterValidator(check)


def _as_text(value: object) -> object:
    """YAML reads times and numbers by itself."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


EventTime = Annotated[str, BeforeValidator(_as_text), _checked_by(parse_time)]
EventLength = Annotated[str, _checked_by(parse_duration)]
EventName = Annotated[str, _checked_by(parse_name)]
Expectation = Annotated[str, _checked_by(parse_expectation)]


def _digits(number: float) -> str:
    """All digits of a number, without an exponent."""
    return f"{Decimal(repr(number)):f}"


class EventSettings(Part):
    """One announced event (docs/worlds.md)."""

    name: EventName | None = Field(None, description="Its name; its time when left out.")
    at: EventTime = Field(
        description="When it begins, such as 2026-12-01T18:00 (UTC without a zone), or seconds since 1970: a "
        "trace without dates begins then."
    )
    duration: EventLength = Field(description="How long it lasts, such as 2h or 90m.")
    expect: Expectation = Field(
        description="What comes: 3x, that multiple of the usual load, or 500rps, so much at least."
    )
    model: str | None = Field(None, description="The model that it is about; each when left out.")

    @property
    def event(self) -> AnnouncedEvent:
        """The same for the controller."""
        at = parse_time(self.at)
        factor, least_rps = parse_expectation(self.expect)
        return AnnouncedEvent(
            name=self.name or default_name(at),
            at=at,
            until=at + parse_duration(self.duration),
            factor=factor,
            least_rps=least_rps,
            model=self.model or "",
        )

    @classmethod
    def of(cls, event: AnnouncedEvent) -> EventSettings:
        """Settings of an event that a service knew, for a replay of the model that it was about."""
        return cls(
            name=event.name,
            at=repr(event.at),
            duration=f"{_digits(event.until - event.at)}s",
            expect=f"{_digits(event.least_rps)}rps" if event.least_rps else f"{_digits(event.factor)}x",
        )
