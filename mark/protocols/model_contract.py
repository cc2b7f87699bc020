"""The contract of a model in Python: `inputs` and `outputs` as tensor specs, `predict`, and outputs as declared.

All violations are reported at once, in words for the author of the class; pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mark.domain.errors import unknown
from mark.domain.tensor import TensorSpec
from mark.protocols.oip.bodies import DTYPES, BadRequest, datatype_of, fits


def class_mistakes(model: object) -> tuple[str, ...]:
    """Violations of the contract by a model's class or object; empty where there are none."""
    lacking = [name for name in ("inputs", "outputs") if not hasattr(model, name)]
    if not callable(getattr(model, "predict", None)):
        lacking.append("a method predict(inputs)")
    found = [f"it lacks {', '.join(lacking)} (docs/own-model.md)"] if lacking else []
    for key in ("inputs", "outputs"):
        if key not in lacking:
            found += _spec_mistakes(key, getattr(model, key))
    return tuple(found)


def output_mistakes(outputs: object, specs: Sequence[TensorSpec], rows: int | None) -> tuple[str, ...]:
    """Differences of the outputs for `rows` items from the declared ones; empty where there are none.

    outputs: what `predict` returned, arrays by name; rows: None leaves the first dimension unchecked.
    """
    if not isinstance(outputs, Mapping):
        return (f"predict returns a {type(outputs).__name__}, not a mapping of names to arrays",)
    declared = {spec.name: spec for spec in specs}
    found = [f"output {name!r} is declared and not returned" for name in declared if name not in outputs]
    for name, value in outputs.items():
        if name not in declared:
            found.append(f"output {name!r} is returned and not declared")
        else:
            found += _array_mistakes(declared[name], np.asarray(value), rows)
    return tuple(found)


def _spec_mistakes(key: str, specs: object) -> list[str]:
    example = 'TensorSpec(name="x", datatype="FP32", shape=(-1, 4))'
    if isinstance(specs, str | bytes) or not isinstance(specs, Sequence):
        return [f"{key} is a {type(specs).__name__}, not a tuple such as ({example},)"]
    if not specs:
        return [f"{key} is empty; it needs a tuple such as ({example},)"]
    found: list[str] = []
    for number, spec in enumerate(specs):
        if isinstance(spec, TensorSpec):
            found += [f"{key}: {mistake}" for mistake in _field_mistakes(spec)]
        else:
            found.append(f"{key}[{number}] is a {type(spec).__name__}, not a TensorSpec such as {example}")
    names = [spec.name for spec in specs if isinstance(spec, TensorSpec)]
    return found + [
        f"{key}: the name {name!r} stands twice" for name in sorted(set(names)) if names.count(name) > 1
    ]


def _field_mistakes(spec: TensorSpec) -> list[str]:
    found = []
    if not isinstance(spec.name, str) or not spec.name:
        found.append(f"a name should be text, not {spec.name!r}")
    if spec.datatype not in DTYPES:
        found.append(f"{spec.name!r}: {unknown('datatype', str(spec.datatype), DTYPES)}")
    shape: Any = spec.shape
    if not isinstance(shape, tuple | list) or not shape or not all(isinstance(size, int) for size in shape):
        found.append(f"{spec.name!r}: the shape should be whole numbers such as (-1, 4), not {shape!r}")
    elif shape[0] != -1 or not all(size == -1 or size >= 0 for size in shape):
        found.append(
            f"{spec.name!r}: the shape begins with the batch, -1, and has no other below 0, not {shape!r}"
        )
    return found


def _array_mistakes(spec: TensorSpec, array: np.ndarray[Any, Any], rows: int | None) -> list[str]:
    found = []
    try:
        found_type = datatype_of(array)
    except BadRequest:  # numpy has more types than the protocol
        found_type = str(array.dtype)
    if found_type != spec.datatype:
        found.append(f"output {spec.name!r} is {found_type}, declared as {spec.datatype}")
    if not fits(array.shape, (-1 if rows is None else rows, *spec.shape[1:])):
        batch = "" if rows is None else f" for a batch of {rows}"
        found.append(f"output {spec.name!r} has shape {list(array.shape)}{batch}, declared as {list(spec.shape)}")
    return found
