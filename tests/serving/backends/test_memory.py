"""Memory that a batch frees stays for the next one, whether the model has a process of its own or not."""

from __future__ import annotations

import subprocess
import sys
from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest

from mark.domain.models.profile import Parallelism
from mark.serving.backends.factory import python_backend
from mark.serving.backends.isolation import held_gib
from tests.serving.backends.asks import INPUTS, OUTPUTS, ask, outputs

MIB = 2**20
PAGES = 96 * 256
"""Of a batch: more than a thread's own heap would keep."""


class Layers:
    """Takes and frees 96 MiB for a batch; answers with the pages that the kernel had to find for it."""

    inputs, outputs = INPUTS, OUTPUTS

    def predict(self, inputs):
        before = getrusage(RUSAGE_SELF).ru_minflt
        [np.ones(3 * MIB // 4, np.float32) for _ in range(32)]
        return {"y": inputs["x"][:, :1] * 0 + (getrusage(RUSAGE_SELF).ru_minflt - before)}


class Loads(Layers):
    """Copies its weights while it loads, of 100 MiB each; answers with the MiB that its process holds."""

    def __init__(self):
        read = [np.ones(MIB, np.float32) for _ in range(25)]
        self._weights = [layer.copy() for layer in read]

    def predict(self, inputs):
        return {"y": inputs["x"][:, :1] * 0 + 1024 * held_gib(["self"])}


async def answer(model: type[Layers], replicas: int) -> float:
    """The largest answer of the fourth batch."""
    backend = python_backend(model, Parallelism(replicas, 1), name="m")
    await backend.start()
    try:
        for _ in range(4):
            replies = await backend.infer([ask([1, 2]), ask([3, 4])])
    finally:
        await backend.close()
    return max(outputs(reply)[0][0] for reply in replies)


def in_a_process(replicas: int, *models: type[Layers]) -> list[float]:
    """The same for each model, in a process that has had no other thread, as an agent's."""
    asked = "".join(f"; print(asyncio.run(answer({model.__name__}, {replicas})))" for model in models)
    code = f"import asyncio; from {__name__} import *{asked}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)  # noqa: S603
    return [float(line) for line in done.stdout.split()]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_batch_finds_the_memory_that_the_one_before_has_freed_and_what_the_load_has_freed_goes(replicas):
    if replicas == 1:  # in that process itself
        pages, mib = *in_a_process(1, Layers), *in_a_process(1, Loads)
    else:
        pages, mib = in_a_process(2, Layers, Loads)
    assert pages < PAGES / 10
    assert mib < 100 + 80
