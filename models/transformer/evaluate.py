"""Says how often the transformer judges unseen sentences right: `python -m mark.models.transformer.evaluate`."""

from __future__ import annotations

import sys

import numpy as np

from mark.models.transformer import Polarity
from mark.models.transformer.sentences import LEARNED, LEARNED_SEED, sentences
from mark.models.transformer.words import LABELS

HELD_OUT_SEED = 2
HELD_OUT = 1_000


def held_out() -> tuple[list[str], list[int]]:
    """Sentences of another seed that were not learned, and the places of their labels."""
    learned = set(sentences(LEARNED_SEED, LEARNED)[0])
    texts, labels = sentences(HELD_OUT_SEED, HELD_OUT)
    kept = [(text, label) for text, label in zip(texts, labels, strict=True) if text not in learned]
    return [text for text, _ in kept], [label for _, label in kept]


def accuracy(model: Polarity) -> float:
    """Share of the held-out sentences that get their own label."""
    texts, labels = held_out()
    answers = model.predict({"text": np.array(texts, dtype=object)})["label"]
    return float(
        np.mean([LABELS[label].encode() == answer for label, answer in zip(labels, answers, strict=True)])
    )


def report() -> None:
    """Print it."""
    texts, _ = held_out()
    sys.stdout.write(
        f"transformer: {accuracy(Polarity()):.2%} of {len(texts)} held-out sentences are judged right\n"
    )


if __name__ == "__main__":
    report()
