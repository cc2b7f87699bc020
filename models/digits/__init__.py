"""Handwritten digits: an 8 x 8 image in, ten probabilities and a label out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.tensor import TensorSpec

WEIGHTS = Path(__file__).with_name("weights.npz")


class Digits:
    """A small convolutional network. `image`: 0 is paper, 16 is ink, as in scikit-learn's digits."""

    inputs = (TensorSpec(name="image", datatype="FP32", shape=(-1, 8, 8)),)
    outputs = (
        TensorSpec(name="probabilities", datatype="FP32", shape=(-1, 10)),
        TensorSpec(name="label", datatype="INT64", shape=(-1,)),
    )

    def __init__(self, weights: Path = WEIGHTS) -> None:
        """Load the weights; torch is imported here."""
        import torch  # noqa: PLC0415 - takes a second to import

        from mark.models.digits.network import make_network  # noqa: PLC0415
        from mark.models.weights import load_weights  # noqa: PLC0415

        self._network = make_network()
        load_weights(weights, self._network)
        layout = torch.channels_last  # a third less time on a CPU than channels first
        self._network.to(memory_format=layout)  # type: ignore[call-overload]  # not in torch's stubs

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch of images."""
        import torch  # noqa: PLC0415

        with torch.inference_mode():
            images = torch.from_numpy(np.ascontiguousarray(inputs["image"], np.float32))
            probabilities = torch.softmax(self._network(images.unsqueeze(1)), dim=1).numpy()
        return {"probabilities": probabilities, "label": probabilities.argmax(axis=1)}
