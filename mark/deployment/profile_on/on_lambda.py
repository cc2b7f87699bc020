"""A model on Lambda as a backend that can be measured: one call a request, as gateways make it."""

from __future__ import annotations

from collections.abc import Sequence

from mark.aws.functions.overflow import LONGEST_S, LambdaOverflow
from mark.aws.session import Aws
from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest


class LambdaBackend:
    """The Backend port on a function of the service; `inputs` are what the model takes."""

    def __init__(self, aws: Aws, function: str, inputs: Sequence[TensorSpec]) -> None:
        self.inputs = tuple(inputs)
        self._function = function
        self._overflow = LambdaOverflow(aws, concurrency=1)

    async def start(self) -> None:
        """A function is there or its first call says that it is not."""

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """One call after another."""
        return [(await self._overflow.invoke(self._function, request, LONGEST_S)).reply for request in batch]

    async def close(self) -> None:
        """Take no more calls."""
        self._overflow.close()
