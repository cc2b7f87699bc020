"""Bodies of a batch that are alike: what is said around the values of their one tensor is read once.

Most clients send one JSON body over and over in which only the values of the one input differ, and to read a small
body costs less for its values than for all that is said around them. A `Form` is a body cut open where the values
stand. That the place is right is proved, not guessed: with `null` there the whole is still JSON, and the tensor's
data is that null. So whatever is one JSON value may stand there. A body that has not this form, or whose values
are wrong, is read as a whole, which says what is wrong with it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import orjson

from mark.protocols.json_values import from_json
from mark.protocols.oip import BadRequest, InferCall

MAX_BODY_BYTES = 4096
"""The values of larger bodies cost so much that the rest does not count."""
MAX_FORMS = 4
_DATA = re.compile(rb'"data"\s*:\s*(?=\[)')


class Form(NamedTuple):
    """What stands before and behind the values, and what a body says with them; `call` is the first one's."""

    before: bytes
    behind: bytes
    call: InferCall
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self, body: bytes) -> InferCall | None:
        """What a body of this form asks for; None where it has another, or its values are wrong."""
        before, behind, call, name, dtype, shape = self
        if not (body.startswith(before) and body.endswith(behind)):
            return None
        try:
            array = from_json(orjson.loads(body[len(before) : -len(behind)]), dtype, shape)
        except (orjson.JSONDecodeError, BadRequest):
            return None
        return InferCall({name: array}, call.id, call.outputs, call.binary_outputs)


def form_of(body: bytes, call: InferCall) -> Form | None:
    """The form of a JSON body that was understood as `call`; None where it has more than one tensor, or is odd."""
    found = _DATA.search(body)
    if found is None or len(call.inputs) != 1:
        return None
    start = found.end()
    ends = body.find(b"]", start), body.rfind(b"]", start, body.rfind(b"]"))  # of a flat list, or of nested ones
    for end in ends:
        before, behind = body[:start], body[end + 1 :]
        try:
            orjson.loads(body[start : end + 1])
            document = orjson.loads(before + b"null" + behind)
        except orjson.JSONDecodeError:
            continue
        if document["inputs"][0].get("data", 0) is None:  # a tensor without bytes may have no data
            ((name, array),) = call.inputs.items()
            return Form(before, behind, call, name, array.dtype, array.shape)
    return None
