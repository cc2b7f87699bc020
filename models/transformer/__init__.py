"""A small transformer that says whether a sentence about a service is negative, mixed or positive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.tensor import TensorSpec
from mark.models.texts import strings
from mark.models.transformer.words import LABELS, encode

WEIGHTS = Path(__file__).with_name("weights.npz")


class Polarity:
    """Two layers of attention over the words it knows. Of each text it reads the first LENGTH words."""

    inputs = (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),)
    outputs = (
        TensorSpec(name="probabilities", datatype="FP32", shape=(-1, len(LABELS))),
        TensorSpec(name="label", datatype="BYTES", shape=(-1,)),
    )

    def __init__(self, weights: Path = WEIGHTS) -> None:
        """Load the weights; torch is imported here."""
        from mark.models.transformer.network import TransformerNetwork  # noqa: PLC0415 - torch takes a second to import
        from mark.models.weights import load_weights  # noqa: PLC0415

        self._network = TransformerNetwork()
        load_weights(weights, self._network)

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch of texts with one probability per label, and the likeliest label."""
        import torch  # noqa: PLC0415

        rows = np.stack([encode(text) for text in strings(inputs["text"])])
        with torch.inference_mode():
            probabilities = torch.softmax(self._network(torch.from_numpy(rows)), dim=1).numpy()
        labels = np.array([LABELS[best].encode() for best in probabilities.argmax(axis=1)], dtype=object)
        return {"probabilities": probabilities, "label": labels}
