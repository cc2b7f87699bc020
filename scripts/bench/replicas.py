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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median

import numpy as np
import uvloop

from mark.domain.models.profile import Parallelism
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.profile import USUAL_BATCHES, request_for
from mark.planner.batching import tune_batching
from mark.ports import InferRequest, PythonModel
from mark.serving.backends.factory import python_backend
from mark.serving.backends.python import PythonBackend
from mark.serving.backends.replicas import ReplicatedBackend
from mark.serving.backends.threads import limit_loaded, processors, thread_variables
from mark.serving.profiling import measure, profile_of
from scripts.bench.engine import say
from scripts.bench.load import Ask, Server, saturate
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


IMAGE = np.zeros((1, 16, 16), dtype=np.float32)
TURN_S, TURNS, PROFILED_S = 1.0, 30, 20.0
"""A machine shared with others may change its speed by half within a minute, and little within seconds."""

PythonBackends = PythonBackend | ReplicatedBackend
Turn = Callable[[], Awaitable[float]]
"""Measures images/s for TURN_S."""


@asynccontextmanager
async def side_by_side() -> AsyncIterator[Turn]:
    """Two processes without MArk, each of which calls the model with an image in a loop."""
    context, ends = get_context("spawn"), []
    with ExitStack() as stack:
        for _ in range(REPLICAS.replicas):
            here, there = context.Pipe()
            worker = context.Process(target=_call_when_told, args=(there,))
            worker.start()
            stack.callback(worker.join)
            stack.callback(worker.kill)
            there.close()
            ends.append(here)

        async def turn() -> float:
            for end in ends:
                end.send(TURN_S)
            return sum([float(await asyncio.to_thread(end.recv)) for end in ends])

        for end in ends:
            end.recv()  # it has loaded
        yield turn


def _call_when_told(told: Connection) -> None:
    """Call the model for as many seconds as a message says, and send back images/s."""
    os.environ.update(thread_variables(1))
    model = Vision()
    limit_loaded(1)
    told.send(0.0)
    while True:
        seconds = told.recv()
        answered, took_s, began = 0, 0.0, time.perf_counter()
        while took_s < seconds:
            model.predict({"image": IMAGE})
            answered, took_s = answered + 1, time.perf_counter() - began
        told.send(answered / took_s)


@asynccontextmanager
async def started(backend: PythonBackends) -> AsyncIterator[PythonBackends]:
    """The backend, until it is no longer needed."""
    try:
        await backend.start()
        yield backend
    finally:
        await backend.close()


def straight(backend: PythonBackends, batch: Sequence[InferRequest]) -> Turn:
    """Batches one after another to the replicas: what a profile says of them."""

    async def turn() -> float:
        answered, took_s, began = 0, 0.0, time.perf_counter()
        while took_s < TURN_S:
            await backend.infer(batch)
            answered, took_s = answered + len(batch), time.perf_counter() - began
        return answered / took_s

    return turn


def through_gateway(server: Server, batch: int) -> Turn:
    """As many replicas behind the gateway, where a batch waits while another is in work."""
    tensor = {"name": "image", "datatype": "FP32", "shape": IMAGE.shape, "data": IMAGE.tolist()}
    ask = Ask(path=f"/v2/models/{VISION}/infer", body=json.dumps({"inputs": [tensor]}).encode())
    wait_until_answered(server, ask)
    return partial(saturate, server.port, ask, seconds=TURN_S, connections=2 * batch)


async def used_whole() -> None:
    """Short turns of each; ratios are of neighbours in time."""
    async with side_by_side() as processes, started(python_backend(Vision, REPLICAS, name=VISION)) as backend:
        request = request_for(None, f"/v2/models/{VISION}/infer", backend.inputs)
        points = await measure(backend, lambda: request, USUAL_BATCHES, seconds=PROFILED_S, every_size=True)
        profile = profile_of(points, model=VISION, instance_type="bench", machine="this one", date="")
        tuned = tune_batching(profile, LATENCY_S)
        assert tuned is not None, "a batch of one takes some milliseconds"
        most = tuned.batch.max_batch
        told = [f"{one.batch}={1000 * one.latency_s}" for one in profile.points if one.batch <= most]
        with ours("whole", VISION, *told, core=None) as server:
            turns = (processes, straight(backend, [request] * most), through_gateway(server, most))
            await _in_turn(turns)  # which warms them up
            found = [await _in_turn(turns, back=number % 2 == 0) for number in range(TURNS)]
    alone, profiled, carried = (median(rates) for rates in zip(*found, strict=True))
    over_alone = [one[2] / one[0] for one in found]
    over_profile = [one[2] / one[1] for one in found]
    figure = f"{median(over_alone):.2f} x ({carried:,.0f} and {alone:,.0f} images/s; {_span(over_alone)})"
    say("a torch model: gateway, two replicas / two processes", figure, ">= 0.9")
    figure = f"{median(over_profile):.2f} x ({profiled:,.0f} images/s in batches of {most}; {_span(over_profile)})"
    say("  the same / those batches straight to the replicas, as profiled", figure, "0.9 to 1.1")
    say(
        "  the same / what the plan counts on, profiled a minute before",
        f"{carried / tuned.capacity_rps:.2f} x",
        "",
    )


async def _in_turn(turns: Sequence[Turn], *, back: bool = False) -> list[float]:
    """Each once, the last one first if `back`; in their order."""
    found = [await turn() for turn in (reversed(turns) if back else turns)]
    return found[::-1] if back else found


def _span(ratios: Sequence[float]) -> str:
    low, high = np.quantile(ratios, (0.1, 0.9))
    return f"80 % of turns: {low:.2f} to {high:.2f}"


async def requests_per_s(model: Callable[[], PythonModel], parallelism: Parallelism) -> float:
    """Of batches one after another, as an agent sends them."""
    async with started(python_backend(model, parallelism, name="bench")) as backend:
        request = request_for(None, "/v2/models/bench/infer", backend.inputs)
        (point,) = await measure(backend, lambda: request, [BATCH], seconds=SECONDS)
        return BATCH / point.median_s


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
    uvloop.run(used_whole())


if __name__ == "__main__":
    # By the module's own name: replicas are pickled with the model's class.
    import_module("scripts.bench.replicas").main()
