"""Characters as numbers. 0 stands for "before the text began", UNKNOWN for all that is not in the alphabet."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

ALPHABET = "\x00abcdefghijklmnopqrstuvwxyz .,;:'-0123456789?"
UNKNOWN = ALPHABET.index("?")
CONTEXT = 48
"""Characters that an answer looks back at."""
_NUMBER = {character: number for number, character in enumerate(ALPHABET)}


def encode(text: str, length: int) -> NDArray[np.int64]:
    """The last `length` characters of a text, filled up on the left."""
    numbers = [_NUMBER.get(character, UNKNOWN) for character in text.lower()[-length:]]
    return np.array([0] * (length - len(numbers)) + numbers, dtype=np.int64)


def decode(numbers: Iterable[int]) -> str:
    """The characters, without those before the text began."""
    return "".join(ALPHABET[number] for number in numbers if number)
