"""The backend that a service names, as an adapter of `mark.ports.Backend`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

import numpy as np

from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Parallelism
from mark.domain.offerings.offering import Offering
from mark.plugins.packages import kind_here
from mark.ports import Backend, PythonModel
from mark.protocols.oip.replies import MODEL_VERSION
from mark.service_spec import BackendSpec, ServedModel
from mark.serving.backends.emulated import EmulatedBackend
from mark.serving.backends.isolation import Isolation
from mark.serving.backends.oip_server import OipBackend
from mark.serving.backends.python import PythonBackend
from mark.serving.backends.python_streams import PythonStreamBackend
from mark.serving.backends.replicas import ReplicatedBackend
from mark.serving.backends.servers import InvocationsBackend
from mark.serving.backends.tf_serving import TfServingBackend
from mark.serving.backends.threads import processors
from mark.serving.http.client import MAX_CONNECTIONS

log = logging.getLogger(__name__)
STREAMS_IN_AGENT = (
    "{name} streams, which runs in its agent's own process, and has a requirements.txt: install that beside MArk, "
    "and take the file away"
)


def real_time() -> float:
    """The speed of a service whose clock is the wall's."""
    return 1.0


def python_backend(
    make: Callable[[], PythonModel],
    wanted: Parallelism,
    *,
    name: str,
    version: str = MODEL_VERSION,
    streams: bool = False,
    isolation: Isolation | None = None,
    packages: Path | None = None,
    log_level: int = logging.INFO,
) -> PythonBackend | ReplicatedBackend:
    """A Python model with these replicas and threads, or as many as this machine has processors for.

    make: can be pickled where there are several replicas. Streams have one. isolation: a single replica has a
    process of its own, too, and is kept apart; and so it has one with packages of its own. log_level: of the
    replicas' processes.
    """
    parallelism = wanted.within(processors())
    if parallelism.replicas != wanted.replicas:
        log.warning("%s has a profile of %s replicas x threads; here run %s", name, wanted, parallelism)
    if streams:
        if packages is not None:
            raise Misconfigured(STREAMS_IN_AGENT.format(name=name))
        return PythonStreamBackend(make, name=name, version=version, threads=parallelism.threads)
    if parallelism.replicas == 1 and isolation is None and packages is None:
        return PythonBackend(make, name=name, version=version, threads=parallelism.threads)
    return ReplicatedBackend(
        make,
        parallelism,
        name=name,
        version=version,
        isolation=isolation,
        packages=packages,
        log_level=log_level,
    )


def make_backend(
    spec: BackendSpec,
    served: ServedModel,
    offering: Offering,
    *,
    make_model: Callable[[str, Path | None], PythonModel],
    now: Callable[[], float],
    speed: Callable[[], float] = real_time,
    rng: np.random.Generator,
    isolation: Isolation | None = None,
) -> Backend:
    """A backend that has not started. Errors: Misconfigured where its target cannot be one.

    isolation: a Python model gets a process of its own, and is kept apart from those beside it.

    make_model: makes the Python model of a name, its modules looked for in a folder first; can be pickled. now,
    speed: service time and how fast it moves, for CPU credits. rng: for the noise of an emulated model's times.
    """
    connections = max(MAX_CONNECTIONS, offering.batch.max_batch) if spec.streams else MAX_CONNECTIONS
    version = served.version or MODEL_VERSION
    match spec.kind:
        case "emulated":
            return EmulatedBackend(
                offering,
                name=served.name,
                inputs=served.inputs,
                outputs=served.outputs,
                now=now,
                speed=speed,
                rng=rng,
                variants=served.variant_serving,
                version=version,
            )
        case "python":
            # Loading imports the model's module: that is the starting backend's work, on its own thread.
            make = functools.partial(make_model, spec.target, Path(spec.folder) if spec.folder else None)
            parallelism = offering.profile.parallelism
            return python_backend(
                make,
                parallelism,
                name=served.name,
                version=version,
                streams=spec.streams,
                isolation=isolation,
                packages=_packages(spec, served.name),
            )
        case "oip":
            return OipBackend(spec.target, name=served.name, connections=connections, version=version)
        case "tf-serving":
            return TfServingBackend(
                spec.target, name=served.name, inputs=served.inputs, outputs=served.outputs, version=version
            )
        case "invocations":
            return InvocationsBackend(spec.target, connections=connections)
        case _:
            assert_never(spec.kind)


def _packages(spec: BackendSpec, name: str) -> Path | None:
    """The model's own packages for this machine. Misconfigured where its version was made for others."""
    if not spec.packages:
        return None
    place = Path(spec.packages) / kind_here()
    if not place.is_dir():
        raise Misconfigured(
            f"{name} has no packages of its own for machines of {kind_here()}: {place} is not there"
        )
    return place
