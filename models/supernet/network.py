"""The residual network that the shipped supernet is made of: an ordinary network, which knows of no operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mark.models.supernet.depth import BLOCKS

BRIGHTEST = 16.0
"""The digits' images are counted from 0 to 16."""
CHANNELS = (32, 64)
"""Of each stage."""


class Bottleneck(nn.Module):
    """A block of three convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(inputs, outputs, kernel_size=1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(outputs)
        self.mix = nn.Conv2d(outputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        self.mix_norm = nn.BatchNorm2d(outputs)
        self.restore = nn.Conv2d(outputs, outputs, kernel_size=1, bias=False)
        self.restore_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, items: Tensor) -> Tensor:
        """items: shape (batch, channels, height, width)."""
        inside = functional.relu(self.reduce_norm(self.reduce(items)))
        inside = functional.relu(self.mix_norm(self.mix(inside)))
        return functional.relu(self.shortcut(items) + self.restore_norm(self.restore(inside)))


class ResidualNetwork(nn.Module):
    """Two stages of bottlenecks. In: shape (batch, 8, 8), counted to BRIGHTEST; out: scores, shape (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        first, second = CHANNELS
        self.stem = nn.Sequential(
            nn.Conv2d(1, first, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU()
        )
        self.stage1 = nn.Sequential(*(Bottleneck(first, first, 1) for _ in range(BLOCKS)))
        self.stage2 = nn.Sequential(
            Bottleneck(first, second, 2), *(Bottleneck(second, second, 1) for _ in range(BLOCKS - 1))
        )
        self.scores = nn.Linear(second, 10)

    def forward(self, images: Tensor) -> Tensor:
        """In training each batch is moved by at most one pixel, which the network must not mind."""
        images = images / BRIGHTEST
        if self.training:
            down, right = (int(step) for step in torch.randint(-1, 2, (2,)))
            images = torch.roll(images, (down, right), dims=(1, 2))
        items = self.stage2(self.stage1(self.stem(images.unsqueeze(1))))
        scores: Tensor = self.scores(items.mean(dim=(2, 3)))
        return scores
