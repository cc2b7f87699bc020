"""Traces that are not recorded here: the headers pass to whoever is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

from mark.ports import InferRequest, Trace
from mark.protocols.trace_context import TraceContext, parse_carried

_UNTRACED: AbstractContextManager[Mapping[str, str]] = nullcontext({})


class PassedOn:
    """A trace context that came with a request and goes on as it came."""

    __slots__ = ("headers",)

    is_recorded = False

    def __init__(self, context: TraceContext) -> None:
        self.headers = context.headers

    def call(self, *, remote: bool = False) -> AbstractContextManager[Mapping[str, str]]:  # noqa: ARG002 the port's
        """The headers for a call of the model."""
        return nullcontext(self.headers)


def passed_on(field: bytes) -> Trace | None:
    """The trace that a frame carries, to be passed on; None where it cannot be read."""
    context = parse_carried(field)
    return None if context is None else PassedOn(context)


def trace_of(batch: Iterable[InferRequest]) -> Trace | None:
    """The trace that a call for all of these belongs to: the first that is recorded, else the first there is."""
    found = None
    for request in batch:
        if request.trace is not None:
            if request.trace.is_recorded:
                return request.trace
            found = found or request.trace
    return found


def model_call(trace: Trace | None, *, remote: bool = False) -> AbstractContextManager[Mapping[str, str]]:
    """A call of the model within that trace: gives the headers that say so. remote: of a server of its own."""
    return _UNTRACED if trace is None else trace.call(remote=remote)
