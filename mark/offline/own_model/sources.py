"""What `mark init` is given, and the class that it is or becomes: a class stays, all else gets one around it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import typer

from mark.domain.errors import Misconfigured, failure_words
from mark.offline.own_model.estimator_file import estimator_wrapper
from mark.offline.own_model.example import read_example, specs_text
from mark.offline.own_model.functions import (
    Parameters,
    function_wrapper,
    is_function,
    lacks_inputs,
    parameters_of,
    refuse_async,
    untried_wrapper,
)
from mark.offline.own_model.onnx_file import onnx_wrapper
from mark.offline.own_model.targets import existing_source
from mark.offline.own_model.wrapper import WRITTEN, Wrapper, wrapper_name, wrapper_path
from mark.plugins.load import load_model
from mark.ports import PythonModel
from mark.protocols.model_contract import class_mistakes
from mark.protocols.oip.bodies import Tensors
from mark.report.files import write_whole
from mark.report.terminal import note

ONNX, PICKLED = ".onnx", (".joblib", ".pkl", ".pickle")
SAVED = (ONNX, *PICKLED)
"""Ends of files that hold a model and no code."""
USUAL_FUNCTION = "predict"
"""A model around a function of this name is called as its file, around others as the function."""
ASKED = 'An example of its input as JSON, the batch first, such as [[1.5, 2.0]] or ["a text"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A target of `mark init`, and what is said of it."""

    target: str
    force: bool
    ask: bool
    #: An example of the model's input, as JSON or in a file.
    data: str | None = None
    file: Path | None = None
    #: Make the model and call it; else its module is imported, and no more.
    load: bool = True

    @property
    def asks(self) -> bool:
        """Somebody is there to be asked."""
        return self.ask and sys.stdin.isatty()


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A class around something else, the file for it, and an example of its input."""

    wrapper: Wrapper
    path: Path
    example: Tensors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsClass:
    """A target as a class. about: what was written around it, for people; nothing where it is a class itself."""

    target: str
    example: Tensors | None = None
    about: tuple[str, ...] = ()


@contextmanager
def as_class(given: Given) -> Iterator[AsClass]:
    """The target's class, which is written where it is none; that file goes again where the block fails.

    Errors: Misconfigured.
    """
    made = _made(given)
    if made is None:
        yield AsClass(target=given.target)
        return
    path, wrapper = made.path, made.wrapper
    before = path.read_bytes() if path.exists() else None
    target = f"{path}:{wrapper.name}"
    if before is not None and WRITTEN.encode() not in before:
        raise Misconfigured(f"{path} is there already, and mark init did not write it: name it, or rename it")
    if before is not None and not given.force:
        raise Misconfigured(f"{path} is there already: `mark init {target}` takes it, --force overwrites it")
    write_whole(path, wrapper.file_text)
    about = (
        f"wrote {path}, a class around {given.target} ({wrapper.remark})",
        f"  inputs: {specs_text(wrapper.inputs)}",
        f"  outputs: {specs_text(wrapper.outputs)}",
    )
    try:
        yield AsClass(target=target, example=made.example, about=about)
    except BaseException:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
        raise


def source_of_target(target: str) -> Path:
    """The file that a target names or is in. Misconfigured where it is not there."""
    path = Path(target).expanduser()
    if ":" not in target and path.suffix == ".py" and path.is_file():
        names = [f"{target}:{name}" for name in defined_names(path)]
        raise Misconfigured(f"which of {target}? name a class or function: {', '.join(names) or 'it has none'}")
    if ":" not in target and path.suffix.lower() not in SAVED:
        problem = "is not a model's file" if path.exists() else "no such file or folder"
        raise Misconfigured(
            f"{target}: {problem}; give path/file.py:Name, module:Name, a folder, or a file that ends in "
            f"{', '.join(SAVED)}"
        )
    if path.suffix.lower() not in SAVED:
        return existing_source(target, Path())
    if not Path(target).is_file():
        raise Misconfigured(f"model file {target} does not exist")
    return Path(target)


def defined_names(path: Path) -> tuple[str, ...]:
    """Classes and functions of a file, which is read and not run. Misconfigured where it is no Python."""
    try:
        parts = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise Misconfigured(f"{path} is no Python file: {failure_words(error)}") from error
    named = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(part.name for part in parts if isinstance(part, named) and not part.name.startswith("_"))


def check_unloaded(given: Given) -> None:
    """Misconfigured where a target that is not made cannot be a model; nothing is written."""
    if _made(given) is None:
        declared(given.target)


def no_model(target: str) -> str | None:
    """Why a target is no model where it is a function; None for anything else."""
    return lacks_inputs(load_model(target, Path()), target)


def declared(target: str) -> PythonModel:
    """The class of a model that is not made. Misconfigured where it does not declare its inputs and outputs."""
    found = load_model(target, Path())
    if lacks_inputs(found, target):
        raise Misconfigured(
            f"{target} is a function, which is not called with --no-load: name a class, or annotate its "
            "parameters and what it returns as float, int, bool or str"
        )
    if mistakes := class_mistakes(found):
        raise Misconfigured(
            f"model {target!r} is not made with --no-load, so its class has to declare inputs and outputs: "
            f"{'; '.join(mistakes)}"
        )
    return cast("PythonModel", found)


def _made(given: Given) -> Made | None:
    """The class around the target; None where it is one. Errors: Misconfigured."""
    if given.data is not None and given.file is not None:
        raise Misconfigured("give --input or --data, not both")
    source = source_of_target(given.target)
    suffix = source.suffix.lower()
    if suffix in SAVED and not given.load:
        raise Misconfigured(f"--no-load is for code, path/file.py:Name; write a class around {source}")
    if suffix == ONNX:
        return Made(wrapper=onnx_wrapper(source), path=wrapper_path(source), example=None)
    if suffix in PICKLED:
        wrapper, example = estimator_wrapper(source, given.data, given.file)
        return Made(wrapper=wrapper, path=wrapper_path(source), example=example)
    return _around_function(given, source)


def _around_function(given: Given, source: Path) -> Made | None:
    """The class around a function; None where the target is none. Errors: Misconfigured."""
    found = load_model(given.target, Path())
    refuse_async(found, given.target)
    if not is_function(found, load=given.load):
        return None
    where, _, function = given.target.rpartition(":")
    module = source.stem if where.endswith(".py") else where
    if not all(part.isidentifier() for part in module.split(".")):
        raise Misconfigured(f"{source} cannot be imported by its name: rename it to letters, digits and _")
    parameters = parameters_of(found, given.target)
    if parameters.left:
        note(
            f"{given.target}: no input, as it has a default: {', '.join(parameters.left)}; to make it one, "
            "annotate it and all before it as float, int, bool or str"
        )
    draft = Wrapper(
        about=f"`{function}` of {source.name} as a model.",
        name=wrapper_name(source.stem if function == USUAL_FUNCTION else function),
        imports=("import numpy as np", f"from {module} import {function} as call"),
        inputs=(),
        outputs=(),
        predict=(),
        remark="",
    )
    if not given.load:
        return Made(
            wrapper=untried_wrapper(found, parameters, draft), path=wrapper_path(source, function), example=None
        )
    wrapper, example = function_wrapper(found, parameters, _example(given, parameters), draft=draft)
    return Made(wrapper=wrapper, path=wrapper_path(source, function), example=example)


def _example(given: Given, parameters: Parameters) -> Tensors | None:
    """The example that was given or is asked for; None where annotations tell enough without."""
    data = given.data
    if data is None and given.file is None:
        if parameters.are_scalars:
            return None
        untold = ", ".join(name for name in parameters.names if name not in parameters.types)
        if not given.asks:
            raise Misconfigured(
                f"{given.target} does not say what {untold} holds: give an example with its batch first, such as "
                "--data '[[1.5, 2.0]]' (--input FILE), or annotate it as float, int, bool or str"
            )
        data = typer.prompt(f"{given.target} takes {untold}. {ASKED}", err=True)
    return read_example(data or "", given.file, parameters.names)
