"""Load, forecast and capacity of the last hour and of what is ahead: an SVG small enough to be sent anew.

The page draws each chart twice, wide and narrow, so that its letters keep their size on a phone. Colours are
classes of the page's style: a strict content policy allows no style attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from mark.accounting.hourly_spend import HOUR_S, HourSpend
from mark.report.formatting import finite, usd
from mark.report.live.formatting import format_rps, format_time
from mark.store.published_status import LoadSeries

LEAST_PAST_S = 900.0
"""A service that has just begun shows a quarter of an hour, or a minute would fill the page."""
LEAST_HOURS = 6
"""A service that has just begun shows so many: one column would fill the page."""
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 8, 24
MOST_ROOM = 4.0
"""Times the load that a chart has room for: a load beside more capacity would lie on the axis."""
LEAST_RPS = 1e-6
"""What is rarer is drawn as nothing."""
X_STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A run of units from `start_at` (s), each `unit_s` long; a missing value is None."""

    start_at: float
    unit_s: float
    values: tuple[float | None, ...]

    @property
    def end_at(self) -> float:
        """End of the last unit."""
        return self.start_at + self.unit_s * len(self.values)

    def edges(self) -> list[list[tuple[float, float]]]:
        """Corners (s, value) of the steps, a list for each piece without a gap."""
        pieces: list[list[tuple[float, float]]] = []
        open_piece: list[tuple[float, float]] | None = None
        for number, value in enumerate(self.values):
            if value is None:
                open_piece = None
                continue
            if open_piece is None:
                open_piece = []
                pieces.append(open_piece)
            left = self.start_at + number * self.unit_s
            open_piece += [(left, value), (left + self.unit_s, value)]
        return pieces

    def middles(self) -> list[list[tuple[float, float]]]:
        """The middles of the units, a list for each piece without a gap; a lone unit is drawn over its length."""
        return [
            [((left[0] + right[0]) / 2, left[1]) for left, right in zip(piece[::2], piece[1::2], strict=True)]
            if len(piece) > 2
            else piece
            for piece in self.edges()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """Series of a chart, requests/s."""

    mean: Stretch
    highest: Stretch
    capacity: Stretch
    forecast: Stretch
    #: Pairs of a lower and a higher quantile of the forecast, the widest first.
    fan: tuple[tuple[Stretch, Stretch], ...] = ()
    #: What the plan's fleet carries, over the time that is forecast; None without a plan.
    planned: Stretch | None = None

    @classmethod
    def of(cls, series: LoadSeries, planned_rps: float | None = None) -> ChartSeries:
        """Series of a status or a replay, and what the plan's fleet carries."""

        def stretch(values: Sequence[float | None], start_at: float = series.start_at) -> Stretch:
            return Stretch(start_at=start_at, unit_s=series.unit_s, values=tuple(map(finite, values)))

        quantiles = [stretch(values, series.forecast_start_at) for values in series.fan_max_rps]
        units = len(series.forecast_max_rps)
        planned = None if planned_rps is None else stretch((planned_rps,) * units, series.forecast_start_at)
        return cls(
            fan=tuple(zip(quantiles[: len(quantiles) // 2], reversed(quantiles), strict=False)),
            planned=planned,
            mean=stretch(series.mean_rps),
            highest=stretch(series.max_rps),
            capacity=stretch(series.capacity_rps),
            forecast=stretch(series.forecast_max_rps, series.forecast_start_at),
        )

    @property
    def load_rps(self) -> float:
        """The largest rate that came or is forecast."""
        return _largest((self.mean, self.highest, self.forecast, *(one for pair in self.fan for one in pair)))

    @property
    def capacity_rps(self) -> float:
        """The largest rate that instances carry, or those of the plan."""
        return _largest((self.capacity, *((self.planned,) if self.planned else ())))


def _largest(stretches: Iterable[Stretch]) -> float:
    return max((value for one in stretches for value in one.values if value is not None), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Scales of a chart: instants and rates to paper."""

    start_at: float
    end_at: float
    end_rps: float
    width: int
    height: int

    def x(self, at: float) -> float:
        """Whole pixels: a chart that moves by less need not be sent again."""
        share = (at - self.start_at) / (self.end_at - self.start_at)
        return round(LEFT + min(1.0, max(0.0, share)) * (self.width - LEFT - RIGHT))

    def y(self, rps: float) -> float:
        """Tenths of a pixel; what is above the chart is drawn at its top."""
        share = min(1.0, rps / self.end_rps)
        return round(self.height - BOTTOM - share * (self.height - TOP - BOTTOM), 1)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """A line through points (s, requests/s)."""
        return "M" + "L".join(f"{self.x(at):g} {self.y(rps):g}" for at, rps in points)

    def area(self, points: Sequence[tuple[float, float]]) -> str:
        """The line, closed along the bottom."""
        return self.path([(points[0][0], 0.0), *points, (points[-1][0], 0.0)]) + "Z"


def load_chart(
    series: LoadSeries,
    *,
    now: float,
    planned_rps: float | None = None,
    width: int,
    height: int,
    prefix: str,
) -> Markup:
    """The series, and the capacity of the plan ahead, as an `<svg>`; `prefix` makes its ids its own."""
    load = ChartSeries.of(series, planned_rps)
    past_at = min(load.mean.start_at if load.mean.values else now, now - LEAST_PAST_S)
    ahead_at = load.forecast.end_at if load.forecast.values else now
    rate, most = load.load_rps, load.capacity_rps
    is_above = rate > LEAST_RPS and most > MOST_ROOM * rate
    ends = rate_ticks(rate if is_above else max(rate, most), count=4 if height < 240 else 5)
    frame = Frame(
        start_at=past_at, end_at=max(ahead_at, now), end_rps=max(ends[-1], 1e-9), width=width, height=height
    )
    words = escape(describe(load))
    return Markup(  # noqa: S704 - numbers and escaped words
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{prefix}-t {prefix}-d">'
        f'<title id="{prefix}-t">Load, forecast and capacity</title><desc id="{prefix}-d">{words}</desc>'
        f"{_grid(frame, ends)}{_drawn(load, frame) or _nothing(frame)}{_now_line(frame, now)}"
        f"{_above(most) if is_above else ''}</svg>"
    )


def spend_chart(hours: Sequence[HourSpend], *, width: int, height: int, prefix: str) -> Markup:
    """Spending of each hour as stacked columns: instances, Lambda, overhead, and commitments beyond their use."""
    hours = [hour.net for hour in hours]
    totals = [hour.total for hour in hours]
    ends = rate_ticks(max(totals, default=0.0), count=4)
    start_at = hours[0].at if hours else 0.0
    end_at = max(hours[-1].at + HOUR_S if hours else 0.0, start_at + LEAST_HOURS * HOUR_S)
    frame = Frame(start_at=start_at, end_at=end_at, end_rps=ends[-1], width=width, height=height)
    parts = []
    for hour in hours:
        left, right = frame.x(hour.at) + 1, frame.x(hour.at + HOUR_S) - 1
        low = 0.0
        for key, amount in (
            ("instance", hour.instances),
            ("lambda", hour.lambda_usd),
            ("overhead", hour.overhead),
            *((("commitments", hour.commitments),) if hour.commitments else ()),
        ):
            top, bottom = frame.y(low + amount), frame.y(low)
            low += amount
            place = f'x="{left:g}" y="{top:g}" width="{right - left:g}" height="{round(bottom - top, 1):g}"'
            parts.append(f'<rect class="{key}" {place}/>')
    words = escape(describe_spend(hours))
    return Markup(  # noqa: S704 - numbers and escaped words
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{prefix}-t {prefix}-d">'
        f'<title id="{prefix}-t">Spend by the hour</title><desc id="{prefix}-d">{words}</desc>'
        f"{_grid(frame, ends)}{''.join(parts)}</svg>"
    )


def describe_spend(hours: Sequence[HourSpend]) -> str:
    """The chart of spending in a sentence, for those who hear it."""
    if not hours:
        return "No hour is over yet."
    last = hours[-1].net
    since = format_time(last.at, seconds=False)
    unused = f" and {usd(last.commitments)} for commitments beyond what they cover" if last.commitments else ""
    return f"The hour from {since} cost {usd(last.total)} USD, {usd(last.overhead)} of it overhead{unused}."


def describe(load: ChartSeries) -> str:
    """The chart in a sentence, for those who hear it."""
    if not load.mean.values:
        return "No minute is closed yet."

    def last(stretch: Stretch) -> float | None:
        return stretch.values[-1] if stretch.values else None

    ahead = [value for value in load.forecast.values if value is not None]
    words = (
        f"In the minute before {format_time(load.mean.end_at, seconds=False)} the mean was "
        f"{format_rps(last(load.mean))} requests/s and the maximum {format_rps(last(load.highest))}; "
        f"the ready instances carried {format_rps(last(load.capacity))}."
    )
    return f"{words} The forecast's highest is {format_rps(max(ahead))}." if ahead else words


def rate_ticks(peak: float, *, count: int) -> tuple[float, ...]:
    """Round rates from 0 to the first above the peak, about `count` of them."""
    if peak < LEAST_RPS:
        return (0.0, 1.0)
    raw = peak / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * (1 - 1e-9))
    steps = math.floor(peak / step + 1e-9) + 1
    return tuple(number * step for number in range(steps + 1))


def time_ticks(start_at: float, end_at: float, *, most: int) -> tuple[float, ...]:
    """Round instants within, at most `most`."""
    step = next((step for step in X_STEPS_S if (end_at - start_at) / step <= most), X_STEPS_S[-1])
    first = math.ceil(start_at / step)
    last = min(math.floor(end_at / step), first + most)
    return tuple(float(number * step) for number in range(first, last + 1))


def _grid(frame: Frame, rates: Sequence[float]) -> str:
    parts = []
    right, bottom = frame.width - RIGHT, frame.height - BOTTOM
    for rate in rates:
        y = frame.y(rate)
        parts.append(f'<path class="grid" d="M{LEFT} {y:g}H{right}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{_format_rate(rate)}</text>'
        )
    for at in time_ticks(frame.start_at, frame.end_at, most=max(3, frame.width // 58)):
        x = frame.x(at)
        if LEFT + 14 <= x <= right - 14:
            parts.append(f'<path class="axis" d="M{x:g} {bottom}v4"/>')
            words = format_time(at, seconds=False)
            parts.append(f'<text class="tick" x="{x:g}" y="{bottom + 18}" text-anchor="middle">{words}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>')
    return "".join(parts)


def _drawn(load: ChartSeries, frame: Frame) -> str:
    parts = []
    for piece in load.capacity.edges():
        parts.append(f'<path class="capacity-area" d="{frame.area(piece)}"/>')
        parts.append(f'<path class="capacity" d="{frame.path(piece)}"/>')
    planned = load.planned.edges() if load.planned else []
    parts += [f'<path class="planned" d="{frame.path(piece)}"/>' for piece in planned]
    for low, high in load.fan:
        for below, above in zip(low.edges(), high.edges(), strict=False):
            parts.append(f'<path class="fan" d="{frame.path([*above, *reversed(below)])}Z"/>')
    for mean, highest in zip(load.mean.middles(), load.highest.middles(), strict=False):
        band = [*highest, *reversed(mean)]
        parts.append(f'<path class="band" d="{frame.path(band)}Z"/>')
    parts += [f'<path class="highest" d="{frame.path(piece)}"/>' for piece in load.highest.middles()]
    parts += [f'<path class="mean" d="{frame.path(piece)}"/>' for piece in load.mean.middles()]
    for piece in load.forecast.edges():
        # a halo in the page's colour keeps the dashes visible on any line
        parts.append(f'<path class="halo" d="{frame.path(piece)}"/>')
        parts.append(f'<path class="forecast" d="{frame.path(piece)}"/>')
    return "".join(parts)


def _nothing(frame: Frame) -> str:
    place = f'x="{(LEFT + frame.width - RIGHT) / 2:g}" y="{frame.height / 2:g}"'
    return f'<text class="nothing" {place} text-anchor="middle">no minute is closed yet</text>'


def _above(most_rps: float) -> str:
    return (
        f'<text class="now-word" x="{LEFT + 6}" y="{TOP + 28}">capacity up to {format_rps(most_rps)}, above this '
        "chart</text>"
    )


def _now_line(frame: Frame, now: float) -> str:
    x = frame.x(now)
    side, anchor = (x - 5, "end") if x > frame.width / 2 else (x + 5, "start")
    return (
        f'<path class="now" d="M{x:g} {TOP}V{frame.height - BOTTOM}"/>'
        f'<text class="now-word" x="{side:g}" y="{TOP + 10}" text-anchor="{anchor}">now</text>'
    )


def _format_rate(rate: float) -> str:
    """A label that fits left of the axis: 60, 2.5, 13k."""
    return f"{rate / 1000:,.4g}k" if rate >= 10_000 else f"{rate:,.4g}"
