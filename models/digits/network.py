"""The digits' network: two convolutions, two linear layers; some 18,000 weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BRIGHTEST = 16.0
"""The digits' images are counted from 0 to 16."""


class _Scale(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images / BRIGHTEST


def make_network() -> nn.Sequential:
    """Untrained. In: shape (batch, 1, 8, 8); out: scores, shape (batch, 10)."""
    return nn.Sequential(
        _Scale(),
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.ReLU(inplace=True),  # the same as before the pooling, of a sixteenth of the numbers
        nn.Linear(32 * 2 * 2, 96),
        nn.ReLU(inplace=True),
        nn.Linear(96, 10),
    )


def loss(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy. images: shape (batch, 1, 8, 8); labels: (batch,)."""
    return nn.functional.cross_entropy(network(images), labels)


def shifted(images: Tensor) -> Tensor:
    """Each batch moved by at most one pixel up, down, left or right: what the network must not mind."""
    down, right = (int(step) for step in torch.randint(-1, 2, (2,)))
    return torch.roll(images, (down, right), dims=(2, 3))
