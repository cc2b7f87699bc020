"""The difference between two answers to one request: of a version that serves, and of one that might.

Status and outputs must be the same: integers, truth values and bytes exactly, floats within a tolerance. What
stands around the outputs, and the text of an error, does not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadRequest
from mark.domain.load.traffic import CLIENT_ERROR
from mark.ports import InferReply
from mark.protocols.oip.bodies import datatype_of, load_json, parse_infer_reply


def answer_difference(usual: InferReply, other: InferReply, tolerance: float) -> str | None:
    """How another answer differs from the usual one, for people; None where it does not.

    tolerance: floats may differ by this times (1 + the usual one's size). Two that are no number are the same.
    """
    if usual.status != other.status:
        return f"status {other.status}, not {usual.status}"
    is_same = usual.body == other.body and usual.header_length == other.header_length
    if is_same or usual.status >= CLIENT_ERROR:
        return None
    try:
        tensors = [parse_infer_reply(one.body, one.header_length) for one in (usual, other)]
    except BadRequest:
        return _other_difference(usual, other, tolerance)
    return _tensors_difference(tensors[0], tensors[1], tolerance)


def _tensors_difference(
    usual: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]], tolerance: float
) -> str | None:
    if usual.keys() != other.keys():
        return f"outputs {', '.join(sorted(other))}, not {', '.join(sorted(usual))}"
    for name, array in usual.items():
        found = other[name]
        if (datatype_of(array), array.shape) != (datatype_of(found), found.shape):
            return (
                f"output {name}: {datatype_of(found)} {list(found.shape)}, not {datatype_of(array)} "
                f"{list(array.shape)}"
            )
        differs = ~_same(array, found, tolerance)
        if differs.any():
            return f"output {name}: {differs.sum()} of {differs.size} values differ"
    return None


def _same(usual: NDArray[Any], other: NDArray[Any], tolerance: float) -> NDArray[np.bool_]:
    """Truth values of the arrays' shape."""
    if usual.dtype.kind != "f":
        return np.asarray(usual == other)
    return np.isclose(
        other.astype(np.float64), usual.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def _other_difference(usual: InferReply, other: InferReply, tolerance: float) -> str | None:
    """Of answers that are not of the Open Inference Protocol: JSON by its values, all else by its bytes."""
    try:
        documents = [load_json(one.body) for one in (usual, other)]
    except BadRequest:
        return f"{len(other.body)} bytes, not the same {len(usual.body)}"
    open_ = [("$", documents[0], documents[1])]
    while open_:
        where, one, two = open_.pop()
        if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
            open_ += [(f"{where}.{key}", value, two[key]) for key, value in one.items()]
        elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
            open_ += [(f"{where}[{place}]", value, two[place]) for place, value in enumerate(one)]
        elif not _is_same_value(one, two, tolerance):
            return f"{where[:100]} differs"
    return None


def _is_same_value(usual: object, other: object, tolerance: float) -> bool:
    kinds = {type(usual), type(other)}
    if float not in kinds or not kinds <= {int, float}:
        return len(kinds) == 1 and usual == other
    try:
        return bool(_same(np.array(usual, np.float64), np.array(other, np.float64), tolerance))
    except OverflowError:  # JSON's integers have any length
        return False
