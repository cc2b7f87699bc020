"""A forecaster that was made of a past on another clock than the service's, asked with the service's."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.demand import Demand, Forecast
from mark.ports import Forecaster


class OwnClock:
    """A Forecaster that reads the time on the clock of the history that it was made of.

    A service that begins with a trace's past takes it for what came right before its start. What was learned of
    the clock (the load of an hour, a burst at each half hour, which units it was trained on) was learned on the
    trace's. So the history is moved back there, by whole units, and the forecast to the service's clock: it is the
    forecast of a replay of the same slice.
    """

    def __init__(self, forecaster: Forecaster, made_of: Demand) -> None:
        """made_of: the forecaster's history."""
        self._forecaster = forecaster
        self._made_until = self._began_at = made_of.end_at

    def begin(self, began_at: float) -> None:
        """Take the history that it was made of for what came before `began_at`, service time."""
        self._began_at = began_at

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """The forecast of the `horizon` units after the history, on the history's clock."""
        units = round((history.end_at - self._began_at) / history.unit_s)
        end_at = self._made_until + units * history.unit_s
        made = self._forecaster.forecast(replace(history, end_at=end_at), horizon)
        # anything else than the forecast that was asked for is for the controller to refuse
        right = isinstance(made, Forecast) and made.start_at == end_at
        return replace(made, start_at=history.end_at) if right else made
