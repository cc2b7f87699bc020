"""Requests/s of a model that computes, by replicas x threads of the Python backend, side by side on this machine.

One model computes in Python, where threads are of no use; the other multiplies matrices, where BLAS has threads.
Then an instance used whole: a real network in torch, with two replicas behind the gateway, beside two processes
that call it in a loop. Its batches are those of a plan by its profile, as `mark profile` measures it. What sends
the requests takes its time from the same processors.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from statistics import median
from threading import Barrier

import numpy as np
import uvloop

from mark.domain.models.profile import Parallelism, Profile
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.profile import USUAL_BATCHES, request_for
from mark.planner.batching import tune_batching
from mark.ports import PythonModel
from mark.serving.backends.factory import python_backend
from mark.serving.backends.threads import limit_loaded, processors, thread_variables
from mark.serving.profiling import measure, profile_of
from scripts.bench.engine import say
from scripts.bench.load import Ask, Server, saturate, threads_s
from scripts.bench.running import children
from scripts.bench.servers import LATENCY_S, REPLICAS, VISION
from scripts.bench.serving import ours, wait_until_answered
from scripts.bench.vision import Vision

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


IMAGE, CONNECTIONS, WHOLE_S, PROFILED_S = np.zeros((1, 16, 16), dtype=np.float32), 16, 5.0, 20.0
"""Requests that wait for an answer, of an image each."""


def _calls(barrier: Barrier) -> tuple[int, float]:
    """Images that this process answers in the time, one thread, and the CPU seconds that they take."""
    os.environ.update(thread_variables(1))
    model = Vision()
    limit_loaded(1)
    model.predict({"image": IMAGE})
    barrier.wait()
    answered, began_s, until = 0, time.process_time(), time.perf_counter() + WHOLE_S
    while time.perf_counter() < until:
        model.predict({"image": IMAGE})
        answered += 1
    return answered, time.process_time() - began_s


def side_by_side() -> tuple[float, float]:
    """Images/s of two processes without MArk, and images for each CPU second."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(REPLICAS.replicas, mp_context=context) as pool:
        barrier = manager.Barrier(REPLICAS.replicas)
        done = list(pool.map(_calls, [barrier] * REPLICAS.replicas))
    images = sum(answered for answered, _ in done)
    return images / WHOLE_S, images / sum(used_s for _, used_s in done)


def through_gateway(server: Server) -> tuple[float, float]:
    """The same of as many replicas behind the gateway: CPU of gateway, agent and replicas, not of the load."""
    tensor = {"name": "image", "datatype": "FP32", "shape": IMAGE.shape, "data": IMAGE.tolist()}
    ask = Ask(path=f"/v2/models/{VISION}/infer", body=json.dumps({"inputs": [tensor]}).encode())
    wait_until_answered(server, ask)
    before_s = _cpu_s(server.pid)
    rate = uvloop.run(saturate(server.port, ask, seconds=WHOLE_S, connections=CONNECTIONS))
    return rate, rate * WHOLE_S / (_cpu_s(server.pid) - before_s)


def _cpu_s(pid: int) -> float:
    """CPU seconds of the process and of all below it: replicas lead sessions of their own."""
    return threads_s(pid) + sum(map(_cpu_s, children(pid)))


def used_whole() -> None:
    """Both in turn; the ratio is of neighbours in time."""
    profile = asyncio.run(vision_profile())
    tuned = tune_batching(profile, LATENCY_S)
    assert tuned is not None, "a batch of one takes some milliseconds"
    most = tuned.batch.max_batch
    told = [f"{one.batch}={1000 * one.latency_s}" for one in profile.points if one.batch <= most]
    with ours("whole", VISION, *told, core=None) as server:
        pairs = [(side_by_side(), through_gateway(server)) for _ in range(ROUNDS)]
    rate, by_cpu = (median(one[at] / alone[at] for alone, one in pairs) for at in (0, 1))
    carried = median(one[0] for _, one in pairs)
    figure = f"{rate:.2f} x by images/s ({carried:,.0f}), {by_cpu:.2f} x by CPU, batches of {most}"
    say("a torch model: gateway, two replicas / two processes", figure, ">= 0.9")
    say("  the same / what a plan counts on", f"{carried / tuned.capacity_rps:.2f} x", "0.9 to 1.1")


async def vision_profile() -> Profile:
    """As `mark profile` measures it."""
    backend = python_backend(Vision, REPLICAS, name=VISION)
    await backend.start()
    try:
        request = request_for(None, f"/v2/models/{VISION}/infer", backend.inputs)
        points = await measure(backend, lambda: request, USUAL_BATCHES, seconds=PROFILED_S, every_size=True)
    finally:
        await backend.close()
    return profile_of(points, model=VISION, instance_type="bench", machine="this one", date="")


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
    used_whole()


if __name__ == "__main__":
    # By the module's own name: replicas are pickled with the model's class.
    import_module("scripts.bench.replicas").main()
