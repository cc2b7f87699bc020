"""The model of an `infer` function, as its environment variables describe it, or as a version that a call names.

MARK_BACKEND_KIND `python` calls the object that MARK_BACKEND_TARGET names (`module:attribute` or
`path/file.py:Name`), its modules looked for in MARK_BACKEND_FOLDER first, where that is set; `emulated` answers
zeros of MARK_OUTPUTS after MARK_EMULATED_LATENCY_S: an emulated time, lognormal with a coefficient of variation of
MARK_EMULATED_CV. Where MARK_VERSIONS_BUCKET is set, a call may name a version of a `python` model: its files come
from that bucket (`version_files.py`), unless MARK_BACKEND_VERSION says that the function's own are that version.

An environment loads one version in its life: what its code leaves in the process must not answer as another. A
call that names another ends the process, and Lambda starts the next one.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from mark.aws.functions.function_url import HOLDS_ANOTHER
from mark.cloudmodel.noise import noise_factor
from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.lambda_handlers.environment import required_variable, variable_or
from mark.lambda_handlers.version_files import fetch_version
from mark.plugins.files import load_module
from mark.plugins.memory import keep_freed_memory
from mark.ports import PythonModel
from mark.protocols.exchange import row_count, zeros
from mark.protocols.oip.bodies import Tensors
from mark.protocols.oip.replies import MODEL_VERSION

log = logging.getLogger(__name__)
_loading = threading.Lock()
_served: dict[str, Served | None] = {}
"""The model by its version, empty for the function's own files; one at most, None while it is not whole."""


@dataclass(frozen=True, slots=True)
class Served:
    """The model of this environment. `outputs`: what it declares of its answers."""

    name: str
    inputs: Sequence[TensorSpec]
    predict: Callable[[Tensors], Mapping[str, Any]]
    #: draws how long an answer takes at least, s: 0 for a real model
    least_s: Callable[[], float] = float
    outputs: Sequence[TensorSpec] = ()
    #: answers' `model_version`
    version: str = MODEL_VERSION


def served_model(version: str = "", *, warms_up: bool = False) -> Served:
    """Loaded once; environments that are threads of one process share it. version: the one that a call names.

    warms_up: a model that is loaded now answers zeros once, which fills its caches, as on an instance.
    Misconfigured where it cannot be loaded, VersionUnavailable where the version's files cannot be had.
    """
    if not variable_or("MARK_VERSIONS_BUCKET", "") or version == variable_or("MARK_BACKEND_VERSION", ""):
        version = ""
    with _loading:
        if _served and version not in _served:
            log.warning("this process has loaded version %r and ends: a call names %r", *_served, version)
            os._exit(HOLDS_ANOTHER)  # at once: nothing that a model registered for an exit may hold it up
        served = _served.get(version)
        if served is None:
            served = _served[version] = load(version)
            if warms_up:
                _warm_up(served)
        return served


def load(version: str = "") -> Served:
    """The model that the environment describes, or a version of it. Errors as of `served_model`."""
    name, kind = required_variable("MARK_MODEL"), required_variable("MARK_BACKEND_KIND")
    known = version or variable_or("MARK_BACKEND_VERSION", "") or MODEL_VERSION
    if kind == "python":
        own = (required_variable("MARK_BACKEND_TARGET"), variable_or("MARK_BACKEND_FOLDER", ""))
        place = fetch_version(version) if version else own
        _served[version] = None  # from here on its code runs, which may fail and leave something behind
        model = _named(*place)()
        keep_freed_memory()
        return Served(name, model.inputs, model.predict, outputs=model.outputs, version=known)
    if kind != "emulated":
        raise Misconfigured(f"a function runs python or emulated models, not {kind}: that server is not there")
    inputs, outputs = (_specs(variable_or(key, "[]")) for key in ("MARK_INPUTS", "MARK_OUTPUTS"))
    latency_s = float(required_variable("MARK_EMULATED_LATENCY_S"))
    cv, rng = float(variable_or("MARK_EMULATED_CV", "0")), random.Random()  # noqa: S311 - noise, no secret

    def least_s() -> float:
        return latency_s * noise_factor(cv, rng.gauss(0.0, 1.0))

    return Served(name, inputs, lambda tensors: zeros(outputs, row_count(tensors)), least_s, version=known)


def _warm_up(served: Served) -> None:
    try:
        served.predict(zeros(served.inputs, 1))
    except Exception as error:  # noqa: BLE001 - a user's model may raise anything; requests say whether it serves
        log.warning("%s failed on zeros and was not warmed up: %s", served.name, error)


def _named(target: str, folder: str) -> Callable[[], PythonModel]:
    where, _, attribute = target.rpartition(":")
    try:
        module = load_module(where, Path(folder) if folder else None)
        factory: Callable[[], PythonModel] = attrgetter(attribute)(module)
    except (ImportError, AttributeError, ValueError, OSError) as error:
        raise Misconfigured(f"the model {target!r} cannot be loaded: {error}") from error
    return factory


def _specs(text: str) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=entry["name"], datatype=entry["datatype"], shape=tuple(entry["shape"]))
        for entry in json.loads(text)
    )
