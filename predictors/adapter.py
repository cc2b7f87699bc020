"""An expert for means and one for maxima as the forecaster of the controller's port.

Below the history that the experts need, simple rules stand in and `Forecast.degraded` names them: the last value
with the quantiles of its own errors, and below the half-hour that these take, the maximum of the last hour.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.domain.demand import Demand, Forecast
from mark.predictors.classical.points import HOUR_S, LastValueRule
from mark.predictors.classical.residuals import PointExpert
from mark.predictors.expert import LEVELS, Expert, Floats, Ints, Series


class ExpertForecaster:
    """A forecaster made of two experts. Not for several threads: experts keep what they computed."""

    def __init__(self, mean_expert: Expert, max_expert: Expert, *, name: str = "", lacking: str = "") -> None:
        """Take the experts. `name` is theirs where none is given; `lacking` is what they go without."""
        self._experts = (mean_expert, max_expert)
        self._simple = (PointExpert(LastValueRule()), PointExpert(LastValueRule()))
        self._name, self._lacking = name or mean_expert.name, lacking

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """Quantiles of the `horizon` units from `history.end_at` on; a maximum is never below the mean."""
        return self.forecast_each(history, (len(history),), horizon)[0]

    def forecast_each(self, load: Demand, ends: Sequence[int], horizon: int) -> list[Forecast]:
        """The forecast after each of the first `ends` units of a load, rising; see `BatchForecaster`."""
        series = (mean_series(load), max_series(load))
        needed = max(expert.needs_units for expert in self._experts)
        able = np.array([end for end in ends if end >= max(1, needed)], np.int64)
        found = np.full((len(ends), 2, horizon, len(LEVELS)), np.nan)
        if len(able):
            found[len(ends) - len(able) :] = _ask(self._experts, series, able, horizon)
        return [
            self._answer(load, end, own, "")
            if np.isfinite(own).all()
            else self._simple_answer(load, series, end, horizon, needed)
            for end, own in zip(ends, found, strict=True)
        ]

    def _simple_answer(
        self, load: Demand, series: tuple[Series, Series], end: int, horizon: int, needed: int
    ) -> Forecast:
        """The answer after `end` units where the experts have none."""
        if not end:
            return self._answer(load, end, np.zeros((2, horizon, len(LEVELS))), "no history, zeros")
        why = "no finite answer" if end >= needed else f"under {needed} units of history"
        found = _ask(self._simple, series, np.array([end]), horizon)[0]
        if np.isfinite(found).all():
            return self._answer(load, end, found, f"{why}, last value")
        highest = np.array([one.rates[max(0, end - _hour(one)) : end].max() for one in series])
        flat = np.broadcast_to(highest[:, None, None], (2, horizon, len(LEVELS)))
        return self._answer(load, end, flat, f"{why}, last hour's maximum")

    def _answer(self, load: Demand, end: int, found: Floats, short: str) -> Forecast:
        """found: shape (2, horizon, levels), means and maxima after the first `end` units."""
        means, maxima = found[0], np.maximum(found[0], found[1])
        return Forecast(
            start_at=load.end_at - (len(load) - end) * load.unit_s,
            mean_rps=tuple(map(tuple, means.tolist())),
            max_rps=tuple(map(tuple, maxima.tolist())),
            quantiles=LEVELS,
            unit_s=load.unit_s,
            source=self._name,
            degraded=": ".join(part for part in (self._lacking, short) if part) or None,
        )


def mean_series(history: Demand) -> Series:
    """The means of a history."""
    return _series(history, history.mean_rps)


def max_series(history: Demand) -> Series:
    """The maxima of a history."""
    return _series(history, history.max_rps)


def _series(history: Demand, rates: tuple[float, ...]) -> Series:
    return Series(
        rates=np.array(rates, np.float64),
        start_at=history.end_at - len(rates) * history.unit_s,
        unit_s=history.unit_s,
    )


def _ask(experts: tuple[Expert, Expert], series: tuple[Series, Series], ends: Ints, horizon: int) -> Floats:
    """Shape (ends, 2, horizon, levels), NaN where an expert is unavailable."""
    return np.stack(
        [expert.forecast(one, ends, horizon) for expert, one in zip(experts, series, strict=True)], axis=1
    )


def _hour(series: Series) -> int:
    return max(1, round(HOUR_S / series.unit_s))
