"""What one Lambda call costs in boto3, in CPU milliseconds: `python -m tests.aws.invoke_cost`.

The server runs in a process of its own, so that only the caller's time is counted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

from mark.aws.functions.overflow import LambdaOverflow
from mark.ports import InferRequest
from tests.aws.builders import aws
from tests.aws.lambda_stand_in import LambdaStandIn

CALLS, AT_ONCE = 1000, 8
ASKED = InferRequest(
    path="/v2/models/m/infer", content_type="application/json", body=b'{"x":"' + b"1" * 2000 + b'"}'
)


def serve(line: Connection) -> None:
    with LambdaStandIn() as stand_in:
        line.send(stand_in.url)
        line.recv()


async def calls(overflow: LambdaOverflow, count: int) -> None:
    for _ in range(count // AT_ONCE):
        await asyncio.gather(*(overflow.invoke("f", ASKED, 10.0) for _ in range(AT_ONCE)))


def main() -> None:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    server.start()
    there = aws(endpoint_url=ours.recv())
    overflow = LambdaOverflow(there)
    asyncio.run(calls(overflow, 50))
    began, began_at = time.process_time(), time.perf_counter()
    asyncio.run(calls(overflow, CALLS))
    cpu_ms = (time.process_time() - began) / CALLS * 1000
    print(f"{cpu_ms:.2f} ms of CPU a call, {CALLS / (time.perf_counter() - began_at):.0f} calls/s")  # noqa: T201
    ours.send("end")
    server.join()
    overflow.close()
    there.close()


if __name__ == "__main__":
    main()
