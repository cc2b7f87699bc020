"""Invoke: the real handler, synchronously or as an event. Everything else about functions is moto's."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from moto.awslambda.exceptions import UnknownFunctionException

from mark.emulator.clock import ServiceClock
from mark.emulator.config import LambdaLimits
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.functions.pool import Invocation, LambdaPools
from mark.emulator.functions.process import FunctionSpec
from mark.emulator.moto_parts import backend_of

LOG = logging.getLogger(__name__)

EVENT_BYTES = 1024 * 1024
"""An asynchronous payload's limit."""
EVENT_RETRIES_S = (60.0, 120.0)
"""Waits of service time before an event's second and third attempt."""
THROTTLED_WAIT_S = 1.0

Headers = tuple[tuple[bytes, bytes], ...]


class LambdaApi:
    """Finds functions among moto's and runs them."""

    def __init__(self, pools: LambdaPools, limits: LambdaLimits, clock: ServiceClock) -> None:
        self._pools = pools
        self._limits = limits
        self._clock = clock
        self._events: set[asyncio.Task[None]] = set()

    def check(self, action: str, body: bytes) -> None:
        """ApiError for a function with more memory than the account allows."""
        if action.startswith(("POST ", "PUT ")) and "/functions" in action and body.startswith(b"{"):
            most = self._limits.memory_mb
            if int(json.loads(body).get("MemorySize") or 0) > most:
                raise ApiError(
                    "InvalidParameterValueException",
                    "'MemorySize' value failed to satisfy constraint: Member must have value less than or equal "
                    f"to {most}",
                )

    async def invoke(
        self, name: str, headers: Mapping[str, str], query: str, payload: bytes
    ) -> tuple[int, Headers, bytes]:
        """Status, headers and body of the Invoke call."""
        qualifier = parse_qs(query).get("Qualifier", [None])[0]
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        most = EVENT_BYTES if kind == "Event" else self._limits.payload_bytes
        if len(payload) > most:
            raise ApiError(
                "RequestTooLargeException",
                f"Request must be smaller than {most} bytes for the InvokeFunction operation",
                413,
            )
        function = _function(name, qualifier)
        _check_json(payload)
        if kind == "DryRun":
            return 204, (), b""
        if kind == "Event":
            self.send_event(name, payload)
            return 202, (), b""
        if kind != "RequestResponse":
            raise not_emulated(f"invocation type {kind}")
        invocation = await self._run(function, payload)
        return (
            200,
            _headers(invocation, function, tail=headers.get("x-amz-log-type") == "Tail"),
            self._body(invocation),
        )

    async def call(self, name: str, payload: bytes) -> Invocation:
        """One synchronous invocation, for event sources."""
        return await self._run(_function(name, None), payload)

    def send_event(self, name: str, payload: bytes) -> None:
        """Invoke the function later, and again twice when it fails."""
        task = asyncio.get_running_loop().create_task(self._attempts(name, payload))
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    async def stop(self) -> None:
        """Give up what is still to be sent, and end all runtimes."""
        for task in self._events:
            task.cancel()
        if self._events:
            await asyncio.wait(self._events)
        await self._pools.stop()

    async def _attempts(self, name: str, payload: bytes) -> None:
        waits = list(EVENT_RETRIES_S)
        while True:
            try:
                if not (await self.call(name, payload)).outcome.failed:
                    return
            except ApiError as error:
                if error.status != 429:
                    LOG.warning("an event for %s is lost: %s", name, error.message)
                    return
                await self._wait(THROTTLED_WAIT_S)
                continue
            if not waits:
                LOG.warning("an event for %s failed three times", name)
                return
            await self._wait(waits.pop(0))

    async def _wait(self, service_s: float) -> None:
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fire(_at: float) -> None:
            if not due.done():
                due.set_result(None)

        self._clock.at(self._clock.now() + service_s, fire)
        await due

    async def _run(self, function: Any, payload: bytes) -> Invocation:
        return await self._pools.invoke(
            _spec(function),
            payload,
            code=lambda: getattr(function, "code_bytes", b""),
            reserved=function.reserved_concurrency,
        )

    def _body(self, invocation: Invocation) -> bytes:
        if len(invocation.outcome.payload) <= self._limits.payload_bytes:
            return invocation.outcome.payload
        message = "Response payload size exceeded maximum allowed payload size (6291556 bytes)."
        return json.dumps({"errorType": "Function.ResponseSizeTooLarge", "errorMessage": message}).encode()


def _headers(invocation: Invocation, function: Any, *, tail: bool) -> Headers:
    headers = [
        (b"x-amzn-requestid", invocation.request.encode()),
        (b"x-amz-executed-version", str(function.version).encode()),
    ]
    if invocation.outcome.failed:
        headers.append((b"x-amz-function-error", b"Unhandled"))
    if tail:
        headers.append((b"x-amz-log-result", base64.b64encode(invocation.report(function.memory_size).encode())))
    return tuple(headers)


def _function(name: str, qualifier: str | None) -> Any:
    try:
        return backend_of("lambda").get_function(name, qualifier)
    except UnknownFunctionException as error:
        raise ApiError("ResourceNotFoundException", str(error.message), 404) from error


def _check_json(payload: bytes) -> None:
    if payload[:1] in (b"{", b"[", b'"') or not payload:
        return  # the runtime parses it; the cheap look is for the hot path
    try:
        json.loads(payload)
    except ValueError as error:
        raise ApiError(
            "InvalidRequestContentException", f"Could not parse request body into json: {error}"
        ) from error


def _spec(function: Any) -> FunctionSpec:
    variables = function.environment_vars or {}
    return FunctionSpec(
        name=function.function_name,
        arn=function.function_arn,
        version=str(function.version),
        handler=function.handler,
        code_digest=function.code_digest,
        timeout_s=float(function.timeout),
        memory_mb=int(function.memory_size),
        environment=tuple(sorted(variables.items())),
    )
