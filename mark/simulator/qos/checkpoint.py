"""Checkpoint of a training, which is also the trained policy: weights, Adam's moments and what it was made for."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from pathlib import Path
from typing import Annotated, NamedTuple
from zipfile import BadZipFile

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mark.dispatch.variants.qos import QosPool
from mark.dispatch.variants.qos_policy import QosNetwork, action_count, feature_count, network_shapes
from mark.domain.errors import Misconfigured

FORMAT = "mark-qos/3"
"""Another one wherever a state's numbers or what weights mean change: such a file would be read wrongly."""
_GROUPS = ("network", "first", "second", "best")


class Progress(NamedTuple):
    """A training as it stands: weights, Adam's two moments of them, steps, and iterations that are done."""

    network: QosNetwork
    first: QosNetwork
    second: QosNetwork
    steps: int
    iterations: int
    #: mean loss a decision of each iteration, while it explored
    lost: tuple[float, ...]
    #: weights that lost least on the streams to choose by, and what they lost there
    best: QosNetwork
    best_lost: float


class Made(BaseModel):
    """Facts of a training: what another one must share to go on with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: str = FORMAT
    #: types and counts; the order is part of what a network sees
    devices: tuple[tuple[str, Annotated[int, Field(ge=1)]], ...]
    #: `figures_of` the pool
    figures: str
    load: str
    #: hashes of the days that it learned from
    days: tuple[str, ...]
    qps: float
    seed: int
    job_s: float
    iterations: int
    #: the `Conditions` that it was made under
    unit_s: float
    network_s: float | None
    noise_cv: float
    drop_late: bool
    #: whether the reward is the paper's
    windowed: bool


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    made: Made
    steps: int
    done: int
    lost: tuple[float, ...]
    best_lost: float


def figures_of(pool: QosPool) -> str:
    """A hash of what batches take on the pool, what variants are worth, and of not waiting where it does not."""
    own = [] if pool.waits else ["never waits"]
    text = json.dumps([pool.sizes, pool.kappa, [pool.delay_s[kind] for kind in pool.kinds], *own])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def train_command(model: str | None) -> str:
    """The command that trains a policy for the instances of a model, or for devices of the paper."""
    return "mark qos train" if model is None else f"mark qos train --model {model}"


def checkpoint_bytes(progress: Progress, made: Made) -> bytes:
    """The file's content."""
    header = _Header(
        made=made, steps=progress.steps, done=progress.iterations, lost=progress.lost, best_lost=progress.best_lost
    )
    arrays = {
        f"{group}_{name}": part for group in _GROUPS for name, part in getattr(progress, group)._asdict().items()
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.array(header.model_dump_json()), **arrays)
    return buffer.getvalue()


def read_checkpoint(path: Path, pool: QosPool, train: str = train_command(None)) -> tuple[Progress, Made]:
    """The training in a file, for this pool. train: the command that makes one, for Misconfigured to name."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            if (format_ := json.loads(str(found["header"]))["made"]["format"]) != FORMAT:
                raise Misconfigured(f"{path}: its format {format_} is not {FORMAT}; train anew with `{train}`")
            header = _Header.model_validate(json.loads(str(found["header"])))
            groups = [QosNetwork(*(found[f"{g}_{name}"] for name in QosNetwork._fields)) for g in _GROUPS]
    except FileNotFoundError as error:
        raise Misconfigured(f"{path}: no such file; make one with `{train}`") from error
    except (OSError, EOFError, BadZipFile, KeyError, TypeError, ValueError, ValidationError, zlib.error) as error:
        raise Misconfigured(f"{path}: not a policy that `mark qos train` wrote") from error
    shapes = network_shapes(feature_count(pool), action_count(pool))
    fits = all(part.shape == shape for group in groups for part, shape in zip(group, shapes, strict=True))
    made = header.made
    if made.devices != tuple(pool.devices.items()):
        devices = ",".join(f"{name}={count}" for name, count in made.devices)
        raise Misconfigured(
            f"{path} was trained for the pool {devices}, in this order; train one for yours with `{train}`"
        )
    if made.figures != figures_of(pool) or not fits:
        raise Misconfigured(
            f"{path} was trained for other variants, or other times of batches: train anew with `{train}`"
        )
    if not all(np.isfinite(part).all() for group in groups for part in group[:4]):
        raise Misconfigured(f"{path}: weights that are no numbers; train anew with `{train}`")
    network, first, second, best = groups
    state = Progress(network, first, second, header.steps, header.done, header.lost, best, header.best_lost)
    return state, made
