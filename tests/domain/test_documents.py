"""Documents become JSON in one place, which knows numpy's numbers and refuses what JSON has no form for."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from mark.domain.documents import NotPlain, json_text, plain


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
        (np.array(7), 7),
    ],
)
def test_a_number_of_numpy_is_written_as_the_number_it_is(value: Any, written: Any) -> None:
    document = {"warm": value, "rows": [{"warm": value}, (value, None)], "name": "m"}
    expected = {"warm": written, "rows": [{"warm": written}, [written, None]], "name": "m"}
    assert json.loads(json_text(document)) == expected
    assert type(json.loads(json_text(document))["warm"]) is type(written)


def test_what_is_plain_is_written_as_json_writes_it() -> None:
    document = {"b": [1, 2.5, "ü", None, True], "a": {}}
    assert json_text(document) == json.dumps(document)
    assert json_text(document, indent=2) == json.dumps(document, indent=2)
    assert json_text(document, compact=True, sort_keys=True) == '{"a":{},"b":[1,2.5,"\\u00fc",null,true]}'


def test_a_key_of_numpy_is_a_key_as_json_has_them() -> None:
    assert json.loads(json_text({np.int64(3): np.int64(4)})) == {"3": 4}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"series": {"mean_rps": np.zeros(3)}}, r"the document\['series'\]\['mean_rps'\] is a ndarray"),
        ({"rows": [1, {2}]}, r"the document\['rows'\]\[1\] is a set"),
        ({"rows": {(1, 2): 3}}, r"the document\['rows'\] has a tuple as a key"),
    ],
)
def test_what_json_lacks_is_refused_with_its_place(document: Any, place: str) -> None:
    with pytest.raises(NotPlain, match=place):
        json_text(document)


def test_infinity_is_refused_where_others_read_it() -> None:
    for value in (math.inf, math.nan, np.float64(math.inf), np.float32(math.nan)):
        with pytest.raises(ValueError, match="JSON"):
            json_text({"at": value})
    assert json.loads(json_text({"at": math.inf}, allow_nan=True)) == {"at": math.inf}


def test_plain_leaves_plain_values() -> None:
    assert plain([1, "a", (2.0, None)]) == [1, "a", [2.0, None]]
