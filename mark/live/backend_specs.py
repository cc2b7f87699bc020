"""From a backend's settings to its specification, and to the tensors that its model takes and gives."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from mark.config.service import BackendSettings
from mark.config.settings import packages_dir
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Parallelism
from mark.domain.tensor import TensorSpec
from mark.live.model_files import version_of
from mark.plugins.load import load_model, make_model
from mark.plugins.packages import install, is_installed, kind_here, place_of, requirements_of
from mark.ports import PythonModel
from mark.protocols.model_contract import class_mistakes
from mark.report.terminal import note
from mark.service_spec import BackendSpec
from mark.serving.backends.replica_messages import HEAD, Started, pack_started, read_started
from mark.serving.backends.replicas import ReplicatedBackend

Tensors = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]
"""Inputs and outputs of a model."""

EMULATED_INPUTS = (TensorSpec(name="input", datatype="FP32", shape=(-1, 4)),)
EMULATED_OUTPUTS = (TensorSpec(name="output", datatype="FP32", shape=(-1, 4)),)


def backend_spec(entry: BackendSettings) -> BackendSpec:
    """The backend of a model's settings; packages of its own are where `installed` puts them."""
    folder = "" if entry.folder is None else str(entry.folder.absolute())
    requirements = _requirements(entry)
    packages = "" if requirements is None else str(place_of(requirements, packages_dir()).absolute())
    return BackendSpec(
        kind=entry.kind, target=entry.target, folder=folder, streams=entry.streams, packages=packages
    )


def _requirements(entry: BackendSettings) -> Path | None:
    return requirements_of(entry.target, entry.folder) if entry.kind == "python" else None


def has_packages(entry: BackendSettings) -> bool:
    """True for a Python model that brings packages of its own."""
    return _requirements(entry) is not None


def tensors_of(backend: BackendSettings, name: str) -> Tensors:
    """Inputs and outputs of the model; a server behind an agent tells its own. name: the model's, for errors.

    A model with packages of its own is loaded in a process of its own, with these.
    """
    if backend.kind == "emulated":
        return EMULATED_INPUTS, EMULATED_OUTPUTS
    if backend.kind != "python":
        url = urlsplit(backend.target)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise Misconfigured(f"a backend of kind {backend.kind} needs http://HOST:PORT, not {backend.target!r}")
        return (), ()
    requirements = _requirements(backend)
    if requirements is not None:
        return _tensors_apart(backend_spec(backend), requirements, name)
    model = _model_of(backend)
    if mistakes := class_mistakes(model):
        raise Misconfigured(f"model {backend.target!r}: {'; '.join(mistakes)}")
    model_ = cast("PythonModel", model)
    return tuple(model_.inputs), tuple(model_.outputs)


def check_loads(spec: BackendSpec, name: str) -> Tensors:
    """Load a Python model as its agents will; its inputs and outputs. Errors: Misconfigured."""
    folder = Path(spec.folder) if spec.folder else None
    if not spec.packages:
        model = make_model(spec.target, folder)
        return tuple(model.inputs), tuple(model.outputs)
    make = partial(make_model, spec.target, folder)
    backend = ReplicatedBackend(make, Parallelism(), name=name, packages=Path(spec.packages) / kind_here())

    async def load() -> None:
        try:
            await backend.start()
        finally:
            await backend.close()

    asyncio.run(load())
    return backend.inputs, backend.outputs


def _tensors_apart(spec: BackendSpec, requirements: Path, name: str) -> Tensors:
    """Install the packages where they are not there, and load the model with them. Errors: Misconfigured.

    What a version said is kept beside its packages: all processes of a service ask.
    """
    if not is_installed(requirements, packages_dir()):
        note(f"{name}: installing {requirements}")
    known = install(name, requirements, packages_dir()) / version_of(spec)
    try:
        started = read_started(known.read_bytes()[HEAD.size :], b"")
    except (OSError, ValueError):
        started = Started(*check_loads(spec, name))
        known.write_bytes(pack_started(started))
    return started.inputs, started.outputs


def can_switch(backend: BackendSettings) -> bool:
    """True for a Python model that switches between variants; one with packages of its own has none."""
    return not has_packages(backend) and callable(getattr(_model_of(backend), "switch", None))


def _model_of(backend: BackendSettings) -> object:
    """The model of a Python backend, or its class: one that says what it needs has not to be made, for seconds."""
    factory = load_model(backend.target, backend.folder)
    declared = getattr(factory, "inputs", None)
    return factory if isinstance(declared, tuple | list) else make_model(backend.target, backend.folder)
