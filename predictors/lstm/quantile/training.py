"""Training of the quantile LSTM; with `vanilla_training.py` the only module of the forecasters that needs torch.

Pinball loss of rates to a power, AdamW under one cycle of the learning rate; the epoch with the least loss on the
last tenth of the history is kept. The linear skip starts at least squares and the increments at its residuals'
quantiles, so epoch 0 is a linear forecast and every epoch after it has to beat that. Each epoch draws its origins
from (seed, epoch) and leaves a checkpoint: an interrupted training goes on there and ends at the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mark.predictors.expert import LEVELS, Floats, Ints, Series
from mark.predictors.lstm.quantile.features import FARTHEST, HOUR, LOCAL, SLOTS, Inputs, build_inputs, season_of
from mark.predictors.lstm.quantile.forward_pass import (
    LEAD,
    MEDIAN,
    SKIP,
    STEP,
    Floats32,
    QuantileWeights,
    lagged_inputs,
    lead_inputs,
    skip_inputs,
    step_inputs,
)
from mark.predictors.lstm.quantile.settings import QuantileSettings
from mark.predictors.lstm.vanilla_training import alone

GRADIENT_NORM = 1.0
RIDGE = 1e-3
"""Share of an input's mean square that is added to it in least squares."""
WARM_UP = 0.3
"""Share of all steps in which the learning rate rises."""
JUDGED_AT_ONCE = 512

Keep = Callable[[dict[str, Floats32]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedWeights:
    """Weights, and how they came about: epochs run, and the held-out loss of the one kept (see `_Course`)."""

    weights: QuantileWeights
    epochs: int
    held_out_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Origins with what follows them, ready to be learned: float32 tensors, the first axis is the origin.

    targets: shape (origins, horizon), logs relative to the last hour's level; rates: (origins,), that level as a
    share of the mean rate. The others are inputs.
    """

    steps: Tensor
    local: Tensor
    leads: Tensor
    slots: Tensor
    skips: Tensor
    targets: Tensor
    rates: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def some(self, rows: Tensor | slice) -> Examples:
        """Some of the origins."""
        return Examples(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


class QuantileNetwork(nn.Module):
    """See `QuantileWeights`: the same sums with torch's names."""

    def __init__(self, settings: QuantileSettings) -> None:
        super().__init__()
        hidden, width = settings.hidden, settings.width
        self.lstm = nn.LSTM(STEP, hidden, batch_first=True)
        self.origin = nn.Linear(hidden + LOCAL, width)
        self.lead = nn.Linear(LEAD, width, bias=False)
        self.slots = nn.Embedding(SLOTS, width)
        self.out = nn.Linear(width, len(LEVELS), bias=False)
        self.dropout = nn.Dropout(settings.dropout)
        self.units: Tensor
        self.register_buffer("units", torch.ones(settings.horizon, len(LEVELS)))
        self.b_out = nn.Parameter(torch.zeros(settings.horizon, len(LEVELS)))
        self.skip = nn.Parameter(torch.zeros(settings.horizon, SKIP))
        with torch.no_grad():
            self.slots.weight.zero_()
            self.out.weight.mul_(0.1)  # the first answers are those of the linear skip

    def forward(self, rows: Examples) -> Tensor:
        """Quantiles of log rates relative to the last hour's level: shape (origins, horizon, levels)."""
        _, (state, _) = self.lstm(rows.steps)
        head = self.origin(torch.cat([state[-1], rows.local], dim=-1))
        hidden = nn.functional.silu(self.lead(rows.leads) + self.slots(rows.slots) + head[:, None])
        raw = self.out(self.dropout(hidden)) * self.units + self.b_out
        median = raw[..., MEDIAN] + torch.einsum("ohs,hs->oh", rows.skips, self.skip)
        increments = nn.functional.softplus(raw)
        down = increments[..., :MEDIAN].flip(-1).cumsum(-1).flip(-1)
        up = increments[..., MEDIAN + 1 :].cumsum(-1)
        middle = median[..., None]
        return torch.cat([middle - down, middle, middle + up], dim=-1)


def train_quantiles(
    series: Series,
    settings: QuantileSettings,
    *,
    seed: int,
    resume: dict[str, Floats32] | None = None,
    keep: Keep | None = None,
    progress: Callable[[float], None] | None = None,
) -> TrainedWeights:
    """Weights learned from a series of at least a day. `keep` is given a checkpoint after each epoch.

    `resume` is the last checkpoint of the same training, one of the same series, settings and seed.
    """
    with alone(seed):
        units = len(series.rates)
        held_out = max(round(units * settings.held_out), settings.horizon)
        split = units - held_out
        floor_rps = float(np.float32(max(settings.floor_share * series.rates[:split].mean(), 1e-3)))
        sees_days = split >= 2 * season_of(series)
        origins = np.arange(max(settings.window, 2 * HOUR), units - settings.horizon + 1)
        inputs = build_inputs(
            series,
            origins,
            floor_rps=floor_rps,
            window=settings.window,
            horizon=settings.horizon,
            sees_days=sees_days,
        )
        # A learned origin's targets end before the held-out units begin; a judged one forecasts only those.
        learned = examples_of(series, inputs, np.flatnonzero(origins <= split - settings.horizon), settings)
        judged = examples_of(series, inputs, np.flatnonzero(origins >= split), settings)
        network = QuantileNetwork(settings)
        spread = _start_linear(network, learned)
        course = _Course(network, learned, judged, settings, seed=seed, spread=spread)
        course.run(resume, keep, progress)
    return TrainedWeights(
        weights=weights_of(network, floor_rps, sees_days=sees_days),
        epochs=course.epoch,
        held_out_loss=course.best_loss,
    )


class _Course:
    """One training from epoch to epoch; all that it needs to go on is in a checkpoint."""

    def __init__(
        self,
        network: QuantileNetwork,
        learned: Examples,
        judged: Examples,
        settings: QuantileSettings,
        *,
        seed: int,
        spread: Tensor,
    ) -> None:
        self.network, self.learned, self.judged = network, learned, judged
        self.settings, self.seed = settings, seed
        weights = spread**-settings.evenness
        self.lead_weights = (weights / weights.mean())[:, None]
        linear = [network.skip, network.b_out]
        others = [value for name, value in network.named_parameters() if name not in {"skip", "b_out"}]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": others, "weight_decay": settings.weight_decay, "share": 1.0},
                {"params": linear, "weight_decay": 0.0, "share": settings.linear_share},
            ]
        )
        drawn = max(1, round(len(learned) * settings.share))
        self.drawn, self.batches = drawn, -(-drawn // settings.batch)
        self.epochs = max(settings.epochs, -(-settings.least_batches // self.batches))
        self.epoch = self.waited = 0
        self.best_loss = self._judge()
        self.best = {name: value.clone() for name, value in network.state_dict().items()}

    def run(
        self,
        resume: dict[str, Floats32] | None,
        keep: Keep | None,
        progress: Callable[[float], None] | None,
    ) -> None:
        """Epochs until there are enough or nothing gets better; the network then has its best weights."""
        if resume is not None:
            self._restore(resume)
        while self.epoch < self.epochs and self.waited < self.settings.patience:
            self._learn()
            self.epoch += 1
            loss = self._judge()
            self.waited = 0 if loss < self.best_loss else self.waited + 1
            if loss < self.best_loss:
                self.best_loss = loss
                self.best = {name: value.clone() for name, value in self.network.state_dict().items()}
            if keep is not None:
                keep(self._checkpoint())
            if progress is not None:
                progress(self.epoch / self.epochs)
        self.network.load_state_dict(self.best)

    def _learn(self) -> None:
        shuffle = np.random.default_rng((self.seed, self.epoch))
        torch.manual_seed(int(shuffle.integers(2**31)))  # of dropout
        self.network.train()
        order = torch.from_numpy(shuffle.permutation(len(self.learned))[: self.drawn])
        for batch in range(self.batches):
            rows = order[batch * self.settings.batch : (batch + 1) * self.settings.batch]
            rate = self._rate(self.epoch * self.batches + batch)
            for group in self.optimiser.param_groups:
                group["lr"] = rate * group["share"]
            self.optimiser.zero_grad()
            examples = self.learned.some(rows)
            torch.autograd.backward(self._losses(examples).mean())
            nn.utils.clip_grad_norm_(self.network.parameters(), GRADIENT_NORM)
            self.optimiser.step()

    def _rate(self, step: int) -> float:
        """One cycle: up from a 25th of the peak over WARM_UP of all steps, then down to nearly nothing."""
        steps = self.epochs * self.batches
        peak, turn = self.settings.learning_rate, WARM_UP * steps
        if step < turn:
            return peak * (1 + 24 * (1 - math.cos(math.pi * step / turn)) / 2) / 25
        return peak * max(1e-4, (1 + math.cos(math.pi * (step - turn) / (steps - turn))) / 2)

    def _judge(self) -> float:
        total = 0.0
        self.network.eval()
        with torch.no_grad():
            for first in range(0, len(self.judged), JUDGED_AT_ONCE):
                rows = self.judged.some(slice(first, first + JUDGED_AT_ONCE))
                total += float(self._losses(rows).double().sum())
        return total / (self.judged.targets.numel() * len(LEVELS))

    def _losses(self, rows: Examples) -> Tensor:
        """Pinball losses of rates to a power, from logs: shape (origins, horizon, levels)."""
        power = self.settings.loss_power
        found = torch.exp(power * self.network(rows).clamp(max=FARTHEST))
        wanted = torch.exp(power * rows.targets)[..., None]
        levels = torch.tensor(LEVELS)
        loss = torch.maximum(levels * (wanted - found), (levels - 1) * (wanted - found))
        return self.lead_weights * rows.rates[:, None, None] ** power * loss

    def _checkpoint(self) -> dict[str, Floats32]:
        arrays: dict[str, Any] = {
            "course": np.array([self.epoch, self.waited, self.best_loss], np.float64),
            **{f"now.{name}": value.numpy() for name, value in self.network.state_dict().items()},
            **{f"best.{name}": value.numpy() for name, value in self.best.items()},
        }
        for index, moments in self.optimiser.state_dict()["state"].items():
            arrays |= {f"moments.{index}.{name}": value.numpy() for name, value in moments.items()}
        return {name: np.array(value) for name, value in arrays.items()}

    def _restore(self, arrays: dict[str, Floats32]) -> None:
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
        self.epoch, self.waited = int(arrays["course"][0]), int(arrays["course"][1])
        self.best_loss = float(arrays["course"][2])
        names = self.network.state_dict()
        self.network.load_state_dict({name: tensors[f"now.{name}"] for name in names})
        self.best = {name: tensors[f"best.{name}"].clone() for name in names}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("moments."):
                _, index, moment = name.split(".")
                state.setdefault(int(index), {})[moment] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})


def examples_of(series: Series, inputs: Inputs, some: Ints, settings: QuantileSettings) -> Examples:
    """The origins `some` (indexes into `inputs.rows`) and what followed them. Both start with the series."""
    logs = np.log(series.rates + inputs.floor_rps)
    horizon, mean_rps = settings.horizon, inputs.floor_rps / settings.floor_share
    parts: list[dict[str, Floats | Ints]] = []
    for first in range(0, len(some), JUDGED_AT_ONCE):
        chunk = inputs.some(some[first : first + JUDGED_AT_ONCE])
        ahead = chunk.rows[:, None] + np.arange(horizon)
        lagged = lagged_inputs(chunk, horizon)
        arrays = {
            "rates": np.exp(chunk.levels[:, 0]) / mean_rps,
            "steps": step_inputs(chunk, settings.window),
            "local": chunk.local,
            "leads": lead_inputs(chunk, lagged),
            "skips": skip_inputs(chunk, lagged),
            "targets": (logs[ahead] - chunk.levels[:, :1]).clip(-FARTHEST, FARTHEST),
        }
        parts.append(
            {name: array.astype(np.float32) for name, array in arrays.items()} | {"slots": chunk.slots[ahead]}
        )
    return Examples(
        **{name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
    )


def _start_linear(network: QuantileNetwork, learned: Examples) -> Tensor:
    """Least squares for the skip, each lead apart, and the residuals' quantiles for the increments.

    Returns how far these lie apart at each lead, shape (horizon,): the unit in which the network moves the median,
    so that what it learns of far leads does not disturb the near ones, which are known much better.
    """
    spread = torch.empty(len(network.skip))
    skips, targets = learned.skips.double().numpy(), learned.targets.double().numpy()
    for lead in range(targets.shape[1]):
        known = skips[:, lead]
        squares = known.T @ known
        squares[np.diag_indices(SKIP)] += RIDGE * (np.diag(squares) + 1e-9 * len(known))
        weights = np.linalg.solve(squares, known.T @ targets[:, lead])
        quantiles = np.quantile(targets[:, lead] - known @ weights, LEVELS)
        gaps = np.maximum(np.diff(quantiles), 1e-3)
        start = np.concatenate(
            [_before_softplus(gaps[:MEDIAN]), quantiles[[MEDIAN]], _before_softplus(gaps[MEDIAN:])]
        )
        with torch.no_grad():
            network.skip[lead] = torch.from_numpy(weights)
            network.b_out[lead] = torch.from_numpy(start)
        spread[lead] = float(gaps[:-1].sum())
    network.units[:, MEDIAN] = spread / spread.mean()
    return spread


def _before_softplus(gaps: Floats) -> Floats:
    values: Floats = np.log(np.expm1(gaps))
    return values


def weights_of(network: QuantileNetwork, floor_rps: float, *, sees_days: bool) -> QuantileWeights:
    """The trained weights as plain arrays."""
    learned = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    return QuantileWeights(
        w_step=np.concatenate([learned["lstm.weight_ih_l0"].T, learned["lstm.weight_hh_l0"].T]),
        b_step=learned["lstm.bias_ih_l0"] + learned["lstm.bias_hh_l0"],
        w_origin=learned["origin.weight"].T,
        w_lead=learned["lead.weight"].T,
        slots=learned["slots.weight"],
        b_head=learned["origin.bias"],
        w_out=learned["out.weight"].T,
        units=learned["units"],
        b_out=learned["b_out"],
        skip=learned["skip"],
        floor_rps=np.array(floor_rps, np.float32),
        sees_days=np.array(sees_days, np.float32),
    )
