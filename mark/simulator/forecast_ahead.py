"""Forecasts of a replay, hours of them at once: its load is known, and no decision changes what arrives.

The learned forecasters answer at many instants in a fraction of the time that the same questions take one by one.
The answer at each is made from the units before it alone, so it is the one that a live service gets. It is given
only where the controller shows exactly the history that it was made for; else the forecaster is asked as usual.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.demand import KEEP_HISTORY, UNIT_S, Demand, Forecast
from mark.ports import BatchForecaster, Forecaster

AHEAD = 240
"""Units at once: more save little, and the answers take memory."""


def asked_ahead(forecaster: Forecaster, load: Demand, period_s: float) -> Forecaster:
    """The forecaster, asked ahead where it can be and a plan is due with each unit. load: that of the run."""
    if isinstance(forecaster, BatchForecaster) and period_s <= UNIT_S:
        return _AskedAhead(forecaster, load)
    return forecaster


@dataclass(frozen=True, slots=True)
class _Answers:
    """Forecasts after the first `known` units of a load and after each more."""

    load: Demand
    known: int
    horizon: int
    forecasts: tuple[Forecast, ...]

    def place(self, history: Demand) -> int:
        """Place in `forecasts` of the one at the history's end, were it the load's; there may be none."""
        return round((history.end_at - self.load.end_at) / self.load.unit_s) + len(self.load) - self.known

    def at(self, history: Demand, horizon: int) -> Forecast | None:
        """The answer to exactly this question; None where it was not asked."""
        place = self.place(history)
        if not 0 <= place < len(self.forecasts) or (horizon, history.unit_s) != (self.horizon, self.load.unit_s):
            return None
        end = self.known + place
        units, found = slice(max(0, end - KEEP_HISTORY), end), self.forecasts[place]
        shown = history.mean_rps, history.max_rps
        is_same = shown == (self.load.mean_rps[units], self.load.max_rps[units])
        return found if is_same and found.start_at == history.end_at else None


class _AskedAhead:
    """A forecaster for one run, from its start to its end."""

    def __init__(self, forecaster: BatchForecaster, load: Demand) -> None:
        self.name = str(getattr(forecaster, "name", type(forecaster).__name__))
        self._forecaster = forecaster
        self._load = load
        self._answers: _Answers | None = None
        self._is_ahead = True

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """The forecaster's own answer."""
        if self._is_ahead:
            answers = self._answers
            if answers is None or answers.place(history) >= len(answers.forecasts):
                answers = self._answers = self._ask(history, horizon)
            found = answers.at(history, horizon)
            if found is not None:
                return found
            self._is_ahead, self._answers = False, None  # another load than the run's: so will be what follows
        return self._forecaster.forecast(history, horizon)

    def _ask(self, history: Demand, horizon: int) -> _Answers:
        """The answers from the end of a history on."""
        begin = round((history.end_at - self._load.end_at) / history.unit_s) + len(self._load)
        coming = slice(max(0, begin), max(0, begin) + AHEAD - 1)
        load = Demand(
            end_at=history.end_at + len(self._load.mean_rps[coming]) * history.unit_s,
            mean_rps=history.mean_rps + self._load.mean_rps[coming],
            max_rps=history.max_rps + self._load.max_rps[coming],
            unit_s=history.unit_s,
        )
        ends = range(len(history), len(load) + 1)
        return _Answers(load, len(history), horizon, tuple(self._forecaster.forecast_each(load, ends, horizon)))
