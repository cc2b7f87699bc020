"""A model is called a few times, to see whether it answers as it declares and how long it takes."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mark.domain.errors import Misconfigured, failure_words
from mark.ports import PythonModel
from mark.protocols.exchange import refused_by_model, row_count
from mark.protocols.model_contract import output_mistakes
from mark.protocols.oip.bodies import Tensors
from mark.report.terminal import unheard

FIRST_TRIES = 3
"""A model that fails at random, as one that asks another service, gets so many chances to answer once."""
REPEATS, REPEAT_S = 20, 1.0
"""Calls after the first one, and how long they may take together."""
LEAST_REPEATS, LEAST_WITHIN_S = 3, 5.0
"""Calls that may take so long instead: while a library warms up, more calls than the first may be slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A call: seconds of the first one and the median of those after it, and in what its outputs differ.

    fastest_s: of all calls; other work on a machine makes some slower, and none faster.
    """

    inputs: Tensors
    outputs: Tensors
    first_s: float
    median_s: float
    fastest_s: float
    calls: int
    mistakes: tuple[str, ...]
    #: Calls that failed.
    failed: int = 0
    #: Of a stream the median to its end; the seconds above are those to its first part.
    whole_s: float | None = None


def try_model(model: PythonModel, inputs: Tensors) -> Tried:
    """Call the model with these inputs, a few times. Errors: Misconfigured where it never answers."""
    failed = 0
    with redirect_stdout(sys.stderr):
        while True:
            try:
                first, first_s = _called(model, inputs)
                break
            except Misconfigured:
                failed += 1
                if failed == FIRST_TRIES:
                    raise
    mistakes = output_mistakes(first, tuple(model.outputs), row_count(inputs))
    if not isinstance(first, Mapping):
        raise Misconfigured("; ".join(mistakes))
    took: list[float] = []
    began = time.perf_counter()
    with unheard():
        while goes_on(len(took) + failed, time.perf_counter() - began):
            try:
                took.append(_called(model, inputs)[1])
            except Misconfigured:
                failed += 1
    return Tried(
        inputs=inputs,
        outputs={str(name): np.asarray(value) for name, value in first.items()},
        first_s=first_s,
        median_s=float(np.median(took)) if took else first_s,
        fastest_s=min((first_s, *took)),
        calls=1 + len(took),
        mistakes=mistakes,
        failed=failed,
    )


def goes_on(calls: int, used_s: float) -> bool:
    """Whether a model is called again, after so many calls that took so long."""
    return calls < REPEATS and used_s < (REPEAT_S if calls >= LEAST_REPEATS else LEAST_WITHIN_S)


def _called(model: PythonModel, inputs: Tensors) -> tuple[object, float]:
    began = time.perf_counter()
    try:
        outputs: object = model.predict(inputs)
    except (Exception, SystemExit) as error:  # a user's code may raise anything; the cause is chained
        raise model_failure(error) from error
    return outputs, time.perf_counter() - began


def model_failure(error: BaseException) -> Misconfigured:
    """The error of a model that failed, with its file and line, or that refused the inputs."""
    if (refused := refused_by_model(error)) is not None:
        return Misconfigured(
            f"the model refuses these inputs as the client's mistake, status {refused.status}: {refused}"
        )
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Misconfigured(
        f"the model failed: {failure_words(error)} ({Path(where.filename).name}, line {where.lineno})"
    )
