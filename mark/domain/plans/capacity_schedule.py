"""Bounds of planned capacity by the clock: a schedule of windows, and the minimum and maximum at an instant. Pure.

A window is in force while the clock on the wall of its time zone stands between its start and its end, on its
days. So a day on which the clocks change needs no rule of its own: an hour that they skip is never in force, one
that comes twice is twice. A window whose end is not after its start runs over midnight and belongs to the day on
which it begins. Where several are in force, the highest minimum and the lowest maximum hold, and a maximum before
a minimum. (Kubernetes' KEDA has the same window in its cron scaler, `start`, `end` and `timezone`; AWS in a pair
of scheduled actions with `MinCapacity` and `MaxCapacity`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

DAY_S = 86_400
EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
"""Monday to Sunday, as `datetime.weekday` counts them."""
STEP_S = 60.0
"""Windows begin and end at whole minutes: none lies between two instants so far apart."""

WEEK_S = 7.0 * DAY_S
CLOCK_CHANGE_S = 1800.0
"""Clocks are changed at whole or half hours of UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityBounds:
    """The least and the most that a plan's fleet may carry, requests/s."""

    min_rps: float = 0.0
    #: None for no maximum.
    max_rps: float | None = None


NO_BOUNDS = CapacityBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityWindow:
    """A time of the day, on some days of the week, with its bounds."""

    #: When it begins, seconds of the day by the clock on the wall.
    start_s: int = 0
    #: When it ends, at most DAY_S; at or before `start_s`: on the day after.
    end_s: int = DAY_S
    #: Days of the week on which it begins, Monday is 0.
    days: tuple[int, ...] = EVERY_DAY
    #: IANA's name of the time zone.
    timezone: str = "UTC"
    #: Least capacity, requests/s; None for no bound.
    min_rps: float | None = None
    #: Most capacity, requests/s; None for no bound.
    max_rps: float | None = None

    def is_in_force(self, at: float) -> bool:
        """True where the window holds at that instant, epoch seconds."""
        local = datetime.fromtimestamp(at, ZoneInfo(self.timezone))
        second = local.hour * 3600 + local.minute * 60 + local.second
        today = local.weekday()
        if self.start_s < self.end_s:
            return today in self.days and self.start_s <= second < self.end_s
        began_today = second >= self.start_s and today in self.days
        return began_today or (second < self.end_s and (today - 1) % 7 in self.days)


def bounds_at(windows: Sequence[CapacityWindow], at: float) -> CapacityBounds:
    """The bounds in force at an instant, epoch seconds."""
    held = [window for window in windows if window.is_in_force(at)]
    minimum = max((window.min_rps for window in held if window.min_rps is not None), default=0.0)
    maximum = min((window.max_rps for window in held if window.max_rps is not None), default=None)
    return CapacityBounds(
        min_rps=minimum if maximum is None else min(minimum, maximum),
        max_rps=maximum,
    )


def bounds_ahead(windows: Sequence[CapacityWindow], now: float, lead_s: float) -> CapacityBounds:
    """The bounds of a plan made now, whose launches serve `lead_s` later.

    The minimum is the highest from now until then: what is needed at eight is launched before eight, and what is
    needed until eight stays until eight. The maximum is that of now, raised to the minimum where that comes next.
    """
    if not windows:
        return NO_BOUNDS
    here = bounds_at(windows, now)
    minimum, at, until = here.min_rps, now, now + lead_s
    while at < until:
        at = min(at + STEP_S, until)
        minimum = max(minimum, bounds_at(windows, at).min_rps)
    return CapacityBounds(min_rps=minimum, max_rps=None if here.max_rps is None else max(here.max_rps, minimum))


def next_bounds(windows: Sequence[CapacityWindow], now: float) -> tuple[float, CapacityBounds] | None:
    """Next change of the bounds: its instant, epoch seconds, and the new ones; None where a week brings none."""
    here = bounds_at(windows, now)
    for at in sorted(at for at in _edges(windows, now) if now < at <= now + WEEK_S):
        bounds = bounds_at(windows, at)
        if bounds != here:
            return at, bounds
    return None


def _edges(windows: Sequence[CapacityWindow], now: float) -> set[float]:
    """Instants at which the bounds may change: starts and ends of windows, and when clocks may be changed."""
    first = now // CLOCK_CHANGE_S
    found = {(first + number) * CLOCK_CHANGE_S for number in range(int(WEEK_S / CLOCK_CHANGE_S) + 2)}
    for window in windows:
        zone = ZoneInfo(window.timezone)
        today = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for day in range(-1, 9):
            for second in (window.start_s, window.end_s):
                local = today + timedelta(days=day, seconds=second)
                found |= {local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)}
    return found
