"""A trained LSTM as plain arrays: its forward pass, and the file it is cached in.

Only training needs torch. The forward pass in numpy takes 0.3 ms where torch would take 0.15 ms, and is worth it:
a replay with cached weights never loads torch, and runs where torch is absent.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats32 = NDArray[np.float32]

CHANNELS = 2
"""Mean and maximum of a unit, in and out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmWeights:
    """One LSTM layer and a linear head, on values standardised by `centre` and `scale`.

    w_in: shape (4 x hidden, CHANNELS); w_state: (4 x hidden, hidden); bias: (4 x hidden,), gates in torch's order
    (input, forget, cell, output). w_out: (horizon x CHANNELS, hidden); b_out: (horizon x CHANNELS,), lead-major.
    centre, scale: (CHANNELS,), requests/s.
    """

    w_in: Floats32
    w_state: Floats32
    bias: Floats32
    w_out: Floats32
    b_out: Floats32
    centre: Floats32
    scale: Floats32

    def are_sound(self) -> bool:
        """True where the shapes fit together and every value is finite."""
        hidden = self.w_state.shape[-1]
        out = self.b_out.shape[-1]
        shapes = {
            "w_in": (4 * hidden, CHANNELS),
            "w_state": (4 * hidden, hidden),
            "bias": (4 * hidden,),
            "w_out": (out, hidden),
            "b_out": (out,),
            "centre": (CHANNELS,),
            "scale": (CHANNELS,),
        }
        arrays = {name: getattr(self, name) for name in shapes}
        return out % CHANNELS == 0 and all(
            array.shape == shapes[name] and array.dtype == np.float32 and bool(np.isfinite(array).all())
            for name, array in arrays.items()
        )


class LstmForward:
    """The forward pass for one window at a time. Not for several threads: it owns its scratch arrays."""

    def __init__(self, weights: LstmWeights) -> None:
        """Reorder the gates to (input, forget, output, cell) and halve the first three: see `__call__`."""
        hidden = weights.w_state.shape[1]
        order = np.r_[0 : 2 * hidden, 3 * hidden : 4 * hidden, 2 * hidden : 3 * hidden]
        halves = np.repeat(np.array([0.5, 1.0], np.float32), [3 * hidden, hidden])
        self._weights = weights
        self._hidden = hidden
        self._w_in = np.ascontiguousarray((weights.w_in[order] * halves[:, None]).T)
        self._w_state = np.ascontiguousarray(weights.w_state[order] * halves[:, None])
        self._bias = weights.bias[order] * halves
        self._gates = np.empty(4 * hidden, np.float32)

    def __call__(self, window_rps: Floats32) -> Floats32:
        """Rates to come. window_rps: shape (window, CHANNELS); the answer: shape (horizon, CHANNELS)."""
        weights, hidden, gates = self._weights, self._hidden, self._gates
        inputs = ((window_rps - weights.centre) / weights.scale) @ self._w_in + self._bias
        state = np.zeros(hidden, np.float32)
        cell = np.zeros(hidden, np.float32)
        taken, kept = gates[:hidden], gates[hidden : 2 * hidden]
        shown, fresh = gates[2 * hidden : 3 * hidden], gates[3 * hidden :]
        sigmoids = gates[: 3 * hidden]
        for row in inputs:
            np.dot(self._w_state, state, out=gates)
            np.add(gates, row, out=gates)
            np.tanh(gates, out=gates)  # sigmoid(x) = (tanh(x / 2) + 1) / 2: one call for all four gates
            np.multiply(sigmoids, 0.5, out=sigmoids)
            np.add(sigmoids, 0.5, out=sigmoids)
            np.multiply(cell, kept, out=cell)
            np.multiply(taken, fresh, out=fresh)
            np.add(cell, fresh, out=cell)
            np.tanh(cell, out=state)
            np.multiply(state, shown, out=state)
        outputs = (weights.w_out @ state + weights.b_out).reshape(-1, CHANNELS)
        answer: Floats32 = outputs * weights.scale + weights.centre
        return answer


def write_weights(path: Path, weights: LstmWeights) -> None:
    """Write beside `path`, then rename: a reader sees the whole file or none. Errors: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{field.name: getattr(weights, field.name) for field in fields(weights)})
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def read_weights(path: Path) -> LstmWeights | None:
    """The weights in a file; None where there is none, or where it is damaged."""
    try:
        # np.load leaves a file open that it cannot read, unless the file is ours.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            weights = LstmWeights(**{field.name: stored[field.name] for field in fields(LstmWeights)})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return weights if weights.are_sound() else None
