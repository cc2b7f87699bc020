"""MArk's vanilla multi-step LSTM (section 4.2: [P_u, P_w, P_s] = [1 min, 60, 5 s]).

One LSTM layer reads the last 60 units, their mean and maximum, and a linear head gives both for the next 60 at
once. It is trained once, on all of the history before the run; its weights are cached under a name made from all
that they depend on. With under a day of history there is nothing to learn a day's shape from: then the maxima
of the last hour are the forecast, and `Forecast.degraded` names the reason.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mark.domain.demand import Demand, Forecast, point_forecast
from mark.domain.errors import Misconfigured
from mark.ports import Forecaster, ForecasterSetup
from mark.predictors.lstm.vanilla_settings import LstmSettings
from mark.predictors.lstm.vanilla_weights import Floats32, LstmForward, LstmWeights, read_weights, write_weights
from mark.predictors.naive import DAY_S, without_history

NAME = "lstm-vanilla"
FORMAT = 1
"""Part of a cached file's name: raise it when training or the file's arrays change their meaning."""
HOUR_S = 3_600.0


def build(setup: ForecasterSetup, *, settings: LstmSettings | None = None) -> Forecaster:
    """A forecaster that learned from `setup.history`, or one that plans on the last hour where that is too short.

    The same history, settings and seed give the same forecasts. Errors: ImportError where it has to train and
    torch is absent; Misconfigured where the history holds rates that are negative or no numbers.
    """
    settings = settings or LstmSettings()
    history = setup.history
    if len(history) * history.unit_s < DAY_S:
        return LastHour("under a day of history")
    rates = _rates(history, len(history))
    if not (np.isfinite(rates).all() and (rates >= 0).all()):
        raise Misconfigured(f"{NAME}: the history holds rates that are negative or no numbers; repair the trace")
    cached = _cache_path(setup, settings, rates)
    weights = read_weights(cached) if cached else None
    if weights is None:
        weights = _train(rates, settings, seed=setup.seed, progress=setup.progress)
        if cached:
            _keep(cached, weights)
    return LstmVanilla(weights, window=settings.window)


class LastHour:
    """The last hour's highest mean and maximum over the whole horizon, and the reason in `degraded`."""

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        self._reason = reason

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """Rates of the `horizon` units from `history.end_at` on."""
        if not len(history):
            return without_history(NAME, history, horizon)
        units = max(1, round(HOUR_S / history.unit_s))
        return point_forecast(
            history.end_at,
            mean_rps=(max(history.mean_rps[-units:]),) * horizon,
            max_rps=(max(history.max_rps[-units:]),) * horizon,
            source=NAME,
            degraded=f"{self._reason}, last hour's maximum",
        )


class LstmVanilla:
    """The trained network. Beyond the leads it was trained for, the last of them repeats."""

    def __init__(self, weights: LstmWeights, *, window: int) -> None:
        """Prepare the forward pass."""
        self._forward = LstmForward(weights)
        self._window = window
        self._blind = LastHour(f"under {window} units of history")
        self._broken = LastHour("no finite answer")

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """Rates of the `horizon` units from `history.end_at` on, from the last window of the history."""
        if len(history) < self._window:
            return self._blind.forecast(history, horizon)
        rates = self._forward(_rates(history, self._window)).astype(np.float64)
        if not np.isfinite(rates).all():
            return self._broken.forecast(history, horizon)
        leads = np.minimum(np.arange(horizon), len(rates) - 1)
        mean_rps = rates[leads, 0]
        # The two outputs are learned apart and may cross by an error's width; a maximum below its mean is none.
        max_rps = np.maximum(rates[leads, 1], mean_rps)
        return point_forecast(
            history.end_at, mean_rps=tuple(mean_rps.tolist()), max_rps=tuple(max_rps.tolist()), source=NAME
        )


def _rates(history: Demand, units: int) -> Floats32:
    columns = (history.mean_rps[-units:], history.max_rps[-units:])
    return np.ascontiguousarray(np.array(columns, np.float32).T)


def _train(
    rates: Floats32, settings: LstmSettings, *, seed: int, progress: Callable[[str, float], None] | None
) -> LstmWeights:
    from mark.predictors.lstm.vanilla_training import train_lstm  # noqa: PLC0415 - torch is loaded only where it is needed

    return train_lstm(rates, settings, seed=seed, progress=progress)


def _cache_path(setup: ForecasterSetup, settings: LstmSettings, rates: Floats32) -> Path | None:
    if setup.cache_dir is None:
        return None
    parts = hashlib.sha256(repr((FORMAT, settings, setup.seed, setup.history.unit_s, rates.shape)).encode())
    parts.update(rates.tobytes())
    return setup.cache_dir / f"{NAME}-{parts.hexdigest()[:32]}.npz"


def _keep(path: Path, weights: LstmWeights) -> None:
    try:
        write_weights(path, weights)
    except OSError as error:  # a full disk or a read-only cache costs the next run its training, not this one
        warnings.warn(f"{NAME}: weights not cached in {path.parent}: {error.strerror or error}", stacklevel=2)
