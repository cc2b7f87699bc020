"""Requests/s of a model that computes, by replicas x threads of the Python backend, side by side on this machine.

One model computes in Python, where threads are of no use; the other multiplies matrices, where BLAS has threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from statistics import median

import numpy as np

from mark.domain.models.profile import Parallelism
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.profile import request_for
from mark.ports import PythonModel
from mark.serving.backends.factory import python_backend
from mark.serving.backends.threads import processors
from mark.serving.profiling import measure
from scripts.bench.engine import say

BATCH, SECONDS, ROUNDS = 8, 1.0, 3
CHOICES = (Parallelism(1, 1), Parallelism(1, 2), Parallelism(2, 1))


class Interpreted:
    """Some milliseconds of Python for each item."""

    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 4)),)

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Count, and double."""
        for _ in range(len(inputs["x"])):
            sum(range(100_000))
        return {"y": inputs["x"] * 2}


class Multiplied(Interpreted):
    """A product of matrices for each item."""

    def __init__(self) -> None:
        self._weights = np.random.default_rng(1).random((512, 512), np.float32)

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Multiply, and double."""
        for _ in range(len(inputs["x"])):
            self._weights @ self._weights
        return {"y": inputs["x"] * 2}


async def requests_per_s(model: Callable[[], PythonModel], parallelism: Parallelism) -> float:
    """Of batches one after another, as an agent sends them."""
    backend = python_backend(model, parallelism, name="bench")
    await backend.start()
    try:
        request = request_for(None, "/v2/models/bench/infer", backend.inputs)
        (point,) = await measure(backend, lambda: request, [BATCH], seconds=SECONDS)
        return BATCH / point.median_s
    finally:
        await backend.close()


def main() -> None:
    """Take turns, so that other work on the machine harms none more than another."""
    for model in (Interpreted, Multiplied):
        found: dict[Parallelism, list[float]] = {choice: [] for choice in CHOICES}
        for _ in range(ROUNDS):
            for choice, rates in found.items():
                if choice.processors <= processors():
                    rates.append(asyncio.run(requests_per_s(model, choice)))
        figures = ", ".join(f"{choice} {median(rates):,.0f}" for choice, rates in found.items() if rates)
        say(f"Python backend, {model.__name__.lower()}, replicas x threads", f"{figures} requests/s", "")


if __name__ == "__main__":
    # By the module's own name: replicas are pickled with the model's class.
    import_module("scripts.bench.replicas").main()
