"""Media types of SageMaker's invocations: which one an answer has, and how JSON lines are read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

from mark.ports import InferRequest
from mark.protocols.accept import accept_weights
from mark.protocols.oip import bodies as oip

CSV_TYPE = "text/csv"
JSON_LINES_TYPE = "application/jsonlines"
JSON_LINES_TYPES = (JSON_LINES_TYPE, "application/x-jsonlines", "application/jsonl", "application/x-ndjson")
_ALIASES = dict.fromkeys(JSON_LINES_TYPES, JSON_LINES_TYPE)
_OFFERED = (oip.JSON_TYPE, CSV_TYPE, JSON_LINES_TYPE)
FEATURES = "features"
"""The name of a line's only input in SageMaker's own algorithms."""
_LINE_ENDS = re.compile(rb"\s*\n\s*")


def media_type(value: str) -> str:
    """The media type of a Content-Type header, without its parameters."""
    kind = value.partition(";")[0].strip().lower()
    return _ALIASES.get(kind, kind)


def is_open_inference(asked: InferRequest) -> bool:
    """True where a parsed request has an Open Inference body."""
    if media_type(asked.content_type) in (CSV_TYPE, JSON_LINES_TYPE):
        return False
    return bool(asked.header_length) or not (asked.body.lstrip()[:1] == b"[" or b'"instances"' in asked.body)


def answer_type(asked: InferRequest) -> str:
    """The answer's media type: what the client accepts best, its own request's where it has no preference.

    Errors: BadRequest of status 406 where nothing that it accepts is offered.
    """
    own = media_type(asked.content_type)
    default = own if own in (CSV_TYPE, JSON_LINES_TYPE) else oip.JSON_TYPE
    if not asked.accept.strip():
        return default
    weights = {_ALIASES.get(kind, kind): weight for kind, weight in accept_weights(asked.accept).items()}
    if oip.BINARY_TYPE in weights and is_open_inference(asked):
        return default
    best = max((default, *_OFFERED), key=lambda kind: _weight_of(kind, weights))
    if _weight_of(best, weights) <= 0:
        raise oip.BadRequest(f"nothing accepted of {asked.accept[:80]!r} is offered: {', '.join(_OFFERED)}", 406)
    return best


def _weight_of(kind: str, weights: dict[str, float]) -> float:
    for pattern in (kind, f"{kind.partition('/')[0]}/*", "*/*", "*"):
        if pattern in weights:
            return weights[pattern]
    return 0.0


def read_lines(body: bytes) -> list[Any]:
    """One JSON value a line. Errors: BadRequest."""
    text, ends = _LINE_ENDS.subn(b",", body.strip())
    items = _loaded(b"[" + text + b"]")
    if items is None or len(items) != ends + 1:
        raise oip.BadRequest("each line of application/jsonlines must be one JSON value")
    return items


def by_input(items: Sequence[object], names: Sequence[str]) -> dict[str, list[Any]]:
    """Each input's values, of items that are objects. names: the model's inputs. Errors: BadRequest."""
    return {name: [_value(item, name, alone=len(names) == 1) for item in items] for name in names}


def _loaded(text: bytes) -> list[Any] | None:
    try:
        found: list[Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            found = json.loads(text)  # which knows NaN
        except (ValueError, RecursionError):
            return None
    return found


def _value(item: object, name: str, *, alone: bool) -> object:
    if not isinstance(item, dict):
        raise oip.BadRequest("either all items or none must be objects")
    if name in item:
        return item[name]
    if alone and FEATURES in item:
        return item[FEATURES]
    raise oip.BadRequest(f"an item lacks the input {name!r}")
