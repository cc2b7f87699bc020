"""`mark predict`: a call of a model in Python without a service: outputs, time, what differs from its specs."""

from __future__ import annotations

import base64
import io
import json
import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.text import Text

from mark.config.settings import Settings
from mark.domain.documents import json_text, plain_number
from mark.domain.errors import Misconfigured, file_errors
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.own_packages import with_packages_of
from mark.offline.own_model.streams import Part, parts_of, streams
from mark.offline.own_model.targets import TriedModel, existing_source, tried_model
from mark.offline.own_model.try_model import Tried, try_model
from mark.plugins.load import make_model
from mark.ports import InferRequest, PythonModel
from mark.protocols.exchange import read_exchange, row_count, zeros
from mark.protocols.model_contract import class_mistakes
from mark.protocols.oip.bodies import DTYPES, JSON_TYPE, BadRequest, Tensors, check_inputs
from mark.protocols.sagemaker_media import CSV_TYPE
from mark.report.tables import make_table, texts
from mark.report.terminal import note, show, show_json

DIFFERS = 1
"""Exit status where the outputs differ from what the model declares."""
SHOWN = 400
"""Characters of a tensor that are shown; --json has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """Flags of `mark predict`. file, data: its input; else zeros, or drawn ones, of `rows` items."""

    model: str | None
    target: str | None
    file: Path | None
    data: str | None
    rows: int
    random: bool
    seed: int


def predict_once(settings: Settings, options: PredictOptions, *, as_json: bool) -> None:
    """Call the model and print what came. typer.Exit(1) where outputs differ from what the model declares."""
    if options.rows < 1:
        raise Misconfigured(f"--rows must be 1 or more, not {options.rows}")
    chosen = tried_model(settings, model=options.model, target=options.target, kind="python")
    if chosen.kind != "python":
        raise Misconfigured(
            f"{chosen.name} is at {chosen.target}: ask that server; predict calls models in Python"
        )
    existing_source(chosen.target, chosen.folder)
    with_packages_of(chosen)
    with redirect_stdout(sys.stderr):  # stdout is for what predict returns
        model = make_model(chosen.target, chosen.folder)
    if mistakes := class_mistakes(model):
        raise Misconfigured(f"model {chosen.target!r}: {'; '.join(mistakes)}")
    specs = tuple(model.inputs)
    inputs = given_inputs(options.file, options.data, chosen.name, specs)
    if inputs is None:
        inputs = drawn(specs, options.rows, options.seed) if options.random else zeros(specs, options.rows)
    if streams(model):
        mistakes = _stream_once(chosen, model, inputs, as_json=as_json)
    else:
        tried = try_model(model, inputs)
        mistakes = tried.mistakes
        if as_json:
            show_json(_document(chosen, tried))
        else:
            _show(chosen, tried)
    for text in mistakes:
        note(f"{chosen.name} answers other than it declares: {text}")
    if mistakes:
        raise typer.Exit(DIFFERS)
    if not as_json:
        show("outputs are as declared")


def _stream_once(chosen: TriedModel, model: PythonModel, inputs: Tensors, *, as_json: bool) -> tuple[str, ...]:
    """Print the parts as they come; the ways in which they differ from what the model declares."""
    parts: list[Part] = []
    if not as_json:
        show(f"{chosen.name} ({chosen.target}), a stream:")
    for part in parts_of(model, inputs):
        parts.append(part)
        if not as_json:
            values = ", ".join(f"{name} {_values(array)}" for name, array in part.outputs.items())
            show(Text(f"{call_ms(part.at_s):>10}  {values}"))
    if not parts:
        raise Misconfigured("the model yields nothing for this input; give another with --data or --input")
    if as_json:
        show_json(_stream_document(chosen, inputs, parts))
    else:
        show(f"first part after {call_ms(parts[0].at_s)}, all {len(parts)} after {call_ms(parts[-1].at_s)}")
    return _mistakes(parts)


def _mistakes(parts: Sequence[Part]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(mistake for part in parts for mistake in part.mistakes))


def given_inputs(file: Path | None, data: str | None, name: str, specs: tuple[TensorSpec, ...]) -> Tensors | None:
    """The inputs that `--input` or `--data` give, checked as a request's are; None without either."""
    if file is not None and data is not None:
        raise Misconfigured("give --input or --data, not both")
    if file is None and data is None:
        return None
    where = "--data" if file is None else str(file)
    try:
        inputs = _from_json((data or "").encode(), name, specs) if file is None else _from_file(file, name, specs)
        check_inputs(inputs, specs)
        row_count(inputs)
    except BadRequest as error:
        raise Misconfigured(f"{where}: {error}") from error
    return inputs


def _from_file(path: Path, name: str, specs: tuple[TensorSpec, ...]) -> Tensors:
    with file_errors(f"read {path}"):
        body = path.read_bytes()
    match path.suffix.lower():
        case ".npy" | ".npz":
            return _from_numpy(body, specs)
        case ".csv":
            request = InferRequest(path="/invocations", content_type=CSV_TYPE, body=body)
            return read_exchange(request, name, specs).inputs
        case ".json":
            return _from_json(body, name, specs)
        case other:
            raise Misconfigured(
                f"{path}: an input is a .json, .csv, .npy or .npz file, not {other or 'one without'}"
            )


def _from_json(body: bytes, name: str, specs: tuple[TensorSpec, ...]) -> Tensors:
    """A request's body in either protocol, an object of values by input, or the values of the only input."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"it is not JSON: {error}") from error
    declared = {spec.name: spec for spec in specs}
    if isinstance(document, dict) and not declared.keys() >= document.keys():
        request = InferRequest(path="/invocations", content_type=JSON_TYPE, body=body)
        if "instances" in document or "inputs" in document:
            return read_exchange(request, name, specs).inputs
    if not isinstance(document, dict):
        if len(specs) != 1:
            raise BadRequest(f"the model has {len(specs)} inputs: give an object of {', '.join(declared)}")
        document = {specs[0].name: document}
    return {key: _array(value, declared.get(key)) for key, value in document.items()}


def _array(value: object, spec: TensorSpec | None) -> NDArray[Any]:
    try:
        if spec is not None and spec.datatype == "BYTES":
            texts = np.array(value, dtype=object)
            for place in np.ndindex(texts.shape):
                text: Any = texts[place]
                texts[place] = text.encode() if isinstance(text, str) else text
            return texts
        found = np.array(value)
        wanted = found.dtype if spec is None else DTYPES[spec.datatype]
        made = found.astype(wanted)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(f"values of {spec.name if spec else 'an input'} make no array: {error}") from error
    if wanted.kind in "iu" and found.dtype.kind == "f" and not np.array_equal(made, found):
        raise BadRequest(f"values of {spec.name if spec else 'an input'} are not whole: the service refuses them")
    return made


def _from_numpy(body: bytes, specs: tuple[TensorSpec, ...]) -> Tensors:
    try:
        loaded = np.load(io.BytesIO(body), allow_pickle=False)
        several = hasattr(loaded, "files")
        arrays = {name: loaded[name] for name in loaded.files} if several else {specs[0].name: loaded}
    except (ValueError, OSError, EOFError) as error:
        raise BadRequest(f"it is not a NumPy file: {error}") from error
    declared = {spec.name: DTYPES[spec.datatype] for spec in specs}
    return {
        name: array.astype(declared[name])
        if name in declared and np.can_cast(array.dtype, declared[name], "same_kind")
        else array
        for name, array in arrays.items()
    }


def drawn(specs: tuple[TensorSpec, ...], rows: int, seed: int) -> Tensors:
    """Inputs drawn from a seed: normal numbers, whole ones below 10, truth values, short texts."""
    rng = np.random.default_rng(seed)
    found: dict[str, NDArray[Any]] = {}
    for spec in specs:
        shape = (rows, *(1 if size == -1 else size for size in spec.shape[1:]))
        dtype = DTYPES[spec.datatype]
        if dtype.kind == "O":
            found[spec.name] = np.full(shape, b"text", dtype=dtype)
        elif dtype.kind == "f":
            found[spec.name] = rng.standard_normal(shape).astype(dtype)
        else:
            found[spec.name] = rng.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)
    return found


def _document(chosen: TriedModel, tried: Tried) -> dict[str, object]:
    """The document of `mark predict --json` (docs/json.md)."""
    return {
        "model": chosen.name,
        "target": chosen.target,
        "inputs": _tensors(tried.inputs),
        "outputs": _tensors(tried.outputs),
        "first_ms": tried.first_s * 1000,
        "median_ms": tried.median_s * 1000,
        "calls": tried.calls,
        "mistakes": list(tried.mistakes),
    }


def _stream_document(chosen: TriedModel, inputs: Tensors, parts: Sequence[Part]) -> dict[str, object]:
    """The document of `mark predict --json` for a stream (docs/json.md)."""
    return {
        "model": chosen.name,
        "target": chosen.target,
        "inputs": _tensors(inputs),
        "parts": [{"at_ms": part.at_s * 1000, "outputs": _tensors(part.outputs)} for part in parts],
        "first_ms": parts[0].at_s * 1000,
        "whole_ms": parts[-1].at_s * 1000,
        "mistakes": list(_mistakes(parts)),
    }


def _tensors(tensors: Tensors) -> dict[str, object]:
    """Names to type, shape and values; what JSON has no number for is null, bytes that are no text are base64."""
    return {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "data": _listed(array.tolist())}
        for name, array in tensors.items()
    }


def _listed(value: object) -> object:
    if isinstance(value, list):
        return [_listed(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        text = _utf8(value)
        return {"base64": base64.b64encode(value).decode()} if text is None else text
    return plain_number(value)


def _utf8(value: bytes) -> str | None:
    """The text, None where it is no UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _element(value: object) -> str:
    """An element of a tensor of texts as JSON, so that no control character reaches the terminal."""
    listed = _listed(value)
    if isinstance(listed, str):
        plain = (c if c.isprintable() and c not in '"\\' else json_text(c)[1:-1] for c in listed)
        return f'"{"".join(plain)}"'
    return json_text(listed) if isinstance(listed, dict) else str(listed)


def _values(array: NDArray[Any]) -> str:
    """The first of a tensor's values and the last ones."""
    texts: Any = {"all": _element} if array.dtype.kind in "OSU" else None
    text = np.array2string(array, threshold=16, precision=4, separator=", ", formatter=texts)
    return text.replace("\n", "")[:SHOWN]


def call_ms(seconds: float) -> str:
    """Three digits below a second, whole milliseconds above: never an exponent."""
    return f"{seconds * 1000:,.0f} ms" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _show(chosen: TriedModel, tried: Tried) -> None:
    table = make_table(texts("", "name", "type", "shape", "values"))
    for kind, tensors in (("input", tried.inputs), ("output", tried.outputs)):
        for name, array in tensors.items():
            table.add_row(kind, Text(name), str(array.dtype), str(list(array.shape)), Text(_values(array)))
    rows, more = row_count(tried.inputs), tried.calls - 1
    then = f", then {call_ms(tried.median_s)} (median of {more} call{'s' if more > 1 else ''})" if more else ""
    show(
        f"{chosen.name} ({chosen.target}), a batch of {rows}: first call {call_ms(tried.first_s)}{then}",
        table,
    )
    if tried.failed:
        note(f"{tried.failed} of {tried.calls + tried.failed} calls failed")
