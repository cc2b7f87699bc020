"""The class that would be written is tried before it is: made of its text, and called with an example."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from mark.domain.errors import MarkError, Misconfigured, failure_words
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.example import specs_of
from mark.offline.own_model.wrapper import Wrapper
from mark.ports import PythonModel
from mark.protocols.oip.bodies import Tensors


def written_model(
    wrapper: Wrapper, beside: Path, names: Mapping[str, object] = MappingProxyType({})
) -> PythonModel:
    """The model as its file will make it, beside that one. names: known here instead of what the file imports."""
    text = wrapper.class_text if names else "\n".join((*wrapper.imports, wrapper.class_text))
    namespace: dict[str, Any] = {"TensorSpec": TensorSpec, "__file__": str(beside), **names}

    def make() -> PythonModel:
        exec(text, namespace)  # noqa: S102 - the text that is written, around the user's own code
        model: PythonModel = namespace[wrapper.name]()
        return model

    made: PythonModel = called(make)
    return made


def output_specs(model: PythonModel, inputs: Tensors, rows: int) -> tuple[TensorSpec, ...]:
    """Specs of the answer. Misconfigured where the model fails, or does not answer each item."""
    return answer_specs(called(lambda: model.predict(inputs)), rows)


def answer_specs(outputs: Mapping[str, Any], rows: int) -> tuple[TensorSpec, ...]:
    """Specs of an answer for so many items. Misconfigured where it is none."""
    arrays = {str(name): np.asarray(value) for name, value in outputs.items()}
    for name, array in arrays.items():
        if array.shape[:1] != (rows,):
            raise Misconfigured(f"output {name!r} has shape {list(array.shape)} for a batch of {rows}")
    return specs_of(arrays, "output")


def called(call: Callable[[], Any]) -> Any:
    """What the user's code returns; it prints on stderr. Misconfigured, in one line, where it fails."""
    try:
        with redirect_stdout(sys.stderr):
            return call()
    except MarkError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything; the cause is chained
        raise Misconfigured(failure_words(error)) from error
