"""The forecasters that learn, by name: `lstm`, the quantile LSTM alone, and `mixture`, all experts together.

Each is made of two experts, one for means and one for maxima, fitted on the history before the run. Making one is
a function of history, seed and settings, and what was learned is cached: a service that wants a newer one makes it
beside the current one, and then takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mark.domain.demand import HORIZON
from mark.ports import Forecaster, ForecasterSetup
from mark.predictors.adapter import ExpertForecaster, max_series, mean_series
from mark.predictors.classical.expert_factory import classical_expert, why_not_learned
from mark.predictors.classical.points import LastValueRule, MovingMeanRule
from mark.predictors.classical.residuals import BarePoint
from mark.predictors.clock_bursts.clock_bursts import ClockBursts
from mark.predictors.expert import Expert, Floats, Ints, Series
from mark.predictors.lstm.quantile.lstm_quantile import LstmQuantile, can_learn, fit_lstm
from mark.predictors.lstm.quantile.settings import QuantileSettings
from mark.predictors.mixture.mixture import Mixture
from mark.predictors.mixture.weights import MixtureSettings
from mark.predictors.naive import DAY_S

EXPERTS = (
    "last-value",
    "moving-mean",
    "seasonal",
    "holt-winters",
    "autoregression",
    "ridge",
    "boosted",
    ClockBursts.name,
)
"""Experts that take part beside the LSTM; those that the history is too short for are left out."""
SIMPLE = ("last-value", "moving-mean")
"""Experts of `lstm` where there is under a day to learn from."""
ALONE = MixtureSettings(wary_s=0.0, trusted_s=DAY_S / 2)
"""For the LSTM by itself: its far quantiles are its weak side, and half a day's outcomes correct them."""
OVERFITS = ("boosted",)
"""Experts that fit their history too closely to be scored on it."""


class LearnedForecaster(ExpertForecaster):
    """A forecaster with a card: what its networks were trained on, by kind of series."""

    def __init__(self, mean_expert: Expert, max_expert: Expert, *, note: str, card: Mapping[str, Any]) -> None:
        """Take the experts; `note` is what they lack."""
        super().__init__(mean_expert, max_expert, lacking=note)
        self.card = card


class OutOfSample:
    """An expert that is scored out of sample only: from `out_of_sample_from` on, epoch seconds."""

    def __init__(self, expert: Expert, *, out_of_sample_from: float) -> None:
        """Take the expert."""
        self.name, self.needs_units = expert.name, expert.needs_units
        self.out_of_sample_from = out_of_sample_from
        self._expert = expert

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """The expert's own quantiles."""
        return self._expert.forecast(series, ends, horizon)


def build(
    setup: ForecasterSetup,
    *,
    experts: tuple[str, ...] = EXPERTS,
    settings: MixtureSettings | None = None,
    lstm: QuantileSettings | None = None,
) -> Forecaster:
    """The mixture of all experts that can learn from `setup.history`; `Forecast.degraded` names the others."""
    mixtures: list[Mixture] = []
    cards: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for kind, series in _series(setup):
        found: list[Expert] = []
        for name in experts:
            expert = _expert(name, series, setup)
            if expert is None:
                missing[name] = why_not_learned(name, series)
            else:
                found.append(_scored_out_of_sample(expert, series))
        network = _network(setup, kind, series, lstm or QuantileSettings(), missing)
        if not can_learn(series):
            found += [BarePoint(LastValueRule()), BarePoint(MovingMeanRule())]
        if network is not None:
            alone = Mixture([network], settings or ALONE, name=network.name)
            found.append(OutOfSample(alone, out_of_sample_from=network.out_of_sample_from))
            cards[f"lstm_{kind}"] = asdict(network.card)
        mixtures.append(Mixture(found, settings))
    note = "; ".join(f"without {name}: {why}" for name, why in missing.items())
    return _made(setup, mixtures, note, cards)


def _expert(name: str, series: Series, setup: ForecasterSetup) -> Expert | None:
    if name == ClockBursts.name:
        return ClockBursts()
    return classical_expert(name, series, seed=setup.seed, cache_dir=setup.cache_dir, progress=setup.progress)


def build_lstm(
    setup: ForecasterSetup, *, settings: MixtureSettings | None = None, lstm: QuantileSettings | None = None
) -> Forecaster:
    """The quantile LSTM, its quantiles read where outcomes fell; with under a day of history, simple rules.

    Errors: ImportError where it has to train and torch is absent.
    """
    mixtures: list[Mixture] = []
    cards: dict[str, Any] = {}
    note = ""
    for kind, series in _series(setup):
        if can_learn(series):
            network = _fitted(setup, kind, series, lstm or QuantileSettings())
            cards[f"lstm_{kind}"] = asdict(network.card)
            mixtures.append(Mixture([network], settings or ALONE, name="lstm"))
        else:
            note = f"under a day of history, {' and '.join(SIMPLE)}"
            rules = [classical_expert(name, series, seed=setup.seed) for name in SIMPLE]
            mixtures.append(Mixture([rule for rule in rules if rule is not None], settings, name="lstm"))
    return _made(setup, mixtures, note, cards)


def _made(setup: ForecasterSetup, mixtures: list[Mixture], note: str, cards: dict[str, Any]) -> LearnedForecaster:
    forecaster = LearnedForecaster(mixtures[0], mixtures[1], note=note, card=cards)
    if len(setup.history):
        # The first forecast scores the days before it, which takes seconds: now, and not at the first tick.
        if setup.progress is not None:
            setup.progress(f"scoring {mixtures[0].name}", 0.0)
        forecaster.forecast(setup.history, HORIZON)
    return forecaster


def _series(setup: ForecasterSetup) -> tuple[tuple[str, Series], ...]:
    return (("mean", mean_series(setup.history)), ("max", max_series(setup.history)))


def _scored_out_of_sample(expert: Expert, series: Series) -> Expert:
    if expert.name not in OVERFITS:
        return expert
    return OutOfSample(expert, out_of_sample_from=series.start_at + len(series.rates) * series.unit_s)


def _network(
    setup: ForecasterSetup, kind: str, series: Series, settings: QuantileSettings, missing: dict[str, str]
) -> LstmQuantile | None:
    """The LSTM; None, and the reason in `missing`, where the history is too short or torch is absent."""
    if not can_learn(series):
        missing["lstm"] = "it needs a day of history"
        return None
    try:
        return _fitted(setup, kind, series, settings)
    except ImportError as error:
        if error.name != "torch":
            raise
        missing["lstm"] = "torch is not installed"
        return None


def _fitted(setup: ForecasterSetup, kind: str, series: Series, settings: QuantileSettings) -> LstmQuantile:
    return fit_lstm(
        series, settings, kind=kind, seed=setup.seed, cache_dir=setup.cache_dir, progress=setup.progress
    )
