"""A model in an ONNX file: the file says its inputs, outputs and types; onnxruntime answers on one CPU thread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.extras import require_extra
from mark.offline.own_model.wrapper import Way, Wrapper, literal, wrapper_name
from mark.report.terminal import note

TYPES = {
    "float": "FP32",
    "double": "FP64",
    "float16": "FP16",
    "bool": "BOOL",
    "string": "BYTES",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""ONNX's element types by OIP's."""
TOO_NEW = re.compile(
    r"Unsupported model IR version: \d+, max supported IR version: \d+|Opset \d+ is under development"
)
QUIET = 4
"""Severity from which onnxruntime logs: what it refuses is told once, by the error."""


def onnx_wrapper(path: Path) -> Wrapper:
    """The class around the file. Misconfigured where onnxruntime is missing, or cannot run it by batches."""
    require_extra("onnx", f"{path.name}")
    session = _session(path)
    inputs = _specs(session.get_inputs(), path, "input")
    outputs = _specs(session.get_outputs(), path, "output")
    by_item = 1 in {spec.shape[0] for spec in inputs}
    if fixed := [spec for spec in inputs if spec.shape[0] not in (-1, 1)]:
        raise Misconfigured(
            f"{path}: input {fixed[0].name!r} has a fixed batch of {fixed[0].shape[0]}: export it with a dynamic "
            "first dimension"
        )
    return Wrapper(
        about=f"The model in {path.name}.",
        name=wrapper_name(path.stem),
        imports=(
            "from pathlib import Path\n",
            *(("import numpy as np",) if by_item or any(spec.datatype == "BYTES" for spec in inputs) else ()),
            "import onnxruntime",
        ),
        inputs=tuple(_any_batch(spec) for spec in inputs),
        outputs=tuple(_any_batch(spec) for spec in outputs),
        load=(
            "options = onnxruntime.SessionOptions()",
            "options.intra_op_num_threads = 1",
            f"file = Path(__file__).with_name({literal(path.name)})",
            'self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])',
        ),
        predict=_lines(inputs, outputs, by_item=by_item),
        remark=Way.ITEM if by_item else Way.BATCH,
    )


def _session(path: Path) -> Any:
    runtime: Any = import_module("onnxruntime")
    runtime.set_default_logger_severity(QUIET)
    try:
        return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common class but this
        text = " ".join(str(error).split())
        if newer := TOO_NEW.search(text):
            raise Misconfigured(
                f"{path} is newer than onnxruntime {runtime.__version__} ({newer[0]}): install a newer "
                "onnxruntime, or export with an older opset and IR version"
            ) from error
        raise Misconfigured(f"onnxruntime {runtime.__version__} cannot load {path}: {text[:300]}") from error


def _specs(values: Sequence[Any], path: Path, what: str) -> tuple[TensorSpec, ...]:
    """Specs of what the file declares; outputs that are no tensors are left out, with a note."""
    found = []
    for value in values:
        element = re.fullmatch(r"tensor\((\w+)\)", value.type)
        datatype = TYPES.get(element[1]) if element else None
        shape = tuple(size if isinstance(size, int) else -1 for size in value.shape or ())
        if datatype is not None and shape:
            found.append(TensorSpec(name=value.name, datatype=datatype, shape=shape))
        elif what == "input":
            raise Misconfigured(
                f"{path}: input {value.name!r} is a {value.type} of shape {list(shape)}: MArk takes tensors of "
                "numbers or texts whose first dimension is the batch"
            )
        else:
            note(f"{path}: output {value.name!r} is left out: it is a {value.type}, no batch of numbers or texts")
    if not found:
        raise Misconfigured(f"{path} has no {what} that is a tensor with a batch")
    return tuple(found)


def _any_batch(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(name=spec.name, datatype=spec.datatype, shape=(-1, *spec.shape[1:]))


def _lines(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *, by_item: bool) -> tuple[str, ...]:
    texts = [literal(spec.name) for spec in inputs if spec.datatype == "BYTES"]
    lines = (
        f"names = [{', '.join(literal(spec.name) for spec in outputs)}]",
        "tensors = dict(tensors)",
        *(f"tensors[{text}] = np.vectorize(bytes.decode, otypes=[object])(tensors[{text}])" for text in texts),
    )
    if not by_item:
        return (*lines, "return dict(zip(names, self.session.run(names, tensors), strict=True))")
    return (
        *lines,
        f"rows = range(len(tensors[{literal(inputs[0].name)}]))",
        "items = [{name: array[row : row + 1] for name, array in tensors.items()} for row in rows]",
        "answers = zip(*(self.session.run(names, item) for item in items), strict=True)",
        "return {name: np.concatenate(parts) for name, parts in zip(names, answers, strict=True)}",
    )
