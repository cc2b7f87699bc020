"""The images that a rollout is told of, and the commands that build and push them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mark
from mark.config.footprint import gateway_machine
from mark.config.settings import Settings
from mark.live.models import LiveModel
from mark.plugins.trained import may_train_with_torch

FOLDER = Path(mark.__file__).parents[1] / "infra" / "image"
"""Beside MArk's packages, in a clone as in an installation."""
WHEEL = "infra.wheel"
"""Module that puts MArk's wheel into a folder: it is installed in the image."""
OF_ONE_PROCESSOR = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)
"""Media types of manifests that are no list (OCI image specification, Docker's image manifest v2)."""
FOR_PROCESSES, FOR_FUNCTIONS = "Dockerfile", "infer.Dockerfile"
LAMBDA_TAKES = ("--platform", "linux/amd64", "--provenance=false")
"""Functions are of x86_64, and Lambda refuses the list of manifests that provenance makes of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessImage:
    """An image of the service's processes. `target`: of the Dockerfile; `models` has torch."""

    #: Of the settings, in `rollout`.
    key: str
    image: str | None
    #: Processors that it runs on, sorted.
    architectures: tuple[str, ...]
    target: Literal["service", "models"]


def process_images(settings: Settings, models: Sequence[LiveModel]) -> tuple[ProcessImage, ...]:
    """The images of gateways, agents and controllers. Whoever has none of their own runs `rollout.image`."""
    rollout = settings.rollout
    rented: set[str] = {item.instance_type.architecture for model in models for item in model.served.offerings}
    around: set[str] = {(rollout.node if rollout.shape == "lean" else gateway_machine(settings)).architecture}
    in_python = any(model.served.backend.kind == "python" for model in models)
    learning = any(may_train_with_torch(model.bundle.forecaster) for model in models)
    trains = learning and rollout.training_image is None  # else a function does
    needs: dict[str, tuple[str | None, set[str], bool]] = {
        "image": (rollout.image, around, trains),
        "agent_image": (rollout.agent_image, rented, in_python),
    }
    shared = [need for key, need in needs.items() if key == "image" or need[0] is None]
    needs["image"] = (
        rollout.image,
        set[str]().union(*(runs_on for _, runs_on, _ in shared)),
        any(torch for *_, torch in shared),
    )
    return tuple(
        ProcessImage(
            key=key, image=image, architectures=tuple(sorted(on)), target="models" if torch else "service"
        )
        for key, (image, on, torch) in needs.items()
    )


def lacking_processor(image: str, manifest: str, architectures: Sequence[str]) -> str | None:
    """The fault of an image that is for fewer processors than it has to be; None where none shows.

    manifest: its media type, which tells one processor from a list of them, not which ones.
    """
    if manifest not in OF_ONE_PROCESSOR or len(architectures) < 2:
        return None
    return f"{image} is for one processor, and its processes run on {' and '.join(architectures)}"


def unfit_for_lambda(image: str, manifest: str) -> str | None:
    """The fault of a function's image that is a list of processors, which Lambda refuses; None without."""
    if manifest in OF_ONE_PROCESSOR:
        return None
    return f"{image} is a list of images by processor, and a Lambda function takes the image of one alone"


def remedy_of(image: str, dockerfile: str | None, architectures: Sequence[str] = (), target: str = "") -> str:
    """What to do about an image that is missing, or lacks a processor."""
    makes = f"{builds(image, dockerfile, architectures, target)}; " if dockerfile else "push it, or "
    return f"{makes}name one that is there (`aws ecr describe-images`)"


def builds(image: str, dockerfile: str, architectures: Sequence[str] = (), target: str = "") -> str:
    """Commands that build an image, to be pasted beside mark.yaml.

    architectures: processors that it has to be for, all of them; the builder's own where none is given.
    target: of the Dockerfile; the last where none is given.
    """
    path = FOLDER / dockerfile
    platforms = ("--platform", ",".join(f"linux/{one}" for one in architectures)) if architectures else ()
    targets = ("--target", target) if target else ()
    more = LAMBDA_TAKES if dockerfile == FOR_FUNCTIONS else (*targets, *platforms)
    makes = (
        (("docker", "buildx", "build", "-f", str(path), *more, "-t", image, "--push", "."),)
        if len(architectures) > 1
        else (("docker", "build", "-f", str(path), *more, "-t", image, "."), ("docker", "push", image))
    )
    steps = ((sys.executable, "-P", "-m", WHEEL), *makes)
    return f"`{' && '.join(map(shlex.join, steps))}` in the folder of mark.yaml makes it"
