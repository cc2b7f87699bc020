"""Progressive shrinking (Once-for-all, Cai et al., ICLR 2020): all subnets learn on the same weights.

The largest subnet learns first; then depth, expand ratio and width become elastic one after another. In each step
of the later phases the largest subnet learns the labels, and the smallest one of the phase and some that are drawn
learn the labels and what the largest one answers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from mark.domain.supernet import ElasticSpace
from mark.models.supernet.elastic import ElasticNetwork
from mark.models.training import fit

BATCH = 64
DRAWN = 2
"""Subnets that are drawn in each step."""
LEARNING_RATE = 4e-3
LARGEST_SHARE = 0.4
"""Of the epochs are for the largest subnet alone; phases share the others."""


def phases(space: ElasticSpace) -> tuple[ElasticSpace, ...]:
    """The growing spaces: the largest subnet alone, elastic depth, expand ratio and width; equal ones once."""
    fixed = replace(space, depths=space.depths[-1:], expands=(1.0,), widths=(1.0,))
    deep = replace(fixed, depths=space.depths)
    expanded = replace(deep, expands=space.expands)
    return tuple(dict.fromkeys((fixed, deep, expanded, space)))


def epochs_of(spaces: tuple[ElasticSpace, ...], epochs: int) -> list[int]:
    """Epochs of each phase, one at least."""
    if len(spaces) == 1:
        return [epochs]
    others = len(spaces) - 1
    first = max(1, min(round(epochs * LARGEST_SHARE), epochs - others))
    left = max(others, epochs - first)
    return [first, *(left * (place + 1) // others - left * place // others for place in range(others))]


def shrink(elastic: ElasticNetwork, inputs: Tensor, labels: Tensor, *, epochs: int) -> None:
    """Train all subnets of the network's space. inputs: shape (n, ...); labels: (n,). Shows its progress."""
    spaces = phases(elastic.space)
    for space, count in zip(spaces, epochs_of(spaces, epochs), strict=True):

        def loss_of(rows: Tensor, space: ElasticSpace = space) -> Tensor:
            return _loss(elastic, space, inputs[rows], labels[rows])

        rate = LEARNING_RATE if space is spaces[0] else LEARNING_RATE / 2
        fit(elastic.network, loss_of, len(inputs), epochs=count, batch=BATCH, learning_rate=rate)
    elastic.switch(elastic.space.largest)


def _loss(elastic: ElasticNetwork, space: ElasticSpace, items: Tensor, labels: Tensor) -> Tensor:
    elastic.switch(space.largest)
    scores = elastic.network(items)
    loss = functional.cross_entropy(scores, labels)
    if len(space) == 1:
        return loss
    taught = torch.softmax(scores.detach(), dim=1)
    for control in (space.smallest, *(space.drawn(_pick) for _ in range(DRAWN))):
        elastic.switch(control)
        scores = elastic.network(items)
        own = functional.cross_entropy(scores, labels)
        loss = loss + (own + functional.cross_entropy(scores, taught)) / 2
    return loss


def _pick(choices: int) -> int:
    """A place by torch's random numbers."""
    return math.floor(float(torch.rand(())) * choices)
