"""A learned scheduler for a pool and a load: trained, or gone on with from its checkpoint."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import mark
from mark.dispatch.variants.qos import QosPool
from mark.domain.errors import Misconfigured
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.qos import drawn_load, policy_gradient
from mark.simulator.qos.checkpoint import Made, Progress, checkpoint_bytes, figures_of, read_checkpoint
from mark.simulator.qos.episode import PAPER, Conditions

SAVE_EACH = 10
"""Iterations between two checkpoints."""
CODE = (
    *("cloudmodel/noise.py", "cloudmodel/world.py", "dispatch/variants/qos.py", "dispatch/variants/qos_policy.py"),
    *(
        "dispatch/variants/slackfit.py",
        "simulator/engine/kernel_qos.py",
        "simulator/engine/kernel_variants.py",
        "simulator/request_streams.py",
    ),
    *(
        "simulator/rng.py",
        "simulator/qos/episode.py",
        "simulator/qos/drawn_load.py",
    ),
    "simulator/qos/policy_gradient.py",
)
"""Files that what is learned hangs on."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Inputs of a training. qps: mean load of a day; job_s: length of a stream."""

    pool: QosPool
    load: drawn_load.DailyLoad
    qps: float
    job_s: float
    iterations: int
    seed: int
    conditions: Conditions = PAPER
    #: Whether it learns by the paper's reward.
    windowed: bool = False

    @property
    def made(self) -> Made:
        """Facts that its checkpoint carries."""
        return Made(
            devices=tuple(self.pool.devices.items()),
            figures=figures_of(self.pool),
            load=self.load.fingerprint,
            days=self.load.day_hashes(self.load.learned),
            qps=self.qps,
            seed=self.seed,
            job_s=self.job_s,
            iterations=self.iterations,
            windowed=self.windowed,
            **asdict(self.conditions),
        )

    @property
    def file_name(self) -> str:
        """Name of its checkpoint in a cache: another one for other inputs or other code."""
        digest = hashlib.sha256(self.made.model_dump_json().encode())
        for name in CODE:
            digest.update((Path(mark.__file__).parent / name).read_bytes())
        return f"qos-{digest.hexdigest()[:16]}.npz"


def learn(
    lesson: Lesson,
    kernel: VariantKernel,
    path: Path | None,
    progress: Callable[[float], None],
    *,
    save_each: int = SAVE_EACH,
) -> Progress:
    """Train to the end. A checkpoint at `path` is gone on with, and written again each `save_each` iterations."""
    state: Progress | None = None
    if path is not None and path.exists():
        state, made = read_checkpoint(path, lesson.pool)
        if made.model_copy(update={"iterations": lesson.iterations}) != lesson.made:
            raise Misconfigured(f"{path} holds a training with other inputs: name another file, or remove it")
    if state is not None and state.iterations >= lesson.iterations:
        return state
    draw = lesson.load.drawing(lesson.job_s, lesson.qps, lesson.conditions)
    practice = policy_gradient.Practice(
        pool=lesson.pool, draw=draw, kernel=kernel, conditions=lesson.conditions, windowed=lesson.windowed
    )
    if state is None:
        state = policy_gradient.start_training(practice, lesson.seed)
    while state.iterations < lesson.iterations:
        progress(state.iterations / lesson.iterations)
        state = policy_gradient.train_further(practice, state, lesson.iterations, lesson.seed)
        if path is not None and (state.iterations % save_each == 0 or state.iterations == lesson.iterations):
            _replace(path, checkpoint_bytes(state, lesson.made))
    return state


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole: an interrupted training leaves the last checkpoint."""
    draft: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        Path(draft).replace(path)
    except OSError as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        raise Misconfigured(f"cannot write {path}: {error.strerror}") from error
