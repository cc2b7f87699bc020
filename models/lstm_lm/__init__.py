"""A character language model: a text in, its likely continuation out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.domain.tensor import TensorSpec
from mark.models.lstm_lm.alphabet import CONTEXT, decode, encode
from mark.models.texts import strings

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = Path(__file__).with_name("weights.npz")
CONTINUED = 16
"""Characters that an answer adds."""


class LanguageModel:
    """An LSTM over characters. Of each text it reads the last CONTEXT characters, in lower case."""

    inputs = (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),)
    outputs = (
        TensorSpec(name="continuation", datatype="BYTES", shape=(-1,)),
        TensorSpec(name="bits_per_character", datatype="FP32", shape=(-1,)),
    )

    def __init__(self, weights: Path = WEIGHTS) -> None:
        """Load the weights; torch is imported here."""
        from mark.models.lstm_lm.network import LstmNetwork  # noqa: PLC0415 - torch takes a second to import
        from mark.models.weights import load_weights  # noqa: PLC0415

        self._network = LstmNetwork()
        load_weights(weights, self._network)

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch of texts: the likeliest characters that follow, and how surprising each text was."""
        import torch  # noqa: PLC0415

        rows = np.stack([encode(text, CONTEXT) for text in strings(inputs["text"])])
        with torch.inference_mode():
            symbols = torch.from_numpy(rows)
            surprise = self._network.bits(symbols).numpy()
            continued = self._continue(symbols).numpy()
        texts = np.array([decode(row).encode() for row in continued], dtype=object)
        return {"continuation": texts, "bits_per_character": surprise}

    def _continue(self, symbols: Tensor) -> Tensor:
        """The likeliest next symbol, CONTINUED times over. symbols: shape (batch, CONTEXT)."""
        import torch  # noqa: PLC0415

        scores, state = self._network(symbols, None)
        found = [scores[:, -1].argmax(dim=-1)]
        for _ in range(CONTINUED - 1):
            scores, state = self._network(found[-1].unsqueeze(1), state)
            found.append(scores[:, -1].argmax(dim=-1))
        return torch.stack(found, dim=1)
