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
from mark.config.rollout import RolloutSettings
from mark.config.settings import Settings
from mark.config.training import trains_in_function
from mark.deployment.bundles import overflowing
from mark.live.models import LiveModel
from mark.plugins.trained import may_train_elsewhere, may_train_with_torch

FOLDER = Path(mark.__file__).parent / "infra" / "image"
WHEEL = "mark.infra.wheel"
"""Module that puts MArk's wheel into a folder: it is installed in the image."""
OF_ONE_PROCESSOR = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)
"""Media types of manifests that are no list (OCI image specification, Docker's image manifest v2)."""
OF_PROCESSORS = (
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
"""Media types of lists of images by processor (the same specifications)."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutImage:
    """An image that the settings name. `architectures`: processors that it has to be for, where that is known."""

    #: Of the settings, in `rollout`.
    key: str
    image: str | None
    #: In `infra/image`; None for one that others make.
    dockerfile: str | None = None
    architectures: tuple[str, ...] = ()
    #: Of the Dockerfile; empty for its last.
    target: str = ""

    @property
    def of_function(self) -> bool:
        """True for one that Lambda runs."""
        return self.dockerfile == FOR_FUNCTIONS


def process_images(settings: Settings, models: Sequence[LiveModel]) -> tuple[ProcessImage, ...]:
    """The images of gateways, agents and controllers. Whoever has none of their own runs `rollout.image`."""
    rollout = settings.rollout
    rented: set[str] = {item.instance_type.architecture for model in models for item in model.served.offerings}
    around: set[str] = {(rollout.node if rollout.shape == "lean" else gateway_machine(settings)).architecture}
    in_python = any(model.served.backend.kind == "python" for model in models)
    learning = [model.bundle.forecaster for model in models if may_train_with_torch(model.bundle.forecaster)]
    in_function = rollout.training_image is not None
    trains = any(not (in_function and may_train_elsewhere(forecaster)) for forecaster in learning)
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


def rollout_images(settings: Settings, models: Sequence[LiveModel]) -> tuple[RolloutImage, ...]:
    """All images that the service needs, those of processes first; `image` is None where one is not named."""
    rollout = settings.rollout
    infer = rollout.functions.infer_image if overflowing(models) else None
    train = rollout.training_image if trains_in_function(settings) else None
    return (
        *(
            RolloutImage(
                key=one.key,
                image=one.image,
                dockerfile=FOR_PROCESSES,
                architectures=one.architectures,
                target=one.target,
            )
            for one in process_images(settings, models)
        ),
        RolloutImage(key="model_image", image=rollout.model_image),
        RolloutImage(key="training_image", image=train, dockerfile=FOR_FUNCTIONS),
        RolloutImage(key="functions.infer_image", image=infer, dockerfile=FOR_FUNCTIONS),
    )


def unfit_for_processors(image: RolloutImage, manifest: str) -> str | None:
    """The fault of an image whose processors are not those that it runs on; None where none shows.

    manifest: its media type, which tells one processor from a list of them, not which ones.
    """
    if image.of_function:
        if manifest not in OF_PROCESSORS:
            return None
        return f"{image.image} is a list of images by processor, and a Lambda function takes the image of one"
    if manifest not in OF_ONE_PROCESSOR or len(image.architectures) < 2:
        return None
    return f"{image.image} is for one processor, and its processes run on {' and '.join(image.architectures)}"


def remedy_of(image: RolloutImage) -> str:
    """Remedy for an image that is missing, or whose processors are the wrong ones."""
    named = image.image or ""
    makes = (
        f"{builds(named, image.dockerfile, image.architectures, image.target)}; "
        if image.dockerfile
        else "push it, or "
    )
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


def images_of(rollout: RolloutSettings) -> tuple[str, ...]:
    """The images that the settings name, each once."""
    named = (rollout.image, rollout.agent_image, rollout.model_image, rollout.training_image)
    return tuple(dict.fromkeys(filter(None, (*named, rollout.functions.infer_image))))


def delete_command(image: str) -> str:
    """The command that removes an image from ECR."""
    name, _, digest = image.partition("/")[2].partition("@")
    repository, _, tag = name.partition(":")
    what = f"imageDigest={digest}" if digest else f"imageTag={tag}"
    region = image.split(".")[3]
    return f"aws ecr batch-delete-image --region {region} --repository-name {repository} --image-ids {what}"
