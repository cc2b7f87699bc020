"""Load by gRPC: an open loop of one message, as `load.paced` is one of an HTTP request."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import numpy as np
from grpc import aio
from numpy.typing import NDArray

from mark.serving.grpc.messages import CLASSES, SERVICE


def grpc_message(values: NDArray[np.float32]) -> bytes:
    """A ModelInferRequest of the input `x`, serialised."""
    message = CLASSES["ModelInferRequest"](model_name="bench", raw_input_contents=[values.tobytes()])
    message.inputs.add(name="x", datatype="FP32", shape=values.shape)
    return bytes(message.SerializeToString())


async def paced_grpc(port: int, message: bytes, *, rps: float, seconds: float) -> float:
    """Open loop at a fixed rate on one channel; the median latency in ms from the intended send time."""
    latencies: list[float] = []

    async def one(infer: Any, due: float) -> None:
        await infer(message)
        latencies.append(time.perf_counter() - due)

    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        await infer(message, wait_for_ready=True)
        start = time.perf_counter()
        asking = []
        for number in range(int(rps * seconds)):
            due = start + number / rps
            while time.perf_counter() < due:
                await asyncio.sleep(0.0005)
            asking.append(asyncio.ensure_future(one(infer, due)))
        await asyncio.gather(*asking)
    return statistics.median(latencies) * 1000
