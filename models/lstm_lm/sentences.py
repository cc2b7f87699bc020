"""The text that the language model learns: sentences about a fleet, from a small grammar and a seed."""

from __future__ import annotations

import numpy as np

WHO = ["the gateway", "the agent", "the planner", "a standby", "the controller", "a spot instance", "the forecast"]
DOES = [
    "answers",
    "bounces",
    "drains",
    "launches",
    "batches",
    "waits for",
    "routes",
    "counts",
    "expects",
    "queues",
]
WHAT = ["a request", "twelve requests", "the last batch", "an instance", "the next minute", "a cold start"]
HOW = ["in time", "at once", "with patience", "before the deadline", "after the notice", "within the objective"]
WHY = [
    "because the load rises",
    "because the queue is short",
    "while the store is away",
    "until the fleet is ready",
    "so that nothing is lost",
]


def sentence(rng: np.random.Generator) -> str:
    """One sentence: who does what, how, and perhaps why."""
    words = [WHO, DOES, WHAT, HOW] + ([WHY] if rng.random() < 0.5 else [])
    sentence = " ".join(part[int(rng.integers(len(part)))] for part in words)
    return f"{sentence}. "


def corpus(seed: int, sentences: int) -> str:
    """Sentences one after another."""
    rng = np.random.default_rng(seed)
    return "".join(sentence(rng) for _ in range(sentences))
