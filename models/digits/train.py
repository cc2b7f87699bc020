"""Trains the digits' network and writes its weights: `python -m mark.models.digits.train`, some ten seconds."""

from __future__ import annotations

from pathlib import Path

import torch

from mark.models.digits import WEIGHTS
from mark.models.digits.data import digits
from mark.models.digits.evaluate import report
from mark.models.digits.network import loss, make_network, shifted
from mark.models.training import fit, repeatable
from mark.models.weights import save_weights

SEED = 1
EPOCHS = 30


def train(path: Path = WEIGHTS, *, seed: int = SEED, epochs: int = EPOCHS) -> None:
    """Learn from four fifths of the digits and write the weights to `path`."""
    images, labels = digits(held_out=False)
    pixels, truth = torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)
    with repeatable(seed):
        network = make_network()
        fit(
            network,
            lambda rows: loss(network, shifted(pixels[rows]), truth[rows]),
            len(images),
            epochs=epochs,
            batch=64,
            learning_rate=4e-3,
        )
    save_weights(path, network)


if __name__ == "__main__":
    train()
    report()
