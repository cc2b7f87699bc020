"""A trained supernet on a machine that is slower than this one: right answers, at the times of a profile.

The script `supernets.py` copies this file beside the folder of a supernet, `net`, and the profile of that machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mark.catalog.load import load_variants
from mark.cloudmodel.noise import noise_factor
from mark.cloudmodel.world import TYPICAL
from mark.offline.supernet.served import served_supernet

HERE = Path(__file__).parent
MODEL, WORKER = "net", "c5.large"
SAME_TURN_S = 0.03
"""A batch that begins so soon after the last one ended follows it without a gap: the machine that is stood for has
no other work, and here a timer beside other work is some 10 ms late."""


class Slowed:
    """The supernet's weights answer; then it waits until that machine would have answered."""

    def __init__(self) -> None:
        table = load_variants(MODEL, [HERE / "profile.json"])
        assert table is not None, "the profile has variants"
        self._model, self._table = served_supernet(HERE / "net"), table
        self._row = table.rows(WORKER)[-1]
        self._free_at = 0.0
        self._rng = np.random.default_rng()  # of each instance its own
        self.inputs, self.outputs = self._model.inputs, self._model.outputs

    def switch(self, variant: str) -> None:
        """Answer with that variant from the next batch on."""
        self._model.switch(variant)
        self._row = self._table.rows(WORKER)[self._table.number(variant)]

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """inputs, outputs: as the supernet's."""
        began_at = time.monotonic()
        if began_at - self._free_at < SAME_TURN_S:
            began_at = self._free_at
        answers = self._model.predict(inputs)
        items = len(next(iter(inputs.values())))
        noise = noise_factor(TYPICAL.service_cv, float(self._rng.standard_normal()))
        self._free_at = began_at + noise * self._row[items - 1]
        time.sleep(max(0.0, self._free_at - time.monotonic()))
        return answers


def model() -> Slowed:
    """The model, as an agent makes it."""
    return Slowed()
