"""The quantile LSTM (quantile regression) as an expert: trained once, then a function of the last eight days.

Several networks that differ in their seeds are averaged. What each one learned is cached under a name made from
all that it depends on; an interrupted training goes on from its last epoch.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from mark.predictors.expert import LEVELS, Floats, Ints, Series
from mark.predictors.lstm.quantile.features import HOUR, build_inputs, season_of
from mark.predictors.lstm.quantile.forward_pass import QuantileForward, QuantileWeights
from mark.predictors.lstm.quantile.settings import QuantileSettings
from mark.predictors.lstm.quantile.trained_networks import ModelCard, drop, read_arrays, write_arrays, write_card

NAME = "lstm"
FORMAT = 2
"""Part of a cached file's name: raise it when training or the file's arrays change their meaning."""
Progress = Callable[[str, float], None]


class LstmQuantile:
    """The trained networks. Beyond the leads they were trained for, the last of them repeats."""

    name = NAME

    def __init__(
        self, networks: Sequence[QuantileWeights], *, window: int, out_of_sample_from: float, card: ModelCard
    ) -> None:
        """Prepare the forward pass. It learned from units up to `out_of_sample_from`, epoch seconds."""
        self._forward = QuantileForward(networks)
        self._window = window
        self._floor_rps = float(networks[0].floor_rps)
        self._sees_days = bool(networks[0].sees_days)
        self.out_of_sample_from = out_of_sample_from
        self.card = card
        self.needs_units = max(window, 2 * HOUR)

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Quantiles after each origin; see `Expert`."""
        answers = np.full((len(ends), horizon, len(LEVELS)), np.nan)
        able = ends >= self.needs_units
        if not able.any():
            return answers
        inputs = build_inputs(
            series,
            ends[able],
            floor_rps=self._floor_rps,
            window=self._window,
            horizon=self._forward.horizon,
            sees_days=self._sees_days,
        )
        rates = np.maximum(np.exp(self._forward(inputs, self._window)) - self._floor_rps, 0.0)
        answers[able] = rates[:, np.minimum(np.arange(horizon), self._forward.horizon - 1)]
        return answers


def can_learn(series: Series) -> bool:
    """True from a day of history on."""
    return len(series.rates) >= season_of(series)


def fit_lstm(
    series: Series,
    settings: QuantileSettings,
    *,
    kind: str,
    seed: int,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> LstmQuantile:
    """The expert trained on a series for which `can_learn`; `kind` (mean, max) is for its card and the progress.

    The same series, settings and seed give the same weights. Errors: ImportError where it has to train and torch
    is absent.
    """
    stem = _stem(series, settings)
    seeds = tuple(int(state) for state in np.random.SeedSequence(seed).generate_state(settings.seeds))
    label = f"training {NAME} ({kind})"
    found: list[dict[str, Any]] = []
    for index, own in enumerate(seeds):
        path = cache_dir / f"{stem}-{own}.npz" if cache_dir else None
        part = _share_of(progress, label, index, len(seeds))
        found.append((_finished(path) if path else None) or _train(series, settings, own, path, part))
        part(1.0)
    networks = [_weights(arrays) for arrays in found]
    held_out = max(round(len(series.rates) * settings.held_out), settings.horizon)
    card = _card(series, settings, kind=kind, seeds=seeds, found=found, networks=networks)
    if cache_dir:
        write_card(cache_dir / f"{stem}.json", card)
    return LstmQuantile(
        networks,
        window=settings.window,
        out_of_sample_from=card.trained_until - held_out * series.unit_s,
        card=card,
    )


def _train(
    series: Series, settings: QuantileSettings, seed: int, path: Path | None, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Train one network and keep it; with a path, on from the checkpoint beside it."""
    from mark.predictors.lstm.quantile.training import train_quantiles  # noqa: PLC0415 - needs torch

    began = time.perf_counter()
    beside = path.with_suffix(".part.npz") if path else None
    resumed = read_arrays(beside) if beside else None
    spent = float(resumed.pop("seconds")) if resumed else 0.0

    def keep(arrays: dict[str, Any]) -> None:
        if beside:
            write_arrays(beside, {**arrays, "seconds": np.float64(spent + time.perf_counter() - began)})

    trained = train_quantiles(series, settings, seed=seed, resume=resumed, keep=keep, progress=progress)
    arrays = {field.name: getattr(trained.weights, field.name) for field in fields(QuantileWeights)}
    arrays |= {
        "epochs": np.int64(trained.epochs),
        "held_out_loss": np.float64(trained.held_out_loss),
        "seconds": np.float64(spent + time.perf_counter() - began),
    }
    if path and beside:
        write_arrays(path, arrays)
        drop(beside)
    return arrays


def _finished(path: Path) -> dict[str, Any] | None:
    arrays = read_arrays(path)
    wanted = {field.name for field in fields(QuantileWeights)} | {"epochs", "held_out_loss", "seconds"}
    if arrays is None or set(arrays) != wanted or not _weights(arrays).are_sound():
        return None
    return arrays


def _weights(arrays: dict[str, Any]) -> QuantileWeights:
    return QuantileWeights(**{field.name: arrays[field.name] for field in fields(QuantileWeights)})


def _stem(series: Series, settings: QuantileSettings) -> str:
    inputs = (FORMAT, replace(settings, seeds=0), series.unit_s, series.start_at, series.rates.shape)
    parts = hashlib.sha256(repr(inputs).encode())
    parts.update(series.rates.tobytes())
    return f"{NAME}-{parts.hexdigest()[:32]}"


def _share_of(progress: Progress | None, label: str, index: int, count: int) -> Callable[[float], None]:
    """Progress of one of several trainings as a share of all of them."""

    def report(share: float) -> None:
        if progress is not None:
            progress(label, (index + share) / count)

    return report


def _card(
    series: Series,
    settings: QuantileSettings,
    *,
    kind: str,
    seeds: tuple[int, ...],
    found: list[dict[str, Any]],
    networks: list[QuantileWeights],
) -> ModelCard:
    return ModelCard(
        name=NAME,
        kind=kind,
        trained_from=series.start_at,
        trained_until=series.start_at + len(series.rates) * series.unit_s,
        units=len(series.rates),
        parameters=sum(
            int(getattr(networks[0], field.name).size)
            for field in fields(QuantileWeights)
            if field.name not in {"units", "floor_rps", "sees_days"}
        ),
        seeds=seeds,
        epochs=tuple(int(arrays["epochs"]) for arrays in found),
        held_out_loss=tuple(float(arrays["held_out_loss"]) for arrays in found),
        seconds=tuple(round(float(arrays["seconds"]), 1) for arrays in found),
        settings=asdict(settings),
    )
