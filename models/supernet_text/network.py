"""A transformer that reads a few words: an ordinary network, which knows of no operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mark.models.supernet_text.documentation import LENGTH, SERVICES, WORDS
from mark.models.supernet_text.sizes import BLOCKS, HEADS

WIDTH, HIDDEN = 128, 384
MISSING = 0.3
"""Share of words that are left out in training: without it the larger subnets learn sentences by heart."""


class Block(nn.Module):
    """Attention, then two layers for each word, both beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.attend_norm = nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.wider_norm = nn.LayerNorm(WIDTH)
        self.wider = nn.Linear(WIDTH, HIDDEN)
        self.back = nn.Linear(HIDDEN, WIDTH)

    def forward(self, items: Tensor, empty: Tensor) -> Tensor:
        """items: shape (batch, words, channels); empty: (batch, words), true where there is no word."""
        normed = self.attend_norm(items)
        items = items + self.attend(normed, normed, normed, key_padding_mask=empty, need_weights=False)[0]
        answer: Tensor = items + self.back(functional.gelu(self.wider(self.wider_norm(items))))
        return answer


class TextNetwork(nn.Module):
    """Some 1.2 million weights. In: numbers of words, shape (batch, LENGTH), 0: none; out: scores by service."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, len(SERVICES))
        for embedding in (self.words, self.places):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, words: Tensor) -> Tensor:
        """A text without words is one word that no other has. In training each word may be missing."""
        words = words.clamp(0, WORDS - 1)
        if self.training:
            words = words.masked_fill(torch.rand(words.shape) < MISSING, 0)
        places = torch.arange(LENGTH, device=words.device)
        empty = (words == 0) & (places > 0)
        items = self.words(words) + self.places(places)
        for block in self.blocks:
            items = block(items, empty)
        there = (~empty).unsqueeze(2).to(items.dtype)
        scores: Tensor = self.scores(self.norm((items * there).sum(dim=1) / there.sum(dim=1)))
        return scores
