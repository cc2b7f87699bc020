"""Next reading of a machine's sensors, by a recurrent network: tens of milliseconds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mark.domain.tensor import TensorSpec

STEPS, SENSORS, STATE = 200, 8, 384


class Forecast:
    """It reads the steps one after the other. Weights are drawn; a real one would read them from a file."""

    inputs = (TensorSpec(name="readings", datatype="FP32", shape=(-1, STEPS, SENSORS)),)
    outputs = (TensorSpec(name="next", datatype="FP32", shape=(-1, SENSORS)),)

    def __init__(self) -> None:
        """Make the weights."""
        random = np.random.default_rng(3)
        self.read = random.normal(0, 0.3, (SENSORS, STATE)).astype(np.float32)
        self.keep = random.normal(0, STATE**-0.5, (STATE, STATE)).astype(np.float32)
        self.tell = random.normal(0, STATE**-0.5, (STATE, SENSORS)).astype(np.float32)

    def predict(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch of readings."""
        readings = tensors["readings"] @ self.read
        state = np.zeros((len(readings), STATE), np.float32)
        for step in range(STEPS):
            state = np.tanh(readings[:, step] + state @ self.keep)
        return {"next": state @ self.tell}
