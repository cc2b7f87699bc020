"""A model in the agent's own process whose `predict` yields its answer part by part.

Each step of a generator runs on the model's thread, so several streams take turns there; a step is taken when the
part before it was sent, so a client that does not read has its generator wait and no other. A stream that nobody
waits for has its generator closed, which ends it at its last `yield`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from inspect import isgeneratorfunction
from typing import Any, cast

import numpy as np

from mark.domain.errors import Misconfigured
from mark.ports import InferRequest, PythonModel, StreamedReply
from mark.protocols.exchange import check_outputs, read_exchange, write_replies, zeros
from mark.protocols.oip.bodies import BadRequest, Tensors, error_reply
from mark.protocols.oip.generate import SSE_TYPE, STREAM_END, WHOLE_END, read_generate, write_event
from mark.serving.backends.answering import ModelFailed
from mark.serving.backends.python import PythonBackend
from mark.serving.backends.servers import whole

log = logging.getLogger(__name__)
LINES_TYPE = "application/x-ndjson"
"""Answers of the paths that are no stream by themselves: one document a line."""
NO_WHOLE = "the model answers in parts: post to generate_stream"


class PythonStreamBackend(PythonBackend):
    """Calls a `predict` that is a generator function, with the inputs of one request."""

    async def stream(self, request: InferRequest) -> StreamedReply:
        """Begin the answer: events for generate_stream, else lines of the documents that `predict` yields."""
        if request.path.endswith(WHOLE_END):
            return whole(error_reply(400, NO_WHOLE))
        try:
            inputs, write = await self._thread.run(self._read, request)
        except BadRequest as error:
            return whole(error_reply(error.status, str(error)))
        content_type = SSE_TYPE if request.path.endswith(STREAM_END) else LINES_TYPE
        return StreamedReply(200, content_type, _Steps(self, inputs, write))

    async def step(self, steps: Iterator[Tensors], write: Callable[[Tensors], bytes]) -> bytes | None:
        """The next part; None after the last. Errors: ModelFailed."""
        return await self._thread.run(self._step, steps, write)

    async def close_steps(self, steps: Iterator[Tensors]) -> None:
        """End a generator that nobody waits for."""
        await self._thread.run(_close, steps)

    def begin(self, inputs: Tensors) -> Iterator[Tensors]:
        """The model's generator for these inputs; it has done nothing yet."""
        assert self._model is not None, "start comes first"
        return cast("Iterator[Tensors]", self._model.predict(inputs))

    def _check(self, model: PythonModel) -> None:
        if not isgeneratorfunction(model.predict):
            raise Misconfigured(
                f"model {self._name!r} is to stream, and its predict yields nothing: write `yield` in it, or "
                "leave backend.streams out"
            )

    def _warm_up(self) -> None:
        steps = self.begin(zeros(self.inputs, 1))
        try:
            self._step(steps, lambda _: b"")
        except ModelFailed as error:
            log.warning("%s failed on zeros and was not warmed up: %s", self._name, error)
        finally:
            _close(steps)

    def _read(self, request: InferRequest) -> tuple[Tensors, Callable[[Tensors], bytes]]:
        """The inputs, and how a part of the answer is written. Errors: BadRequest."""
        name, version = self._name, self._version
        if request.path.endswith(STREAM_END):
            call = read_generate(request.body, self.inputs)
            return call.inputs, lambda outputs: write_event(name, version, outputs)
        exchange = read_exchange(request, name, self.inputs)

        def line(outputs: Tensors) -> bytes:
            reply = write_replies([exchange], outputs, version)[0]
            if reply.status != 200 or reply.header_length:
                text = reply.body.decode("utf-8", "replace")
                raise ValueError(text if reply.status != 200 else "binary outputs cannot stream; ask for JSON")
            return reply.body + b"\n"

        return exchange.inputs, line

    def _step(self, steps: Iterator[Tensors], write: Callable[[Tensors], bytes]) -> bytes | None:
        try:
            found: object = next(steps, None)
            if found is None:
                return None
            if not isinstance(found, Mapping):
                raise TypeError(f"predict yielded a {type(found).__name__}, not a mapping of names to arrays")  # noqa: TRY301 - as a model's own failure
            outputs = {name: np.asarray(value) for name, value in found.items()}
        except BaseException as error:  # a user's code may raise anything: its stream ends with it, and no other
            raise self._failed(error) from error
        try:
            check_outputs(outputs, self.outputs)
            return write(outputs)
        except ValueError as error:
            raise ModelFailed(f"the model's output is invalid: {error}") from error


class _Steps:
    """The parts of one answer: the model's generator, made at the first."""

    def __init__(self, backend: PythonStreamBackend, inputs: Tensors, write: Callable[[Tensors], bytes]) -> None:
        self._backend, self._write = backend, write
        self._steps = backend.begin(inputs)
        self._is_over = False

    def __aiter__(self) -> _Steps:
        return self

    async def __anext__(self) -> bytes:
        part = None if self._is_over else await self._backend.step(self._steps, self._write)
        if part is None:
            self._is_over = True
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        """Close the generator where it has not ended."""
        if not self._is_over:
            await self._backend.close_steps(self._steps)


def _close(steps: Iterator[Any]) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        with suppress(BaseException):  # a generator that does not want to end is left behind
            close()
