"""Says how well the shipped model foretells unseen sentences: `python -m mark.models.lstm_lm.evaluate`."""

from __future__ import annotations

import math
import sys
from collections import Counter

import numpy as np

from mark.models.lstm_lm import LanguageModel
from mark.models.lstm_lm.alphabet import CONTEXT
from mark.models.lstm_lm.sentences import corpus

HELD_OUT_SEED = 2
SENTENCES = 300


def held_out() -> list[str]:
    """Texts of CONTEXT characters, one after another, from sentences of another seed."""
    text = corpus(HELD_OUT_SEED, SENTENCES)
    return [text[first : first + CONTEXT] for first in range(0, len(text) - CONTEXT + 1, CONTEXT)]


def bits_per_character(model: LanguageModel) -> float:
    """Mean over the held-out texts, each read from its first character on."""
    return float(model.predict({"text": np.array(held_out(), dtype=object)})["bits_per_character"].mean())


def bits_without_a_model() -> float:
    """The same when only the frequency of each character is known."""
    counts = Counter("".join(held_out()))
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values())


def report() -> None:
    """Print it."""
    learned, plain = bits_per_character(LanguageModel()), bits_without_a_model()
    sys.stdout.write(f"lstm_lm: {learned:.3f} bits a character on held-out text; {plain:.3f} by frequency alone\n")


if __name__ == "__main__":
    report()
