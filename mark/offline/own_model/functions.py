"""A plain function as a model: its inputs by annotations or an example, and how it is called by trying it.

It is called with a batch where that gives the answers of its items one by one, else once for each item.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import GeneratorType
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
    """Inputs of a function, in its order. types: those that annotations tell."""

    names: tuple[str, ...]
    types: Mapping[str, str]
    #: Defaults of the inputs that have one.
    usual: Mapping[str, object]
    #: Parameters that are no inputs and keep their defaults.
    left: tuple[str, ...]
    #: The answer's type, where an annotation tells it.
    answers: str | None

    @property
    def are_scalars(self) -> bool:
        """True where annotations tell all inputs, so that no example is needed."""
        return len(self.types) == len(self.names)


def is_function(found: object, *, load: bool) -> bool:
    """True for a function with inputs; one that can be called without them may make a model instead.

    load: whether it may be called to see that.
    """
    if not inspect.isfunction(found):
        return False
    if any(_is_required(one) for one in _parameters(found)):
        return True
    parameters = parameters_of(found, found.__name__)
    if not parameters.names or parameters.answers is not None:
        return bool(parameters.names)
    try:
        return load and not hasattr(called(found), "predict")
    except Misconfigured:  # told where the model is made
        return False


def refuse_async(found: object, target: str) -> None:
    """Misconfigured for an async function, and for a class whose predict is one."""
    for name, one in ((target, found), (f"predict of {target}", getattr(found, "predict", None))):
        if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one):
            raise Misconfigured(f"{name} is async: not supported; write a plain function")


def lacks_inputs(found: object, target: str) -> str | None:
    """Why a function that made no model is none itself; None for anything else."""
    if not inspect.isfunction(found):
        return None
    has = f"only {', '.join(map(str, given))}" if (given := _parameters(found)) else "none"
    return (
        f"{target} is a function without inputs: those are parameters without a default, or annotated as float, "
        f"int, bool or str, and it has {has}; write it as {found.__name__}(x: float), or return a model"
    )


def parameters_of(function: Function, target: str) -> Parameters:
    """Inputs of the function: its required parameters, and those with a default where annotations tell all types.

    Misconfigured where it has required ones that are given by name only.
    """
    required = [one for one in _parameters(function) if _is_required(one)]
    if named := [one.name for one in required if one.kind is one.KEYWORD_ONLY]:
        raise Misconfigured(f"{target}: {', '.join(named)} can only be given by name; drop the * before it")
    try:
        hints = get_type_hints(function)
    except Exception:  # noqa: BLE001 - a user's annotations may name anything; without them an example tells
        hints = {}
    further = [one for one in _parameters(function) if one.default is not one.empty]
    has_types = all(_is_scalar(hints.get(one.name)) for one in required)
    usual = list(takewhile(lambda one: has_types and _is_input(one, hints.get(one.name)), further))
    inputs = [*required, *usual]
    answer = hints.get("return")
    return Parameters(
        names=tuple(one.name for one in inputs),
        types={one.name: SCALARS[hints[one.name]] for one in inputs if _is_scalar(hints.get(one.name))},
        usual={one.name: one.default for one in usual},
        left=tuple(one.name for one in further if one not in usual),
        answers=SCALARS[answer] if _is_scalar(answer) else None,
    )


def function_wrapper(
    function: Function, parameters: Parameters, example: Tensors | None, *, draft: Wrapper
) -> tuple[Wrapper, Tensors]:
    """The draft with inputs, outputs and the call that works, and the example in its types.

    Misconfigured where no call of the function with the example gives arrays, numbers or texts.
    """
    what, hint = "the example", ""
    if example is None:
        example, what = _usual_example(parameters)
        hint = "; give an example with --data"
    answers: list[object] = []

    def parts(found: Iterator[object]) -> Iterator[object]:
        for part in found:
            answers[:] = [part]
            yield part

    def heard(*given: object) -> object:
        found = function(*given)
        if isinstance(found, GeneratorType):
            return parts(found)
        answers[:] = [found]
        return found

    failures: dict[Way, str] = {}
    for inputs in _typed(example, parameters):
        specs = specs_of(inputs, "input")
        for way in _ways(function, parameters):
            answers.clear()
            for by_name in (False, True):
                if by_name and not (answers and isinstance(answers[0], Mapping)):
                    continue
                lines = function_lines(specs, way, by_name=by_name, scalars=parameters.are_scalars)
                tried = replace(draft, inputs=specs, predict=lines, remark=way)
                try:
                    outputs = _outputs(tried, heard, inputs, way)
                except Misconfigured as error:
                    failures[way] = str(error) if by_name else failures.get(way, str(error))
                else:
                    return replace(tried, outputs=outputs), inputs
    told_why = "; ".join(f"{way}: {error}" for way, error in failures.items())
    raise Misconfigured(f"{function.__name__}, called with {what}, does not answer; {told_why}{hint}")


def _usual_example(parameters: Parameters) -> tuple[Tensors, str]:
    """Zeros where there are no defaults, and what it is, for people."""
    told, usual = parameters.types, parameters.usual
    example = zeros(tuple(TensorSpec(name=name, datatype=kind, shape=(-1,)) for name, kind in told.items()), 1)
    given = {name: _one_item(value, told[name]) for name, value in usual.items()}
    what = " and ".join((*(["zeros"] if len(usual) < len(told) else []), *(["its defaults"] if usual else [])))
    return {**example, **given}, what


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
    half: NDArray[Any] = array
    if array.dtype.kind == "f":
        half = array / array.dtype.type(2)
    elif array.dtype.kind in "iu":
        half = array // 2
    return half


def _repeated(example: Tensors) -> Tensors:
    return {name: np.concatenate([array, array]) for name, array in example.items()}


def _item(tensors: Tensors, row: int) -> Tensors:
    return {name: array[row : row + 1] for name, array in tensors.items()}


def _parameters(function: Any) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(function).parameters.values())


def _is_required(one: inspect.Parameter) -> bool:
    return one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)


def _is_input(one: inspect.Parameter, hint: object) -> bool:
    """True for a parameter with a default of the annotated type, which a call can give by its place."""
    kinds = (float, int) if hint is float else hint
    is_usual = _is_scalar(hint) and isinstance(one.default, kinds)  # type: ignore[arg-type]
    return is_usual and one.kind is not one.KEYWORD_ONLY


def _one_item(value: object, datatype: str) -> NDArray[Any]:
    """A batch of that one value."""
    item: NDArray[Any] = np.array([value.encode()], object) if isinstance(value, str) else np.array([value])
    return in_type(item, datatype)


def _is_scalar(hint: object) -> bool:
    return isinstance(hint, type) and hint in SCALARS
