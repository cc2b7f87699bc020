"""Settings of bounds of capacity by the clock, as they are written in mark.yaml."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from mark.config.parts import NotNegative, Part, Positive, matching
from mark.domain.errors import unknown
from mark.domain.plans.capacity_schedule import DAY_S, EVERY_DAY, CapacityWindow

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CHECKED_DAYS = 366
"""Days of which every minute that a window begins at is looked at: the clocks change twice in them."""


def _as_written(value: object) -> object:
    """YAML takes 20:00 without quotes for 1,200, a number to the base of 60; 0:30 it leaves as it is."""
    if isinstance(value, int) and not isinstance(value, bool) and 60 <= value <= DAY_S // 60:
        return f"{value // 60:02d}:{value % 60:02d}"
    return value


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(str(unknown("time zone", name, sorted(available_timezones())))) from error
    return name


def _known_days(text: str) -> str:
    for part in text.split(","):
        if not all(day in DAYS for day in part.split("-")) or part.count("-") > 1:
            raise PydanticCustomError("days", "should read like mon-fri or sat,sun")
    return text


ClockTime = Annotated[str, BeforeValidator(_as_written), matching(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00", "08:00")]
TimeZone = Annotated[str, AfterValidator(_known_zone)]
Days = Annotated[str, AfterValidator(_known_days)]


class CapacitySettings(Part):
    """Bounds of capacity in a time of the day. Without `start` and `end` they hold all day."""

    start: ClockTime = Field("00:00", description="When they begin to hold, by the clock on the wall.")
    end: ClockTime = Field(
        "24:00", description="When they cease to; before `start`, on the day after that on which they began."
    )
    days: Days = Field("mon-sun", description="Days on which they begin, such as mon-fri or sat,sun.")
    timezone: TimeZone = Field("UTC", description="Time zone of both times, such as Europe/Berlin.")
    min_rps: Positive | None = Field(
        None, description="Requests/s that the planned fleet can carry at least, whatever is forecast."
    )
    max_rps: NotNegative | None = Field(
        None,
        description="Requests/s that the planned fleet carries at most; Lambda takes the rest where it is used.",
    )

    @model_validator(mode="after")
    def _has_sense(self) -> CapacitySettings:
        if self.start == "24:00":
            raise ValueError("start is 24:00; write 00:00, the start of the day after")
        if self.start == self.end:
            raise ValueError(f"start and end are both {self.start}; leave both out for all day")
        if self.min_rps is None and self.max_rps is None:
            raise ValueError("neither min_rps nor max_rps is given; name one")
        if self.min_rps is not None and self.max_rps is not None and self.min_rps > self.max_rps:
            raise ValueError(f"min_rps {self.min_rps:g} is above max_rps {self.max_rps:g}")
        return self

    @classmethod
    def of(cls, window: CapacityWindow) -> CapacitySettings:
        """Settings of bounds that a service had, for a replay of it."""
        return cls(
            start=_clock_time(window.start_s),
            end=_clock_time(window.end_s),
            days=",".join(DAYS[day] for day in window.days),
            timezone=window.timezone,
            min_rps=window.min_rps,
            max_rps=window.max_rps,
        )

    @property
    def window(self) -> CapacityWindow:
        """The same for the controller."""
        return CapacityWindow(
            start_s=_seconds(self.start),
            end_s=_seconds(self.end),
            days=_numbers(self.days),
            timezone=self.timezone,
            min_rps=self.min_rps,
            max_rps=self.max_rps,
        )


def _seconds(text: str) -> int:
    hours, minutes = re.findall(r"\d+", text)
    return int(hours) * 3600 + int(minutes) * 60


def _clock_time(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}"


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers of the days, rising; fri-mon goes over the week's end."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return EVERY_DAY if len(found) == len(DAYS) else tuple(sorted(found))


def _agreeing(schedule: tuple[CapacitySettings, ...]) -> tuple[CapacitySettings, ...]:
    """Refuse a schedule in which a minimum lies above a maximum at some time of a year.

    Such a time begins where one of the windows does.
    """
    windows = [item.window for item in schedule]
    if not any(window.max_rps is not None for window in windows):
        return schedule
    for window in windows:
        for at in _beginnings(window):
            held = [item for item in windows if item.is_in_force(at)]
            minimum = max((item.min_rps for item in held if item.min_rps is not None), default=0.0)
            maximum = min((item.max_rps for item in held if item.max_rps is not None), default=None)
            if maximum is not None and minimum > maximum:
                when = datetime.fromtimestamp(at, ZoneInfo(window.timezone))
                raise ValueError(
                    f"on {when:%A} at {when:%H:%M} {window.timezone} a min_rps of {minimum:g} and a max_rps of "
                    f"{maximum:g} hold together; let the windows not overlap"
                )
    return schedule


def _beginnings(window: CapacityWindow) -> list[float]:
    """Instants of a year at which the window begins, epoch seconds."""
    hour, minute = window.start_s // 3600, window.start_s % 3600 // 60
    first = datetime(2026, 1, 1, hour, minute, tzinfo=ZoneInfo(window.timezone))
    days = (first + timedelta(days=number) for number in range(CHECKED_DAYS))
    return [day.astimezone(UTC).timestamp() for day in days if day.weekday() in window.days]


CapacitySchedule = Annotated[tuple[CapacitySettings, ...], AfterValidator(_agreeing)]
