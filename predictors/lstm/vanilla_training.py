"""Training of the vanilla LSTM; only this and `quantile/training.py` need torch of all forecasters' modules.

Mean squared error on standardised values, Adam, early stop on the last tenth of the history. One thread and a
private random state make the weights a function of history, settings and seed; torch's own settings and global
random state are found again as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from mark.predictors.lstm.vanilla_settings import LstmSettings
from mark.predictors.lstm.vanilla_weights import CHANNELS, Floats32, LstmWeights

LABEL = "training lstm-vanilla"
GRADIENT_NORM = 1.0
"""Longest gradient step taken: a flood in one batch must not throw the weights."""


class _Network(nn.Module):
    """One LSTM layer; the last state gives all leads at once."""

    def __init__(self, hidden: int, horizon: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, hidden, batch_first=True)
        self.head = nn.Linear(hidden, horizon * CHANNELS)

    def forward(self, windows: Tensor) -> Tensor:
        """windows: shape (batch, window, CHANNELS); the answer: (batch, horizon x CHANNELS), lead-major."""
        states, _ = self.lstm(windows)
        answer: Tensor = self.head(states[:, -1])
        return answer


def train_lstm(
    rates_rps: Floats32, settings: LstmSettings, *, seed: int, progress: Callable[[str, float], None] | None
) -> LstmWeights:
    """Weights learned from a history. rates_rps: shape (units, CHANNELS), finite, at least a few windows long."""
    with alone(seed):
        span = settings.window + settings.horizon
        held_out = max(round(len(rates_rps) * settings.held_out), settings.horizon)
        split = len(rates_rps) - held_out
        centre, scale = _standard(rates_rps[:split])
        series = torch.from_numpy((rates_rps - centre) / scale)
        windows = series.unfold(0, span, 1).transpose(1, 2)
        # A training window ends before the held-out units begin; a held-out one forecasts only held-out units.
        learned, judged = windows[: split - span + 1], windows[split - settings.window :]
        network = _Network(settings.hidden, settings.horizon)
        _fit(network, learned, judged, settings=settings, seed=seed, progress=progress)
    return _weights(network, centre, scale)


@contextmanager
def alone(seed: int) -> Iterator[None]:
    """Torch with this seed and one thread; afterwards it is found again as it was."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)  # sums over several threads differ in the last bits from machine to machine
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _standard(rates_rps: Floats32) -> tuple[Floats32, Floats32]:
    wide = rates_rps.astype(np.float64)
    spread = wide.std(axis=0)
    flat = spread <= 1e-6 * (1.0 + np.abs(wide).max(axis=0))
    return wide.mean(axis=0).astype(np.float32), np.where(flat, 1.0, spread).astype(np.float32)


def _fit(
    network: _Network,
    learned: Tensor,
    judged: Tensor,
    *,
    settings: LstmSettings,
    seed: int,
    progress: Callable[[str, float], None] | None,
) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    shuffle = torch.Generator().manual_seed(seed)
    best_loss = float("inf")
    best = {name: value.clone() for name, value in network.state_dict().items()}
    waited = 0
    for epoch in range(settings.epochs):
        order = torch.randperm(len(learned), generator=shuffle)
        for first in range(0, len(order), settings.batch):
            rows = order[first : first + settings.batch]
            optimiser.zero_grad()
            torch.autograd.backward(_loss(network, learned[rows], settings.window))
            nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_NORM)
            optimiser.step()
        with torch.no_grad():
            loss = float(_loss(network, judged, settings.window))
        if progress is not None:
            progress(LABEL, (epoch + 1) / settings.epochs)
        waited = 0 if loss < best_loss else waited + 1
        if loss < best_loss:
            best_loss = loss
            best = {name: value.clone() for name, value in network.state_dict().items()}
        if waited >= settings.patience:
            break
    network.load_state_dict(best)
    if progress is not None:
        progress(LABEL, 1.0)


def _loss(network: _Network, windows: Tensor, window: int) -> Tensor:
    return nn.functional.mse_loss(network(windows[:, :window]), windows[:, window:].flatten(1))


def _weights(network: _Network, centre: Floats32, scale: Floats32) -> LstmWeights:
    learned = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    return LstmWeights(
        w_in=learned["lstm.weight_ih_l0"],
        w_state=learned["lstm.weight_hh_l0"],
        bias=learned["lstm.bias_ih_l0"] + learned["lstm.bias_hh_l0"],
        w_out=learned["head.weight"],
        b_out=learned["head.bias"],
        centre=centre,
        scale=scale,
    )
