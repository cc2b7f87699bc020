"""Trains the language model and writes its weights: `python -m mark.models.lstm_lm.train`, half a minute."""

from __future__ import annotations

from pathlib import Path

import torch

from mark.models.lstm_lm import WEIGHTS
from mark.models.lstm_lm.alphabet import CONTEXT, encode
from mark.models.lstm_lm.evaluate import report
from mark.models.lstm_lm.network import LstmNetwork
from mark.models.lstm_lm.sentences import corpus
from mark.models.training import fit, repeatable
from mark.models.weights import save_weights

SEED = 1
SENTENCES = 2_000
EPOCHS = 12


def train(path: Path = WEIGHTS, *, seed: int = SEED, sentences: int = SENTENCES, epochs: int = EPOCHS) -> None:
    """Learn from generated sentences and write the weights to `path`."""
    text = corpus(seed, sentences)
    symbols = torch.from_numpy(encode(text, len(text)))
    # Half of each window is shared with the next; every fourth begins before its text did, as short requests do.
    windows = symbols.unfold(0, CONTEXT + 1, CONTEXT // 2).clone()
    windows[::4, : CONTEXT // 2] = 0
    with repeatable(seed):
        network = LstmNetwork()
        fit(
            network,
            lambda rows: network.bits(windows[rows]).mean(),
            len(windows),
            epochs=epochs,
            batch=64,
            learning_rate=1e-2,
        )
    save_weights(path, network)


if __name__ == "__main__":
    train()
    report()
