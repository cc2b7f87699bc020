"""Trains the transformer and writes its weights: `python -m mark.models.transformer.train`, under a minute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from mark.models.training import fit, repeatable
from mark.models.transformer import WEIGHTS
from mark.models.transformer.evaluate import report
from mark.models.transformer.network import TransformerNetwork
from mark.models.transformer.sentences import LEARNED, LEARNED_SEED, sentences
from mark.models.transformer.words import encode
from mark.models.weights import save_weights

EPOCHS = 10


def train(path: Path = WEIGHTS, *, seed: int = LEARNED_SEED, count: int = LEARNED, epochs: int = EPOCHS) -> None:
    """Learn from generated sentences and write the weights to `path`."""
    texts, labels = sentences(seed, count)
    words, truth = torch.from_numpy(np.stack([encode(text) for text in texts])), torch.tensor(labels)
    with repeatable(seed):
        network = TransformerNetwork()
        fit(
            network,
            lambda rows: nn.functional.cross_entropy(network(words[rows]), truth[rows]),
            count,
            epochs=epochs,
            batch=64,
            learning_rate=4e-3,
        )
    save_weights(path, network)


if __name__ == "__main__":
    train()
    report()
