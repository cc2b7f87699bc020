"""Lambda as gateways see it: calls of the infer functions from an event loop, through a bounded pool of threads.

A call costs 1.1 ms of CPU in boto3 and the pool (`python -m tests.aws.invoke_cost`). It is made for what instances
bounced, which is little; signing by hand and a second HTTP client would save about half of it.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from mark.aws.errors import may_be_done, translated
from mark.aws.functions.function_url import (
    compose_payload,
    compose_ping,
    failed,
    loss_of,
    parse_reply,
    parse_report,
)
from mark.aws.session import Aws
from mark.domain.errors import OutcomeUnknown, RetryLater
from mark.ports import InferRequest, OverflowReply

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_lambda.type_defs import InvocationResponseTypeDef

LONGEST_S = 60.0
"""No request is waited for longer; a thread whose caller has left is free after this at the latest."""


class LambdaOverflow:
    """The Overflow port on Lambda. `concurrency` calls at once; the rest is RetryLater at once (backpressure).

    `memory_gib` is what a call is reckoned with where Lambda's log tail holds no REPORT line.
    """

    def __init__(self, aws: Aws, *, concurrency: int = 128, memory_gib: float = 3.0) -> None:
        self._aws = aws
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="lambda")
        self._concurrency = concurrency
        self._memory_gib = memory_gib
        self._in_flight = 0

    def prepare(self) -> None:
        """Make the client, which takes a tenth of a second that no request should wait for."""
        _ = self._client

    async def invoke(self, function: str, request: InferRequest, timeout_s: float) -> OverflowReply:
        """Call it. RetryLater where it throttles or cannot be reached.

        OutcomeUnknown where it does not answer in time or the connection is lost: it may have run, or run still.
        A function that fails is answered with 502: it was billed, and asking again would only bill it again. One
        whose runtime ended, as when memory ran out, is `lost`: another server may do better. `not_run` is one that
        could not get its version's files, or has loaded another version.
        """
        return await self._called(function, compose_payload(request), timeout_s)

    async def warm(self, function: str, timeout_s: float, version: str = "") -> OverflowReply:
        """Have an environment load the model, or that version, and answer nothing. Errors as `invoke`."""
        return await self._called(function, compose_ping(version), timeout_s)

    async def _called(self, function: str, payload: bytes, timeout_s: float) -> OverflowReply:
        if self._in_flight >= self._concurrency:
            raise RetryLater(f"{self._in_flight} Lambda calls are under way, no more are allowed")
        self._in_flight += 1
        call = asyncio.get_running_loop().run_in_executor(self._pool, self._call, function, payload)
        call.add_done_callback(self._ended)
        done, _ = await asyncio.wait((call,), timeout=timeout_s)
        if not done:
            raise OutcomeUnknown(f"{function} did not answer within {timeout_s:.3f} s")
        return call.result()

    def close(self) -> None:
        """Take no more calls; those under way end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, call: asyncio.Future[OverflowReply]) -> None:
        self._in_flight -= 1
        if not call.cancelled():
            call.exception()  # looked at here, for those whose caller has left

    @cached_property
    def _client(self) -> LambdaClient:
        return self._aws.invoking(connections=self._concurrency, timeout_s=LONGEST_S)

    def _call(self, function: str, asked: bytes) -> OverflowReply:
        began_at = time.monotonic()
        try:
            with translated():
                answer = self._client.invoke(
                    FunctionName=function,
                    InvocationType="RequestResponse",
                    LogType="Tail",
                    Payload=asked,
                )
                payload = answer["Payload"].read()
        except RetryLater as error:
            if may_be_done(error):
                raise OutcomeUnknown(str(error)) from error
            raise
        return self._reply(answer, payload, time.monotonic() - began_at)

    def _reply(self, answer: InvocationResponseTypeDef, payload: bytes, took_s: float) -> OverflowReply:
        report = parse_report(answer.get("LogResult", ""))
        lost = not_run = False
        if answer.get("FunctionError"):
            lost, not_run = loss_of(payload)
            reply = failed(f"the function failed: {payload[:200].decode(errors='replace')}")
        else:
            reply = parse_reply(payload)
        return OverflowReply(
            reply=reply,
            gib_s=report.gib_s if report else took_s * self._memory_gib,
            cold=report.cold if report else False,
            lost=lost,
            not_run=not_run,
        )
