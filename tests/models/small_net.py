"""A user's own networks with all that can be elastic, small enough to be trained within a test."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from mark.domain.supernet import ElasticSpace


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inside = nn.Conv2d(channels, 2 * channels, kernel_size=1)
        self.inside_norm = nn.BatchNorm2d(2 * channels)
        self.each = nn.Conv2d(2 * channels, 2 * channels, kernel_size=3, padding=1, groups=2 * channels)
        self.outside = nn.Conv2d(2 * channels, channels, kernel_size=1, bias=False)
        self.outside_norm = nn.BatchNorm2d(channels)

    def forward(self, items):
        inside = torch.relu(self.each(torch.relu(self.inside_norm(self.inside(items)))))
        return items + self.outside_norm(self.outside(inside))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, kernel_size=3, padding=1)
        self.first = nn.Sequential(*(Block(8) for _ in range(2)))
        self.second = nn.Sequential(*(Block(8) for _ in range(2)))
        self.hidden = nn.Linear(8, 12)
        self.hidden_norm = nn.BatchNorm1d(12)
        self.scores = nn.Linear(12, 3)

    def forward(self, images):
        items = self.second(self.first(self.stem(images.unsqueeze(1)))).mean(dim=(2, 3))
        return self.scores(torch.relu(self.hidden_norm(self.hidden(items))))


class SmallNet:
    """Tells apart which third of an image is bright."""

    space = ElasticSpace(
        stages=("first", "second"),
        depths=(1, 2),
        inner=(("*.inside", "hidden"),),
        expands=(0.5, 1.0),
        outer=(("stem", "*.outside"),),
        widths=(0.6, 1.0),
    )

    def network(self):
        return Net()

    def examples(self, *, held_out):
        rng = np.random.default_rng(int(held_out))
        labels = rng.integers(3, size=150)
        images = rng.random((150, 6, 6)).astype(np.float32)
        for image, label in zip(images, labels, strict=True):
            image[:, 2 * label : 2 * label + 2] += 1
        return images, labels


class Reader(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.wider = nn.Linear(8, 16)
        self.back = nn.Linear(16, 8)

    def forward(self, items):
        normed = self.norm(items)
        items = items + self.attend(normed, normed, normed, need_weights=False)[0]
        return items + self.back(torch.relu(self.wider(items)))


class TextNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.blocks = nn.ModuleList(Reader() for _ in range(2))
        self.scores = nn.Linear(8, 3)

    def forward(self, words):
        items = self.words(words)
        for block in self.blocks:
            items = block(items)
        return self.scores(items.mean(dim=1))


class SmallText:
    """Tells apart which third of the words a text's words are of."""

    space = ElasticSpace(
        stages=("blocks",),
        depths=(1, 2),
        inner=(("blocks.0.wider",), ("blocks.1.wider",)),
        expands=(0.5, 1.0),
        outer=(("words", "blocks.*.back"), ("blocks.*.attend",)),
        widths=(0.5, 1.0),
    )

    def network(self):
        return TextNet()

    def examples(self, *, held_out):
        rng = np.random.default_rng(int(held_out))
        labels = rng.integers(3, size=150)
        words = 3 * labels[:, None] + rng.integers(3, size=(150, 5))
        return np.where(rng.random((150, 5)) < 0.4, rng.integers(9, size=(150, 5)), words), labels
