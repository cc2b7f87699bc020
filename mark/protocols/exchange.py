"""One request and its answer, whichever protocol the client speaks: what agents and the Lambda handler share.

The path says which: SageMaker's `/invocations` and `/endpoints/...`, or else Open Inference Protocol v2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols.oip import (
    DTYPES,
    BadRequest,
    Tensors,
    check_inputs,
    compose_infer_reply,
    error_reply,
    parse_infer,
)
from mark.protocols.sagemaker import compose_predictions, parse_invocation

SAGEMAKER_PATHS = ("/invocations", "/endpoints/")
WITHOUT_BODY = (204, 205, 304)
MAX_TYPE_BYTES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request that was understood: its inputs, their rows, and how its outputs become an answer."""

    inputs: Tensors
    rows: int
    reply: Callable[[Tensors], InferReply]


def read_exchange(request: InferRequest, model: str, inputs: Sequence[TensorSpec]) -> Exchange:
    """Understand a request for `model`, which takes `inputs` (none: whatever comes). Errors: BadRequest."""
    sagemaker = request.path.startswith(SAGEMAKER_PATHS)
    call = parse_invocation(request, inputs) if sagemaker else parse_infer(request.body, request.header_length)
    if inputs:
        check_inputs(call.inputs, inputs)

    def reply(outputs: Tensors) -> InferReply:
        if sagemaker:
            return compose_predictions(outputs, asked=request, call=call, model=model)
        return compose_infer_reply(model, outputs, call)

    # Binary tensors are read-only views of the body, which torch warns of: a model gets arrays of its own.
    inputs_of_its_own = {name: a if a.flags.writeable else a.copy() for name, a in call.inputs.items()}
    return Exchange(inputs=inputs_of_its_own, rows=row_count(call.inputs), reply=reply)


def row_count(tensors: Tensors) -> int:
    """Items in a request: the first dimension, which all its tensors share. Errors: BadRequest."""
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in tensors.items()}
    if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
        raise BadRequest(f"all inputs need the same first dimension, of 1 at least, not {counts}")
    return next(iter(counts.values()))


def zeros(outputs: Sequence[TensorSpec], rows: int) -> Tensors:
    """What an emulated model answers: zeros (empty texts), one element where a further size is free."""
    return {
        spec.name: np.full(
            (rows, *(1 if size == -1 else size for size in spec.shape[1:])),
            b"" if spec.datatype == "BYTES" else 0,
            dtype=DTYPES[spec.datatype],
        )
        for spec in outputs
    }


def sound_reply(reply: InferReply) -> InferReply:
    """The model's answer, if HTTP and frames can carry it; else a bad gateway's 502."""
    kind = reply.content_type
    if not 200 <= reply.status <= 599:
        return error_reply(502, f"the model answered with status {reply.status}")
    if len(kind) > MAX_TYPE_BYTES or not (kind.isascii() and kind.isprintable()):
        return error_reply(502, "the model answered with a content type that is none")
    if not 0 <= reply.header_length <= len(reply.body):
        return error_reply(502, "the model answered with less than its header's length")
    return replace(reply, body=b"", header_length=0) if reply.status in WITHOUT_BODY else reply
