"""From a backend's settings to its specification, and to the tensors that its model takes and gives."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from mark.config.service import BackendSettings
from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.plugins.load import load_model, make_model
from mark.ports import PythonModel
from mark.protocols.model_contract import class_mistakes
from mark.service_spec import BackendSpec

EMULATED_INPUTS = (TensorSpec(name="input", datatype="FP32", shape=(-1, 4)),)
EMULATED_OUTPUTS = (TensorSpec(name="output", datatype="FP32", shape=(-1, 4)),)


def backend_spec(entry: BackendSettings) -> BackendSpec:
    """The backend of a model's settings."""
    folder = "" if entry.folder is None else str(entry.folder.absolute())
    return BackendSpec(kind=entry.kind, target=entry.target, folder=folder, streams=entry.streams)


def tensors_of(backend: BackendSettings) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs of the model; a server behind an agent tells its own."""
    if backend.kind == "emulated":
        return EMULATED_INPUTS, EMULATED_OUTPUTS
    if backend.kind != "python":
        url = urlsplit(backend.target)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise Misconfigured(f"a backend of kind {backend.kind} needs http://HOST:PORT, not {backend.target!r}")
        return (), ()
    model = _model_of(backend)
    if mistakes := class_mistakes(model):
        raise Misconfigured(f"model {backend.target!r}: {'; '.join(mistakes)}")
    model_ = cast("PythonModel", model)
    return tuple(model_.inputs), tuple(model_.outputs)


def can_switch(backend: BackendSettings) -> bool:
    """True for a Python model that has variants and switches between them."""
    return callable(getattr(_model_of(backend), "switch", None))


def _model_of(backend: BackendSettings) -> object:
    """The model of a Python backend, or its class: one that says what it needs has not to be made, for seconds."""
    factory = load_model(backend.target, backend.folder)
    declared = getattr(factory, "inputs", None)
    return factory if isinstance(declared, tuple | list) else make_model(backend.target, backend.folder)
