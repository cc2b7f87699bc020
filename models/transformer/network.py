"""The polarity network: words with their places, two transformer layers, the mean of what they say."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mark.models.transformer.words import LABELS, LENGTH, WORDS

WIDTH = 32
HEADS = 4
LAYERS = 2


class TransformerNetwork(nn.Module):
    """Some 20,000 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.scores = nn.Linear(WIDTH, len(LABELS))

    def forward(self, words: Tensor) -> Tensor:
        """words: shape (batch, LENGTH), 0 where there is none; scores: (batch, labels)."""
        empty = words == 0
        read = self.layers(self.words(words) + self.places, src_key_padding_mask=empty)
        there = (~empty).unsqueeze(2).float()
        answer: Tensor = self.scores((read * there).sum(dim=1) / there.sum(dim=1))
        return answer
