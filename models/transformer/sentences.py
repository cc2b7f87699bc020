"""Sentences with their polarity, from a small grammar: a word says one thing, `not` before it the other."""

from __future__ import annotations

import numpy as np

from mark.models.transformer.words import BAD, GOOD, SUBJECTS

LEARNED_SEED = 1
LEARNED = 6_000
"""The sentences that the shipped weights were trained on."""


def sentences(seed: int, count: int) -> tuple[list[str], list[int]]:
    """Distinct sentences, and the indexes of their labels in LABELS."""
    rng = np.random.default_rng(seed)
    found: dict[str, int] = {}
    while len(found) < count:
        text, label = _sentence(rng)
        found[text] = label
    return list(found), list(found.values())


def _sentence(rng: np.random.Generator) -> tuple[str, int]:
    first, likes = _clause(rng)
    if rng.random() < 0.3:
        return f"{first}.", 2 if likes else 0
    second, likes_too = _clause(rng)
    joint = _one(rng, ["and", ", but", ", although"])
    return f"{first} {joint} {second}.", 1 if likes != likes_too else 2 * int(likes)


def _clause(rng: np.random.Generator) -> tuple[str, bool]:
    likes = bool(rng.random() < 0.5)
    denied = _one(rng, ["", "", "not", "never", "hardly"])
    word = _one(rng, GOOD if likes else BAD)
    stress = _one(rng, ["", "", "very", "quite", "really"])
    tail = "at all" if denied == "not" and rng.random() < 0.5 else ""
    start, verb = _one(rng, ["the", "this", "our"]), _one(rng, ["is", "was", "seems", "feels"])
    parts = [start, _one(rng, SUBJECTS), verb, denied, stress, word, tail]
    return " ".join(part for part in parts if part), likes != bool(denied)


def _one(rng: np.random.Generator, words: list[str]) -> str:
    return words[int(rng.integers(len(words)))]
