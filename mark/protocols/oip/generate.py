"""Triton's generate extension: flat JSON in, Server-Sent Events out.

A request is `{"text_input": "..."}`: each input by its name, with one value or a list. An event is
`data: {"model_name": ..., "text_output": "..."}`. Further keys `id` and `parameters` are taken and not read.
Source: https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_generate.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mark.domain.tensor import TensorSpec
from mark.protocols.json_values import listed
from mark.protocols.oip.bodies import (
    BadRequest,
    InferCall,
    Tensors,
    call_of,
    check_inputs,
    dump_json,
    load_json,
    text_of,
)

STREAM_END, WHOLE_END = "/generate_stream", "/generate"
"""Ends of paths."""
SSE_TYPE = "text/event-stream"
_BESIDE = ("id", "parameters")


def read_generate(body: bytes, inputs: Sequence[TensorSpec]) -> InferCall:
    """Understand a request for a model that takes `inputs`, as one item. Errors: BadRequest."""
    document = load_json(body)
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object with each input by its name")
    known = {spec.name for spec in inputs}
    if unknown := [name for name in document if name not in known and name not in _BESIDE]:
        raise BadRequest(f"unknown input {unknown[0]!r}; the model takes {', '.join(sorted(known))}")
    if lacking := sorted(known - document.keys()):
        raise BadRequest(f"the input {lacking[0]!r} is missing")
    call = call_of({"inputs": [_tensor(spec, document[spec.name]) for spec in inputs]})
    check_inputs(call.inputs, inputs)
    return call


def write_event(model: str, version: str, outputs: Tensors) -> bytes:
    """One part of the answer as an event. outputs: of one item each. Errors: ValueError where they have more."""
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != 1:
            raise ValueError(f"output {name!r} has shape {list(array.shape)}, not one item")
        flat = array.reshape(-1)
        values = [text_of(value) for value in flat.tolist()] if array.dtype.kind in "OSU" else listed(flat)
        document[name] = values[0] if len(values) == 1 else values
    return b"data: " + dump_json(document) + b"\n\n"


def _tensor(spec: TensorSpec, value: object) -> dict[str, Any]:
    """The input as a tensor of one item; a free size takes what is left."""
    data = value if isinstance(value, list) else [value]
    sizes = spec.shape[1:]
    fixed = math.prod(size for size in sizes if size != -1)
    free = sizes.count(-1)
    left = len(data) // fixed if free == 1 and fixed else 1
    shape = [1, *(left if size == -1 else size for size in sizes)]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": data}
