"""A plain function as a model: its inputs by annotations or an example, and how it is called by trying it.

It is called with a batch where that gives the answers of its items one by one, else once for each item.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.example import in_type, specs_of
from mark.offline.own_model.try_wrapper import answer_specs, called, written_model
from mark.offline.own_model.wrapper import Way, Wrapper, function_lines
from mark.protocols.exchange import row_count, zeros
from mark.protocols.oip.bodies import Tensors

SCALARS: Mapping[object, str] = {float: "FP64", int: "INT64", bool: "BOOL", str: "BYTES"}
"""Annotations that say an input's type, and that a call takes one item."""
CLOSE = 1e-4
"""Relative difference of answers that are the same: a batch is summed in another order."""
Function = Callable[..., object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Inputs of a function: its required parameters. types: those that annotations tell."""

    names: tuple[str, ...]
    types: Mapping[str, str]
    #: The answer's type, where an annotation tells it.
    answers: str | None

    @property
    def are_scalars(self) -> bool:
        """True where annotations tell all inputs, so that no example is needed."""
        return len(self.types) == len(self.names)


def is_function(found: object) -> bool:
    """True for a function with inputs; one without them makes a model."""
    return inspect.isfunction(found) and any(_is_required(one) for one in _parameters(found))


def parameters_of(function: Function, target: str) -> Parameters:
    """Inputs of the function. Misconfigured where it has required ones that are given by name only."""
    required = [one for one in _parameters(function) if _is_required(one)]
    if named := [one.name for one in required if one.kind is one.KEYWORD_ONLY]:
        raise Misconfigured(f"{target}: {', '.join(named)} can only be given by name; drop the * before it")
    try:
        hints = get_type_hints(function)
    except Exception:  # noqa: BLE001 - a user's annotations may name anything; without them an example tells
        hints = {}
    types = {one.name: SCALARS[hints[one.name]] for one in required if _is_scalar(hints.get(one.name))}
    answer = hints.get("return")
    answers = SCALARS[answer] if _is_scalar(answer) else None
    return Parameters(names=tuple(one.name for one in required), types=types, answers=answers)


def function_wrapper(
    function: Function, parameters: Parameters, example: Tensors | None, *, draft: Wrapper
) -> tuple[Wrapper, Tensors]:
    """The draft with inputs, outputs and the call that works, and the example in its types.

    Misconfigured where no call of the function with the example gives arrays, numbers or texts.
    """
    hint = ""
    if example is None:
        hint = "; give an example with --data"
        told = parameters.types.items()
        example = zeros(tuple(TensorSpec(name=name, datatype=kind, shape=(-1,)) for name, kind in told), 1)
    failures: list[str] = []
    for inputs in _typed(example, parameters):
        specs = specs_of(inputs, "input")
        for way in _ways(function, parameters):
            for by_name in (False, True):
                lines = function_lines(specs, way, by_name=by_name, scalars=parameters.are_scalars)
                tried = replace(draft, inputs=specs, predict=lines, remark=way)
                try:
                    outputs = _outputs(tried, function, inputs, way)
                except Misconfigured as error:
                    failures.append(f"{way}: {error}")
                else:
                    return replace(tried, outputs=outputs), inputs
    raise Misconfigured(
        f"{function.__name__} does not answer the example; {'; '.join(dict.fromkeys(failures))}{hint}"
    )


def untried_wrapper(function: Function, parameters: Parameters, draft: Wrapper) -> Wrapper:
    """The draft by annotations alone. Misconfigured where they do not tell all."""
    if not parameters.are_scalars or parameters.answers is None:
        raise Misconfigured(
            f"{function.__name__} is not called with --no-load, so annotations have to tell what it takes and "
            "returns (float, int, bool or str); or write a class with inputs, outputs and predict"
        )
    inputs = tuple(TensorSpec(name=name, datatype=kind, shape=(-1,)) for name, kind in parameters.types.items())
    outputs = (TensorSpec(name="y", datatype=parameters.answers, shape=(-1,)),)
    lines = function_lines(inputs, Way.ITEM, by_name=False, scalars=True)
    return replace(draft, inputs=inputs, outputs=outputs, predict=lines, remark=Way.ITEM)


def _outputs(wrapper: Wrapper, function: Function, inputs: Tensors, way: Way) -> tuple[TensorSpec, ...]:
    """Outputs of the written class on the example. Misconfigured where they are not those of the items."""
    model: Any = written_model(wrapper, Path(), {"np": np, "call": function})
    if way is Way.STREAM:
        part = called(lambda: next(iter(model.predict(_item(inputs, 0))), None))
        if part is None:
            raise Misconfigured("it yields nothing")
        return answer_specs(part, 1)
    several = _differing(inputs) if way is Way.BATCH else _repeated(inputs)
    rows = row_count(several)
    found = called(lambda: model.predict(several))
    specs = answer_specs(found, rows)
    for row in range(rows if way is Way.BATCH else 0):
        alone = called(partial(model.predict, _item(several, row)))
        answer_specs(alone, 1)
        if not all(_same(found[spec.name][row], alone[spec.name][0]) for spec in specs):
            raise Misconfigured("answers of a batch differ from those of its items")
    return specs


def _same(one: Any, other: Any) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return False
    if first.dtype.kind == "f":
        return bool(
            np.allclose(
                first, second, rtol=CLOSE, atol=CLOSE * float(np.abs(first).max(initial=0.0)), equal_nan=True
            )
        )
    return bool(np.array_equal(first, second))


def _typed(example: Tensors, parameters: Parameters) -> Iterator[Tensors]:
    """The example in the types that annotations tell; else as it is, and with JSON's numbers in 32 bits."""
    told = {name: in_type(array, parameters.types.get(name, "BYTES")) for name, array in example.items()}
    yield told
    narrow = {
        name: array.astype(np.float32) if array.dtype == np.float64 and name not in parameters.types else array
        for name, array in told.items()
    }
    if any(narrow[name] is not told[name] for name in told):
        yield narrow


def _ways(function: Function, parameters: Parameters) -> tuple[Way, ...]:
    if inspect.isgeneratorfunction(function):
        return (Way.STREAM,)
    return (Way.ITEM,) if parameters.are_scalars else (Way.BATCH, Way.ITEM)


def _differing(example: Tensors) -> Tensors:
    """Items that differ, where the example has several; else the one, itself the other way round, and its half.

    Misconfigured where those are all alike: one item and the mean of such a batch are the same.
    """
    found = {name: np.concatenate([array, _turned(array), _half(array)]) for name, array in example.items()}
    items = example if row_count(example) > 1 else found
    if all((array == array[:1]).all() for array in items.values()):
        raise Misconfigured("items that are all alike cannot tell a batch from its items")
    return items


def _turned(array: NDArray[Any]) -> NDArray[Any]:
    return np.flip(array, axis=tuple(range(1, array.ndim)))


def _half(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers between 0 and those of the example, which are as likely to be valid; other values as they are."""
    if array.dtype.kind == "f":
        return np.divide(array, array.dtype.type(2))
    return np.floor_divide(array, array.dtype.type(2)) if array.dtype.kind in "iu" else array


def _repeated(example: Tensors) -> Tensors:
    return {name: np.concatenate([array, array]) for name, array in example.items()}


def _item(tensors: Tensors, row: int) -> Tensors:
    return {name: array[row : row + 1] for name, array in tensors.items()}


def _parameters(function: Any) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(function).parameters.values())


def _is_required(one: inspect.Parameter) -> bool:
    return one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)


def _is_scalar(hint: object) -> bool:
    return isinstance(hint, type) and hint in SCALARS
