"""Reproducible training of the models: a seed decides everything, one thread makes sums come out alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Torch's random numbers follow `seed`, its sums one order; its settings are found again afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def fit(
    network: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    examples: int,
    *,
    epochs: int,
    batch: int,
    learning_rate: float,
) -> None:
    """Adam with a rate that falls to nothing; `loss_of` takes the row numbers of a batch. Shows its progress."""
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    steps = epochs * -(-examples // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=learning_rate, total_steps=steps)
    network.train()
    for epoch in range(1, epochs + 1):
        total = 0.0
        order = torch.randperm(examples)
        for first in range(0, examples, batch):
            rows = order[first : first + batch]
            optimiser.zero_grad()
            loss = loss_of(rows)
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        sys.stderr.write(f"\repoch {epoch}/{epochs}: loss {total / examples:.4f}")
        sys.stderr.flush()
    sys.stderr.write("\n")
    network.eval()
