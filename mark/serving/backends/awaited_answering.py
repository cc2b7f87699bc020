"""Answers of a model that one waits for, on the event loop (`answering.py`)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols.oip.bodies import Tensors
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.answering import ModelFailed, answering
from mark.serving.backends.model_thread import ModelThread

ASIDE_BYTES = 64 * 1024
"""A batch with larger bodies is read on a thread: smaller ones take less time than going there and back."""
_Turn = tuple[Tensors | None, list[InferReply]]


async def answer_async(
    requests: Sequence[InferRequest],
    model: str,
    inputs: Sequence[TensorSpec],
    call: Callable[[Tensors], Awaitable[Tensors]],
    version: str = MODEL_VERSION,
) -> list[InferReply]:
    """Answer with a model that one waits for, on the event loop. `call` may raise ModelFailed.

    Large bodies are read, and their answers written, on a thread: the loop has other requests to look after.
    """
    steps = answering(requests, model, inputs, version=version)
    large = sum(len(request.body) for request in requests) > ASIDE_BYTES
    thread = ModelThread(f"large-{model}") if large else None
    turn: Callable[[], _Turn] = functools.partial(_turn, next, steps)
    try:
        while True:
            tensors, replies = await thread.run(turn) if thread is not None else turn()
            if tensors is None:
                return replies
            try:
                found = await call(tensors)
            except ModelFailed as error:
                turn = functools.partial(_turn, steps.throw, error)
            else:
                turn = functools.partial(_turn, steps.send, found)
    finally:
        if thread is not None:
            thread.end()


def _turn(step: Callable[[Any], Tensors], sent: object) -> _Turn:
    """The tensors of the next call, or None and the replies: no thread's future can carry StopIteration."""
    try:
        return step(sent), []
    except StopIteration as done:
        return None, done.value
