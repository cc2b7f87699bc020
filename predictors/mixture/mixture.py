"""The online mixture (ensemble): experts weighted by their known losses, quantiles recalibrated by outcomes.

At each origin the weights come from the forecasts that were scored in the `memory_s` before it, counting a loss
only once its target had ended; the recalibration comes from the mixture's own outcomes of the `recalibrated_s`
before it, and those mixtures had weights from the time before them. So an answer is a function of the fitted
experts and of the series, and nothing else. Scores are kept as long as the series goes on as it was: an update
then takes one origin of each expert, while after a start all scored origins are computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.predictors.classical.points import first_unit
from mark.predictors.expert import LEVELS, Expert, Floats, Ints, Series
from mark.predictors.mixture.conformal import calibrated_pit, read_at
from mark.predictors.mixture.scored import Scored, predict_all
from mark.predictors.mixture.weights import MixtureSettings, band_of_leads, mix, weigh

AT_ONCE = 256
"""Origins forecast together: the forecasts take the memory."""

LEADS_A_BAND = 8
"""Leads of a band whose outcomes recalibration looks at, at most."""


class Mixture:
    """The experts' mixture as an expert. Not for several threads: it keeps what it scored.

    An expert may have `out_of_sample_from`, epoch seconds: it learned from the units before, so that its forecasts
    there do not count.
    """

    def __init__(
        self, experts: Sequence[Expert], settings: MixtureSettings | None = None, *, name: str = "mixture"
    ) -> None:
        """Take the experts, at least one."""
        self.name = name
        self.needs_units = min(expert.needs_units for expert in experts)
        self.experts = tuple(experts)
        self.settings = settings or MixtureSettings()
        self._scored = Scored(self.experts, self.settings)
        self._band_of = band_of_leads(self.settings.bands, self.settings.horizon)
        self._weighed: tuple[tuple[int, int], Floats] | None = None
        self._calibrated: tuple[tuple[int, int], Floats] | None = None

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Quantiles after each origin, see `Expert`. Beyond the settings' horizon the last lead repeats."""
        answers = np.full((len(ends), self.settings.horizon, len(LEVELS)), np.nan)
        if len(ends):
            self._follow(series, int(ends.min()), int(ends.max()))
        origins = ends + first_unit(series)
        for row in np.flatnonzero(self._scored.are_scored(origins)):
            mixed = self._scored.mixed_at(int(origins[row]))
            answers[row] = self._recalibrated(mixed, int(origins[row]), series.unit_s)
        others = np.flatnonzero(~self._scored.are_scored(origins))
        for first in range(0, len(others), AT_ONCE):
            rows = others[first : first + AT_ONCE]
            predictions = predict_all(self.experts, series, ends[rows], self.settings.horizon)
            for row, predicted in zip(rows, predictions, strict=True):
                mixed = self._mixed(predicted, int(origins[row]), series.unit_s)
                answers[row] = self._recalibrated(mixed, int(origins[row]), series.unit_s)
        return answers[:, np.minimum(np.arange(horizon), self.settings.horizon - 1)]

    def weights(self, series: Series) -> Floats:
        """Weights of the experts at the end of the series: shape (experts, bands, levels)."""
        end = len(series.rates)
        self._follow(series, end, end)
        return self._weights_at(end + first_unit(series), series.unit_s)

    def _follow(self, series: Series, low: int, high: int) -> None:
        oldest = low - self.settings.stride + 1  # what an origin between two scored ones has learned, see `_key`
        self._scored.follow(
            series, oldest, high, lambda predictions, origin: self._mixed(predictions, origin, series.unit_s)
        )

    def _mixed(self, predictions: Floats, origin: int, unit_s: float) -> Floats:
        return mix(predictions, self._weights_at(origin, unit_s), self._band_of)

    def _key(self, origin: int) -> tuple[int, int]:
        """Cache key of weights, which change at scored origins only: those between go by the last one before."""
        return self._scored.starts, origin - origin % self.settings.stride

    def _weights_at(self, origin: int, unit_s: float) -> Floats:
        key = self._key(origin)
        if self._weighed is None or self._weighed[0] != key:
            self._weighed = key, self._weights(key[1], unit_s)
        return self._weighed[1]

    def _read_points_at(self, origin: int, unit_s: float) -> Floats:
        key = self._key(origin)
        if self._calibrated is None or self._calibrated[0] != key:
            self._calibrated = key, self._calibrated_pit(key[1], unit_s)
        return self._calibrated[1]

    def _weights(self, origin: int, unit_s: float) -> Floats:
        """Shape (experts, bands, levels)."""
        if len(self.experts) == 1:
            return np.ones((1, len(self.settings.bands), len(LEVELS)))
        losses, known, ages_s = self._scored.losses_at(origin, unit_s)
        settled = self._rows(self.settings.settled_s, unit_s)
        learned = [
            weigh(losses, known, np.exp2(-ages_s / rate.half_life_s), sharpness=rate.sharpness, settled=settled)
            for rate in self.settings.decay_rates
        ]
        weights: Floats = np.mean(learned, axis=0)
        return weights

    def _rows(self, seconds: float, unit_s: float) -> float:
        """Origins scored in that time."""
        return seconds / (unit_s * self.settings.stride)

    def _recalibrated(self, mixed: Floats, origin: int, unit_s: float) -> Floats:
        if not self.settings.recalibrated or np.isnan(mixed[0, 0]):
            return mixed
        return read_at(mixed, self._read_points_at(origin, unit_s)[self._band_of])

    def _calibrated_pit(self, origin: int, unit_s: float) -> Floats:
        """Ranks at which each level is read: shape (bands, levels)."""
        seen = self._scored.pit_values_at(origin, unit_s)
        wary, trusted = (self._rows(own, unit_s) for own in (self.settings.wary_s, self.settings.trusted_s))
        wanted = np.empty((len(self.settings.bands), len(LEVELS)))
        for band in range(len(wanted)):
            leads = np.flatnonzero(self._band_of == band)
            # Neighbouring leads share their outcomes: a few of a wide band tell as much as all.
            part = seen[:, leads[:: -(-len(leads) // LEADS_A_BAND)]]
            known = float(np.isfinite(part[:, -1]).sum())
            strength = min(max((known - wary) / (trusted - wary), 0.0), 1.0)
            wanted[band] = calibrated_pit(part, strength=strength, tolerance=self.settings.tolerance)
        return wanted
