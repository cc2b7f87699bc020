"""A trained quantile LSTM as plain arrays, and its forward pass over many origins.

Only training needs torch. One origin alone and the same origin among a thousand get the same answer, to the bit: a
row is multiplied by a call of its own, because BLAS adds in another order where it is given several. An answer for
one origin of three networks takes some 2 ms, and among many a third of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mark.predictors.expert import LEVELS, Floats
from mark.predictors.lstm.quantile.features import CALENDAR, FARTHEST, LAGGED, LOCAL, SLOTS, STEP_COLUMNS, Inputs

Floats32 = NDArray[np.float32]

STEP = len(STEP_COLUMNS) + CALENDAR
"""Inputs of each step of the window."""
LEAD = LAGGED + CALENDAR + 3
"""Inputs of each lead: what lies behind its minute, the calendar, how far it is."""
SKIP = LAGGED + LOCAL + 1
"""Inputs of the linear skip; the last is the constant."""
MEDIAN = LEVELS.index(0.5)
AT_ONCE = 64
"""Origins that go through together: more would leave the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileWeights:
    """One network. All but `floor_rps` and `sees_days` were learned; float32.

    w_step: shape (STEP + hidden, 4 x hidden), gates in torch's order (input, forget, cell, output), the state
    last; b_step: (4 x hidden,). w_origin: (hidden + LOCAL, width), from the state and the newest values; w_lead:
    (LEAD, width); slots: (SLOTS, width), added by the minute of two hours; b_head: (width,). w_out: (width,
    levels); units: (horizon, levels), in which its answers count; b_out: (horizon, levels). skip: (horizon, SKIP).
    floor_rps, sees_days: shape (), see `build_inputs`.
    """

    w_step: Floats32
    b_step: Floats32
    w_origin: Floats32
    w_lead: Floats32
    slots: Floats32
    b_head: Floats32
    w_out: Floats32
    b_out: Floats32
    units: Floats32
    skip: Floats32
    floor_rps: Floats32
    sees_days: Floats32

    def are_sound(self) -> bool:
        """True where the shapes fit together and every value is finite."""
        hidden, width = self.w_step.shape[-1] // 4, self.w_out.shape[0]
        horizon = self.b_out.shape[0]
        shapes = {
            "w_step": (STEP + hidden, 4 * hidden),
            "b_step": (4 * hidden,),
            "w_origin": (hidden + LOCAL, width),
            "w_lead": (LEAD, width),
            "slots": (SLOTS, width),
            "b_head": (width,),
            "w_out": (width, len(LEVELS)),
            "b_out": (horizon, len(LEVELS)),
            "units": (horizon, len(LEVELS)),
            "skip": (horizon, SKIP),
            "floor_rps": (),
            "sees_days": (),
        }
        return all(
            getattr(self, name).shape == shape and bool(np.isfinite(getattr(self, name)).all())
            for name, shape in shapes.items()
        )


def step_inputs(inputs: Inputs, window: int) -> Floats:
    """Inputs of each step of the window before each origin: shape (origins, window, STEP)."""
    where = inputs.rows[:, None] + np.arange(-window, 0)
    columns = list(STEP_COLUMNS)
    logs = inputs.table[where[..., None], columns] - inputs.levels[:, None, columns]
    logs[..., 1:] *= inputs.days[:, None, None]
    return np.concatenate([logs.clip(-FARTHEST, FARTHEST), inputs.calendar[where]], axis=-1)


def lagged_inputs(inputs: Inputs, horizon: int) -> Floats:
    """Lagged values behind each minute to come: shape (origins, horizon, LAGGED)."""
    where = inputs.rows[:, None] + np.arange(horizon)
    logs = inputs.table[where, 1:] - inputs.levels[:, None, 1:]
    logs[..., 2:] *= inputs.days[:, None, None]
    values: Floats = logs.clip(-FARTHEST, FARTHEST)
    return values


def lead_inputs(inputs: Inputs, lagged: Floats) -> Floats:
    """Inputs of the head for each lead: shape (origins, horizon, LEAD)."""
    origins, horizon = lagged.shape[:2]
    lead = np.arange(1, horizon + 1)
    far = np.stack([lead / horizon, np.log(lead) / np.log(60.0), np.exp(-lead / 5.0)], axis=1)
    where = inputs.rows[:, None] + np.arange(horizon)
    return np.concatenate([lagged, inputs.calendar[where], np.broadcast_to(far, (origins, horizon, 3))], axis=-1)


def skip_inputs(inputs: Inputs, lagged: Floats) -> Floats:
    """Inputs of the linear skip of each lead: shape (origins, horizon, SKIP)."""
    origins, horizon = lagged.shape[:2]
    local = np.broadcast_to(inputs.local[:, None], (origins, horizon, LOCAL))
    return np.concatenate([lagged, local, np.ones((origins, horizon, 1))], axis=-1)


class QuantileForward:
    """The mean of several networks' quantiles (of logs), for many origins at once."""

    def __init__(self, networks: Sequence[QuantileWeights]) -> None:
        """Stack the networks' arrays along a new first axis."""
        self._arrays = {
            field.name: np.stack([getattr(network, field.name) for network in networks]).astype(np.float64)
            for field in fields(QuantileWeights)
        }
        self._hidden = self._arrays["w_step"].shape[-1] // 4
        self.horizon = int(self._arrays["b_out"].shape[1])
        # sigmoid(x) = (tanh(x / 2) + 1) / 2: with these gates halved, one tanh serves all four. The pass carries
        # twice the state, so the weights that read it are halved once more.
        w_step = self._arrays["w_step"] * np.repeat([0.5, 0.5, 1.0, 0.5], self._hidden)
        self._w_shown, self._w_state = w_step[:, :STEP], np.ascontiguousarray(w_step[:, STEP:]) / 2
        self._b_step = (self._arrays["b_step"] * np.repeat([0.5, 0.5, 1.0, 0.5], self._hidden))[:, None]

    def __call__(self, inputs: Inputs, window: int) -> Floats:
        """Quantiles of log rates, rising over levels: shape (origins, horizon, levels)."""
        outputs = np.empty((len(inputs.rows), self.horizon, len(LEVELS)))
        for first in range(0, len(outputs), AT_ONCE):
            chunk = inputs.some(slice(first, first + AT_ONCE))
            outputs[first : first + AT_ONCE] = self._relative(chunk, window) + chunk.levels[:, :1, None]
        return outputs

    def _relative(self, inputs: Inputs, window: int) -> Floats:
        state = self._read(step_inputs(inputs, window))
        arrays = self._arrays
        origin = np.concatenate([state, np.broadcast_to(inputs.local, (len(state), *inputs.local.shape))], axis=-1)
        lagged = lagged_inputs(inputs, self.horizon)
        leads = lead_inputs(inputs, lagged)
        skips = skip_inputs(inputs, lagged)
        slots = inputs.slots[inputs.rows[:, None] + np.arange(self.horizon)]
        total = np.zeros((*lagged.shape[:2], len(LEVELS)))
        for network in range(len(state)):
            head = each(origin[network], arrays["w_origin"][network]) + arrays["b_head"][network]
            hidden = leads @ arrays["w_lead"][network] + arrays["slots"][network][slots] + head[:, None]
            raw = (hidden / (1.0 + np.exp(-hidden))) @ arrays["w_out"][network]
            raw = raw * arrays["units"][network] + arrays["b_out"][network]
            raw[..., MEDIAN] += np.einsum("ohs,hs->oh", skips, arrays["skip"][network])
            total += spread(raw)
        return (total / len(state)).clip(-FARTHEST, FARTHEST)

    def _read(self, steps: Floats) -> Floats:
        """The last state of each network: shape (networks, origins, hidden). steps: (origins, window, STEP)."""
        networks, hidden, origins = len(self._w_state), self._hidden, len(steps)
        inputs = np.empty((steps.shape[1], networks, origins, 4 * hidden))
        for network in range(networks):
            inputs[:, network] = each(steps.transpose(1, 0, 2), self._w_shown[network]) + self._b_step[network]
        state, cell = np.zeros((networks, origins, hidden)), np.zeros((networks, origins, hidden))
        gates = np.empty((networks, origins, 4 * hidden))
        taken, kept = gates[..., :hidden], gates[..., hidden : 2 * hidden]
        fresh, let_out = gates[..., 2 * hidden : 3 * hidden], gates[..., 3 * hidden :]
        for shown in inputs:
            np.matmul(state[:, :, None], self._w_state[:, None], out=gates[:, :, None])
            gates += shown
            np.tanh(gates, out=gates)
            # The cell becomes ((kept + 1) cell + (taken + 1) fresh) / 2.
            cell += kept * cell
            fresh += taken * fresh
            cell += fresh
            cell *= 0.5
            np.tanh(cell, out=state)
            state += let_out * state
        return state / 2


def each(rows: Floats, matrix: Floats) -> Floats:
    """The product rows @ matrix, a call a row: a row alone gives the same bits as among others."""
    found: Floats = (rows[..., None, :] @ matrix)[..., 0, :]
    return found


def spread(raw: Floats) -> Floats:
    """Quantiles from raw outputs: the median, and increments up and down from it. Last axis: levels."""
    increments = np.logaddexp(raw, 0.0)
    quantiles = np.empty_like(raw)
    median = raw[..., MEDIAN]
    quantiles[..., MEDIAN] = median
    quantiles[..., MEDIAN + 1 :] = median[..., None] + np.cumsum(increments[..., MEDIAN + 1 :], axis=-1)
    down = np.cumsum(increments[..., :MEDIAN][..., ::-1], axis=-1)[..., ::-1]
    quantiles[..., :MEDIAN] = median[..., None] - down
    return quantiles
