"""Quantiles of a load that bursts: a calm load, the chance of a burst in each unit, and the course of past bursts.

The calm load is the series without its bursts, forecast by the mean of its last units with the quantiles of its
own errors. Above it lies the excess of a burst:

    calm now     onset in unit v with the hazard of `onsets.py`, so that a burst of age a is under way in unit u
                 with the chance of an onset in u - a; its excess is distributed as that of past bursts at that age
    burst now    as past bursts went on that were alike: by age, and by the excess of the last two units

and quantiles are those of the mixture of both. A burst unlike all others, or the first, is expected to last as
long again as it has lasted, at the height that it has. All is learned from the week before an origin, anew each
hour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.predictors.classical.points import DAY_S, HOUR_S, MovingMeanRule, first_unit
from mark.predictors.classical.residuals import PointExpert
from mark.predictors.clock_bursts.bursts import SETTLED_UNITS, Bursts, extend_bursts, find_bursts
from mark.predictors.clock_bursts.onsets import OnsetHazard, learn_hazard
from mark.predictors.expert import LEVELS, Floats, Ints, Series

MEMORY_S = 7 * DAY_S
"""Age up to which bursts count: a week holds every weekday once."""
SMALL_SHARE = 0.2
"""Of the median burst's size: a smaller burst is no onset, and leaves the time since the last one as it is."""
MOST_BURSTS = 100
"""Latest bursts whose course is remembered."""
LONGEST = 60
"""Units of a burst's course that are remembered."""
ALIKE = 0.25
"""Distance of two bursts' logarithmic excess or age at which one counts for the other by exp(-1/2)."""
ALIKE_AGE = 0.4
UNLIKE = 0.5
"""Weight of a course that nobody has seen: as long again, at this height."""
MOST_ALIKE = 150
"""Courses that are looked at, the most alike."""
HEIGHTS = 40
"""Heights that the excess of past bursts is rounded to."""
SCARCE = 1e-4
"""Chance of a burst below which none is expected."""
TAIL = 1.0
"""Of the gap between the two highest quantiles, and the two lowest: how far the calm load goes beyond."""


class ClockBursts:
    """Calm load and bursts as an expert. Not for several threads: it keeps what it found."""

    name = "clock-bursts"

    def __init__(self) -> None:
        """Nothing is learned beforehand."""
        self._calm = PointExpert(MovingMeanRule())
        self.needs_units = self._calm.needs_units
        self._seen = Series(rates=np.empty(0), start_at=0.0)
        self._bursts = find_bursts(self._seen)
        self._learned: dict[int, _Learned | None] = {}

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Quantiles after each origin, see `Expert`. Returns shape (origins, horizon, len(LEVELS))."""
        answer = np.full((len(ends), horizon, len(LEVELS)), np.nan)
        able = np.flatnonzero((ends >= self.needs_units) & (ends <= len(series.rates)))
        if not len(able):
            return answer
        hour = max(1, round(HOUR_S / series.unit_s))
        known = ends - (ends + first_unit(series)) % hour
        gone = max(0, int(known[able].min()) - round(MEMORY_S / series.unit_s) - SETTLED_UNITS)
        self._follow(_from(series, gone))
        bursts, start = self._bursts, first_unit(self._seen)
        settled = SETTLED_UNITS if gone else 0  # before it the base is another one for each first unit
        calm = _from(replace(self._seen, rates=bursts.calm), settled)
        answer[able] = self._calm.forecast(calm, ends[able] - gone - settled, horizon)
        for row in able:
            end, hour_end = int(ends[row]) - gone, max(0, int(known[row]) - gone)
            if hour_end not in self._learned:
                self._learned[hour_end] = _learn(self._seen, start, bursts, hour_end)
            answer[row] = _with_bursts(answer[row], self._learned[hour_end], bursts, start, end)
        return answer

    def _follow(self, series: Series) -> None:
        """Find the bursts: what was found before is kept where the series shown continues that one."""
        seen, units = self._seen, len(self._seen.rates)
        goes_on = (seen.start_at, seen.unit_s) == (series.start_at, series.unit_s) and np.array_equal(
            seen.rates, series.rates[:units]
        )
        self._seen = series
        if goes_on:
            self._bursts = extend_bursts(self._bursts, series)
        else:
            self._bursts, self._learned = find_bursts(series), {}


@dataclass(frozen=True, slots=True)
class _Learned:
    """Facts of the bursts that had ended by an hour.

    courses: shape (bursts, LONGEST), the excess of each from its onset on, 0 once it has ended, which is after
    `lengths` units, shape (bursts,).
    """

    hazard: OnsetHazard
    #: The size above which a burst counts, requests.
    least: float
    courses: Floats
    lengths: Ints
    #: Heights of excess, shape (HEIGHTS,), and the chance of each at each age, shape (LONGEST, HEIGHTS); what is
    #: missing to 1 has ended.
    heights: Floats
    chances: Floats


def _learn(series: Series, start: int, bursts: Bursts, known: int) -> _Learned | None:
    low = max(0, known - round(MEMORY_S / series.unit_s))
    begun = (bursts.onsets >= low) & (bursts.onsets < known)
    ended = begun & (bursts.ends < known)  # one that ends with the last known unit may go on
    if not ended.any():
        return None
    sizes = bursts.sizes(known)
    least = SMALL_SHARE * float(np.median(sizes[ended]))
    hazard = learn_hazard(series, start, _some(bursts, begun & (sizes >= least)), low, known)
    latest = np.flatnonzero(ended & (sizes >= least))[-MOST_BURSTS:]
    lengths = np.minimum(bursts.ends[latest] - bursts.onsets[latest], LONGEST)
    ages = np.arange(LONGEST)
    at = np.minimum(bursts.onsets[latest][:, None] + ages, len(series.rates) - 1)
    alive = ages < lengths[:, None]
    courses = np.where(alive, bursts.excess[at], 0.0)
    heights = np.quantile(courses[alive], (np.arange(HEIGHTS) + 0.5) / HEIGHTS)
    edges = 0.5 * (heights[1:] + heights[:-1])
    which = np.searchsorted(edges, courses)
    chances = np.zeros((LONGEST, HEIGHTS))
    for age in ages:
        chances[age] = np.bincount(which[alive[:, age], age], minlength=HEIGHTS)
    return _Learned(hazard, least, courses, lengths, heights, chances / len(latest))


def _from(series: Series, unit: int) -> Series:
    """The series from a unit on."""
    first = max(0, unit)
    start_at = series.start_at + first * series.unit_s
    return Series(rates=series.rates[first:], start_at=start_at, unit_s=series.unit_s)


def _some(bursts: Bursts, which: NDArray[np.bool_]) -> Bursts:
    return replace(bursts, onsets=bursts.onsets[which], ends=bursts.ends[which])


def _with_bursts(calm: Floats, learned: _Learned | None, bursts: Bursts, start: int, end: int) -> Floats:
    """The quantiles with bursts. calm: those without, shape (horizon, levels)."""
    horizon = len(calm)
    begun = np.searchsorted(bursts.onsets, end, side="left")
    age = 0
    if begun and bursts.ends[begun - 1] >= end and bursts.onsets[begun - 1] < end:
        # the burst's last known unit is the series' last one: it goes on
        age = end - int(bursts.onsets[begun - 1])
    heights: list[Floats] = []
    weights: list[Floats] = []
    over = np.ones(horizon)  # chance that no burst is under way from before
    if age:
        course = bursts.excess[end - age : end]
        on_heights, on_weights = _going_on(course, learned, horizon)
        over = 1.0 - (on_weights * (on_heights > 0)).sum(axis=0)
        heights.append(on_heights.T)
        weights.append(np.where(on_heights > 0, on_weights, 0.0).T)
    if learned is not None:
        new = _onsets(learned, bursts, start, end, over, int(begun))
        ages = np.arange(horizon)[:, None] - np.arange(LONGEST)
        by_height = np.where(ages >= 0, new[np.maximum(ages, 0)], 0.0) @ learned.chances
        busy = by_height.sum(axis=1)
        if weights:
            weights[0] = weights[0] * (1.0 - busy)[:, None]
        heights.append(np.broadcast_to(learned.heights, (horizon, HEIGHTS)))
        weights.append(by_height)
    if not weights:
        return calm
    return _mixed(calm, np.concatenate(heights, axis=1), np.concatenate(weights, axis=1))


def _onsets(learned: _Learned, bursts: Bursts, start: int, end: int, over: Floats, begun: int) -> Floats:
    """Chance that the next burst begins in each unit to come: shape (horizon,)."""
    units = end + np.arange(len(over))
    sizes = bursts.sizes(end)[:begun]
    counted = np.flatnonzero(sizes >= learned.least)
    last = int(bursts.onsets[counted[-1]]) if len(counted) else None
    since = units - last if last is not None else np.full(len(units), -1)
    hazard = learned.hazard.at(units + start, since) * over
    before = np.concatenate(([1.0], np.cumprod(1.0 - hazard)[:-1]))
    return before * hazard


def _going_on(course: Floats, learned: _Learned | None, horizon: int) -> tuple[Floats, Floats]:
    """Courses of the excess after a burst's first units, and their weights: shape (courses, horizon) both.

    course: the excess so far.
    """
    age, height = len(course), max(float(course[-1]), 1e-12)
    leads = np.arange(1, horizon + 1)
    # as long again, half of them: the chance to last for k more units after `age` is age / (age + k)
    lasting = age / (age + leads)
    unseen = np.full((1, horizon), height)
    share = UNLIKE * np.stack([lasting, 1.0 - lasting])
    if learned is None or not len(learned.courses):
        return np.concatenate([unseen, 0 * unseen]), share / UNLIKE
    past, at = np.nonzero(np.arange(learned.courses.shape[1]) < learned.lengths[:, None])
    now = learned.courses[past, at]
    before = np.where(at > 0, learned.courses[past, np.maximum(at - 1, 0)], 0.0)
    scale = max(float(learned.heights[-1]), 1e-12)
    floor = 0.05 * scale
    own_before = float(course[-2]) if age > 1 else 0.0
    distance = (
        (np.log(now + floor) - np.log(height + floor)) ** 2
        + (np.log(before + floor) - np.log(own_before + floor)) ** 2
    ) / ALIKE**2 + ((np.log1p(at) - np.log(age)) / ALIKE_AGE) ** 2
    alike = np.exp(-0.5 * distance)
    chosen = np.argsort(-alike, kind="stable")[:MOST_ALIKE]
    past, at, alike = past[chosen], at[chosen], alike[chosen]
    units = at[:, None] + leads
    length = learned.courses.shape[1]
    later = np.where(units < length, learned.courses[past[:, None], np.minimum(units, length - 1)], 0.0)
    total = alike.sum() + UNLIKE
    weights = np.concatenate([np.broadcast_to(alike[:, None], later.shape), share]) / total
    return np.concatenate([later, unseen, 0 * unseen]), weights


def _mixed(calm: Floats, heights: Floats, weights: Floats) -> Floats:
    """Quantiles of the calm load with the rest of the weight, and heights above its median.

    calm: shape (horizon, levels); heights, weights: (horizon, heights).
    """
    below = np.maximum(calm[:, :1] - TAIL * (calm[:, 1:2] - calm[:, :1]), 0.0)
    above = calm[:, -1:] + TAIL * (calm[:, -1:] - calm[:, -2:-1])
    knots = np.concatenate([below, calm, above], axis=1)
    knots += 1e-9 * (1.0 + knots[:, -1:]) * np.arange(knots.shape[1])  # rising, for the inverse
    order = np.argsort(heights, axis=1, kind="stable")
    bursting = calm[:, len(LEVELS) // 2, None] + np.take_along_axis(heights, order, axis=1)
    found = calm.copy()
    _read_mixture(found, knots, bursting, np.take_along_axis(weights, order, axis=1))
    return np.maximum.accumulate(found, axis=-1)


@njit(cache=True)
def _read_mixture(found: Floats, knots: Floats, bursting: Floats, weights: Floats) -> None:  # pragma: no cover
    """Overwrite `found`, shape (horizon, levels), with the quantiles of both: each is piecewise uniform.

    bursting: loads of weight `weights`, rising, each at the middle of its own share.
    """
    levels = np.array(LEVELS)
    ranks = np.concatenate((np.zeros(1), levels, np.ones(1)))
    for lead in range(len(found)):
        busy = weights[lead].sum()
        if busy < SCARCE:
            continue
        at = np.sort(np.concatenate((knots[lead], bursting[lead])))
        share = (1.0 - busy) * np.interp(at, knots[lead], ranks)
        middle = np.cumsum(weights[lead]) - 0.5 * weights[lead]
        own = np.interp(at, bursting[lead], middle)
        for i in range(len(at)):
            if at[i] > bursting[lead, -1]:
                share[i] += busy
            elif at[i] >= bursting[lead, 0]:
                share[i] += own[i]
        found[lead] = np.interp(levels, share, at)
