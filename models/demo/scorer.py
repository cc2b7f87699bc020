"""Probability that a customer leaves, by a linear score."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mark.domain.tensor import TensorSpec

FEATURES = 30


class Scorer:
    """Logistic regression; a real one would read its weights from a file."""

    inputs = (TensorSpec(name="customer", datatype="FP32", shape=(-1, FEATURES)),)
    outputs = (TensorSpec(name="probability", datatype="FP32", shape=(-1,)),)

    def __init__(self) -> None:
        """Make the weights."""
        self.weights = np.random.default_rng(1).normal(0, 0.3, FEATURES).astype(np.float32)

    def predict(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch of customers."""
        return {"probability": 1 / (1 + np.exp(-(tensors["customer"] @ self.weights)))}
