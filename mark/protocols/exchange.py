"""One request and its answer, whichever protocol the client speaks: what agents and the Lambda handler share.

The path says which: SageMaker's `/invocations` and `/endpoints/...`, or else Open Inference Protocol v2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mark.domain.load.traffic import is_rejection
from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols.model_contract import output_mistakes
from mark.protocols.oip.bodies import (
    DTYPES,
    BadRequest,
    InferCall,
    Tensors,
    check_inputs,
    error_reply,
    overflowing,
    read_infer,
)
from mark.protocols.oip.replies import MODEL_VERSION, ReplyWriter, compose_infer_reply
from mark.protocols.sagemaker import compose_predictions, parse_invocation

SAGEMAKER_PATHS = ("/invocations", "/endpoints/")
Kind = frozenset[tuple[str, np.dtype[Any], tuple[int, ...]]]
"""Names, element types and shapes of a request's inputs, but for the rows: those alike may share a call."""
_Forms = dict[tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...], tuple[int, Kind]]
WITHOUT_BODY = (204, 205, 304)
MAX_TYPE_BYTES = 255


class Exchange(NamedTuple):
    """A request that was understood, the rows of its inputs, with which it may be put together, and who asks."""

    model: str
    request: InferRequest
    call: InferCall
    rows: int
    kind: Kind
    sagemaker: bool = False

    @property
    def inputs(self) -> Tensors:
        """The arrays that the model is given."""
        return self.call.inputs

    def reply(self, outputs: Tensors, version: str = MODEL_VERSION) -> InferReply:
        """The answer, of outputs that are this request's alone. Errors: BadRequest."""
        if self.sagemaker:
            return compose_predictions(
                outputs, asked=self.request, call=self.call, model=self.model, version=version
            )
        return compose_infer_reply(self.model, outputs, self.call, version)


def read_exchange(request: InferRequest, model: str, inputs: Sequence[TensorSpec]) -> Exchange:
    """Understand a request for `model`, which takes `inputs` (none: whatever comes). Errors: BadRequest."""
    with overflowing():
        return _read(request, model, inputs, {})


def read_exchanges(
    requests: Sequence[InferRequest], model: str, inputs: Sequence[TensorSpec]
) -> list[Exchange | BadRequest]:
    """Parse each request of a batch; an invalid one gives its error in its place."""
    found: list[Exchange | BadRequest] = []
    forms: _Forms = {}
    with overflowing():
        for request in requests:
            try:
                found.append(_read(request, model, inputs, forms))
            except BadRequest as error:
                found.append(BadRequest(str(error), error.status))  # with a traceback it would keep arrays
    return found


def _read(request: InferRequest, model: str, inputs: Sequence[TensorSpec], forms: _Forms) -> Exchange:
    """forms: those that were checked already, with their rows and kind."""
    sagemaker = request.path.startswith(SAGEMAKER_PATHS)
    try:
        call = parse_invocation(request, inputs) if sagemaker else read_infer(request.body, request.header_length)
    except MemoryError:
        raise too_large() from None
    form = tuple([(name, array.dtype, array.shape) for name, array in call.inputs.items()])
    checked = forms.get(form)
    if checked is None:
        if inputs:
            check_inputs(call.inputs, inputs)
        checked = forms[form] = row_count(call.inputs), kind_of(call.inputs)
    return Exchange(model, request, call, *checked, sagemaker)


def refused_by_model(error: BaseException) -> BadRequest | None:
    """The error of a request that its model declares wrong by raising it; None for any other exception.

    A status that blames the service is none that a model may give to its client.
    """
    return error if isinstance(error, BadRequest) and is_rejection(error.status) else None


def too_large() -> BadRequest:
    """The error of a request for which memory does not suffice: its own, whoever shares its batch."""
    return BadRequest("the request needs more memory than the instance has; send less at a time", 413)


def write_replies(
    exchanges: Sequence[Exchange], outputs: Tensors, version: str = MODEL_VERSION
) -> list[InferReply]:
    """The answers, of outputs that hold the rows of all, one after another.

    Errors: ValueError if they do not, or cannot be written.
    """
    total = sum(exchange.rows for exchange in exchanges)
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != total:
            raise ValueError(f"output {name!r} has shape {list(array.shape)} for a batch of {total}")
    writer, replies, end = ReplyWriter(exchanges[0].model, outputs, version), [], 0
    for exchange in exchanges:
        start, end = end, end + exchange.rows
        try:
            if exchange.sagemaker:
                own = {name: array[start:end] for name, array in outputs.items()}
                replies.append(exchange.reply(own, version))
            else:
                replies.append(writer.reply(exchange.call, start, end))
        except BadRequest as error:
            replies.append(error_reply(error.status, str(error)))
        except TypeError as error:  # values that JSON has no words for
            raise ValueError(str(error)) from error
    return replies


def check_outputs(outputs: Tensors, specs: Sequence[TensorSpec]) -> None:
    """Hold a model's outputs to what it declares: names, types, sizes. Errors: ValueError, which names them.

    Without specs nothing is declared. The first dimension is left to `write_replies`, which knows the rows.
    """
    if specs and (mistakes := output_mistakes(outputs, specs, None)):
        raise ValueError("; ".join(mistakes))


def row_count(tensors: Tensors) -> int:
    """Items in a request: the first dimension, which all its tensors share. Errors: BadRequest."""
    rows = {array.shape[0] if array.ndim else 0 for array in tensors.values()}
    if len(rows) != 1 or 0 in rows:
        shapes = {name: list(array.shape) for name, array in tensors.items()}
        raise BadRequest(f"all inputs need the same first dimension, of 1 at least; their shapes: {shapes}")
    return rows.pop()


def kind_of(tensors: Tensors) -> Kind:
    """The key by which requests may be merged along their rows."""
    return frozenset([(name, array.dtype, array.shape[1:]) for name, array in tensors.items()])


def zeros(outputs: Sequence[TensorSpec], rows: int) -> Tensors:
    """Outputs of an emulated model: zeros (empty texts), one element where a further size is free."""
    return {
        spec.name: np.full(
            (rows, *(1 if size == -1 else size for size in spec.shape[1:])),
            b"" if spec.datatype == "BYTES" else 0,
            dtype=DTYPES[spec.datatype],
        )
        for spec in outputs
    }


def valid_reply(reply: InferReply) -> InferReply:
    """The model's answer, if HTTP and frames can carry it; else a bad gateway's 502."""
    if not 200 <= reply.status <= 599:
        return error_reply(502, f"the model answered with status {reply.status}")
    if not is_content_type(reply.content_type):
        return error_reply(502, "the model answered with an invalid content type")
    if not 0 <= reply.header_length <= len(reply.body):
        return error_reply(502, "the model answered with a body shorter than its header length")
    return reply._replace(body=b"", header_length=0) if reply.status in WITHOUT_BODY else reply


def is_content_type(kind: str) -> bool:
    """True where HTTP and frames can carry it as a content type."""
    return len(kind) <= MAX_TYPE_BYTES and kind.isascii() and kind.isprintable()
