"""A model whose `predict` yields: a stream is tried part by part, and measured as whole answers that run at once.

A profile's time of `n` is how long a whole answer takes while `n` run at once, as an agent runs them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from inspect import isgeneratorfunction
from typing import Any

import numpy as np

from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.try_model import Tried, goes_on, model_failure
from mark.ports import InferReply, InferRequest, PythonModel
from mark.protocols.exchange import row_count
from mark.protocols.model_contract import output_mistakes
from mark.protocols.oip.bodies import Tensors, error_reply
from mark.report.terminal import unheard
from mark.serving.backends.answering import ModelFailed
from mark.serving.backends.python_streams import PythonStreamBackend


def streams(model: object) -> bool:
    """True for a model, or a class of models, that yields its answers."""
    return isgeneratorfunction(getattr(model, "predict", None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of an answer: when it came, in seconds after the call, and how it differs from what is declared."""

    outputs: Tensors
    at_s: float
    mistakes: tuple[str, ...]


def parts_of(model: PythonModel, inputs: Tensors) -> Iterator[Part]:
    """The parts as they come. Errors: Misconfigured where the model fails."""
    began = time.perf_counter()
    steps: Any = model.predict(inputs)
    while True:
        try:
            with redirect_stdout(sys.stderr):  # stdout is for what the model yields
                found = next(steps, None)
        except (Exception, SystemExit) as error:  # a user's code may raise anything; the cause is chained
            raise model_failure(error) from error
        at_s = time.perf_counter() - began
        if found is None:
            return
        mistakes = output_mistakes(found, tuple(model.outputs), row_count(inputs))
        if not isinstance(found, Mapping):
            raise Misconfigured("; ".join(mistakes).replace("returns", "yields"))
        outputs = {str(name): np.asarray(value) for name, value in found.items()}
        yield Part(outputs=outputs, at_s=at_s, mistakes=mistakes)


def try_stream(model: PythonModel, inputs: Tensors) -> Tried:
    """Call the model some times. Misconfigured where it fails, or yields nothing."""
    firsts: list[float] = []
    wholes: list[float] = []
    mistakes: dict[str, None] = {}
    outputs: Tensors = {}
    began = time.perf_counter()
    with unheard():
        while not wholes or goes_on(len(wholes), time.perf_counter() - began):
            parts = list(parts_of(model, inputs))
            if not parts:
                raise Misconfigured("the model yields nothing")
            firsts.append(parts[0].at_s)
            wholes.append(parts[-1].at_s)
            mistakes |= dict.fromkeys(mistake for part in parts for mistake in part.mistakes)
            outputs = parts[-1].outputs
    return Tried(
        inputs=inputs,
        outputs=outputs,
        first_s=firsts[0],
        median_s=float(np.median(firsts)),
        fastest_s=min(firsts),
        calls=len(wholes),
        mistakes=tuple(mistakes),
        whole_s=float(np.median(wholes)),
    )


@dataclass(slots=True)
class StreamsAtOnce:
    """A streaming backend as one of batches: a batch is as many streams at once, each to its end."""

    backend: PythonStreamBackend
    #: Seconds to a first part, by how many streams ran at once.
    first_s: dict[int, list[float]] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's, once it started."""
        return self.backend.inputs

    def first_parts_s(self) -> dict[int, float]:
        """The medians of these seconds."""
        return {number: float(np.median(taken)) for number, taken in self.first_s.items()}

    async def start(self) -> None:
        """Start the backend."""
        await self.backend.start()

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """Read all answers to their ends."""
        return await asyncio.gather(*(self._whole(request, len(batch)) for request in batch))

    async def close(self) -> None:
        """Close the backend."""
        await self.backend.close()

    async def _whole(self, request: InferRequest, number: int) -> InferReply:
        began = time.perf_counter()
        reply = await self.backend.stream(request)
        body = b""
        try:
            async for part in reply.parts:
                if not body and reply.status == 200:
                    self.first_s.setdefault(number, []).append(time.perf_counter() - began)
                body += part
        except ModelFailed as error:
            return error_reply(error.status, str(error))
        finally:
            await reply.parts.aclose()
        if not body:
            return error_reply(500, "the model yields nothing for this request")
        return InferReply(status=reply.status, content_type=reply.content_type, body=body)
