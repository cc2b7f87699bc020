import numpy as np

from mark.domain.demand import Demand, Forecast
from mark.ports import ForecasterSetup

LEVELS = (0.5, 0.75, 0.9, 0.95)


class LastHour:
    def __init__(self, setup: ForecasterSetup) -> None:
        self.card = {"family": "quantiles of the last hour", "learned from": "nothing"}

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        kinds = (history.mean_rps[-60:], history.max_rps[-60:])
        mean, peak = (tuple(np.quantile(rates or (0.0,), LEVELS).tolist()) for rates in kinds)
        return Forecast(
            start_at=history.end_at,
            mean_rps=(mean,) * horizon,
            max_rps=(peak,) * horizon,
            quantiles=LEVELS,
            source="last hour",
        )
