"""The words that the transformer knows, and the labels that it gives."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

LABELS = ("negative", "mixed", "positive")
LENGTH = 24
"""Words of a text that are read."""

SUBJECTS = ["service", "answer", "reply", "invoice", "support", "update", "report", "gateway", "search", "upload"]
GOOD = ["fast", "clear", "helpful", "reliable", "cheap", "friendly", "correct", "pleasant", "quick", "stable"]
BAD = ["slow", "confusing", "useless", "flaky", "dear", "rude", "wrong", "annoying", "late", "broken"]
GLUE = ["the", "this", "our", "is", "was", "seems", "feels", "not", "never", "hardly", "and", "but", "although"]
MARKS_AND_STRESS = [",", ".", "very", "quite", "really", "at", "all"]
_NUMBER = {
    word: number for number, word in enumerate(sorted({*SUBJECTS, *GOOD, *BAD, *GLUE, *MARKS_AND_STRESS}), start=2)
}
WORDS = len(_NUMBER) + 2
"""0 fills up, 1 is any other word."""


def encode(text: str) -> NDArray[np.int64]:
    """The numbers of a text's first words, filled up on the right. A text without words is one unknown word."""
    found = re.findall(r"[a-z]+|[,.]", text.lower())[:LENGTH] or ["?"]
    numbers = [_NUMBER.get(word, 1) for word in found]
    return np.array(numbers + [0] * (LENGTH - len(numbers)), dtype=np.int64)
