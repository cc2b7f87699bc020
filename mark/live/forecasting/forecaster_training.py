"""One training in the background: in a child process of low priority, and then made again here from the cache.

A factory is a function of history, seed and settings and keeps what it learned in the cache, so making it a second
time is quick. The child gets its task on stdin, says on stdout what went wrong, and ends with its parent. Who
trains is a `Trainer`: the child, or a function of the service (`function_trainer.py`).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mark import __version__
from mark.adapters import adapter_of
from mark.domain.demand import Demand
from mark.plugins.load import build_forecaster
from mark.plugins.trained import TrainingOrder
from mark.ports import Forecaster, ForecasterSetup

log = logging.getLogger(__name__)

MODULE = "mark.live.processes.trainer"
ONE_THREAD = ("/usr/bin/env", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1")
STOP_S = 3.0
"""Time that a child has to end before it is killed."""


class TrainingFailed(Exception):
    """Nothing was trained; the message has the reason."""


class TrainerLost(TrainingFailed):
    """The trainer ended before it could say why, or had to be ended: nothing is known of the task itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A training: the forecaster to make, and its data."""

    forecaster: str
    history: Demand
    seed: int
    cache_dir: Path

    @property
    def setup(self) -> ForecasterSetup:
        """The setup that its factory is given."""
        return ForecasterSetup(history=self.history, seed=self.seed, cache_dir=self.cache_dir)


def read_task(data: bytes) -> Task:
    """The task that a parent wrote."""
    return adapter_of(Task).validate_json(data)


class Trainer(Protocol):
    """Fills the cache of one task; `stop` may be called by another thread, and before `train`."""

    def train(self, task: Task, limit_s: float) -> None:
        """Have the task's cache hold what its forecaster learned. Errors: any, with the reason."""

    def stop(self) -> None:
        """End it: `train` then fails."""


class Training:
    """Runs from when it is made. Once `done`, there is the `forecaster`, or an `error` with the reason.

    `prove` is given the forecaster before it counts as done, and raises where it is of no use. `slot` is held by
    the maker and released when it is over.
    """

    def __init__(
        self,
        task: Task,
        *,
        limit_s: float,
        prove: Callable[[Forecaster], object],
        slot: threading.Lock,
        trainer: Trainer | None = None,
    ) -> None:
        self.forecaster: Forecaster | None = None
        self.error = ""
        self.seconds = 0.0
        self._task, self._limit_s, self._prove, self._slot = task, limit_s, prove, slot
        self._trainer = trainer or ChildTrainer()
        self._over = threading.Event()
        # The kernel ends a child when the thread that started it ends: this one waits for it.
        self._thread = threading.Thread(target=self._run, name=f"training-{task.forecaster}", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """True once it is over."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until it is over, or for so long; returns whether it is over."""
        return self._over.wait(seconds)

    def stop(self) -> None:
        """End it; what its trainer is doing is lost, but for what it has cached."""
        self._trainer.stop()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._trainer.train(self._task, self._limit_s)
            made = build_forecaster(self._task.forecaster, self._task.setup)
            self._prove(made)
            self.forecaster = made
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code trains; the status says what it raised
            self.error = " ".join(str(error).split()) or type(error).__name__
            log.warning("a forecaster could not be trained", extra={"why": self.error})
        finally:
            self.seconds = time.monotonic() - began
            self._slot.release()
            self._over.set()


class ChildTrainer:
    """A child process of this one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def train(self, task: Task, limit_s: float) -> None:
        """Wait for the child; see `Trainer`."""
        with self._guard:
            if self._stopped:
                raise TrainingFailed("the service ends")
            self._child = _spawn()
        with self._child as child:
            try:
                said, _ = child.communicate(adapter_of(Task).dump_json(task), timeout=limit_s)
            except subprocess.TimeoutExpired as error:
                raise TrainerLost(f"not done within {limit_s:g} s") from error
            finally:
                _end(child)
        if child.returncode != 0:
            lines = said.decode(errors="replace").splitlines()
            if not lines:
                raise TrainerLost(f"its process ended with status {child.returncode}")
            raise TrainingFailed(lines[-1])

    def stop(self) -> None:
        """End the child."""
        with self._guard:
            self._stopped = True
            child = self._child
        if child is not None:
            _end(child)


def learn_first(task: Task, limit_s: float, trainer: Trainer) -> None:
    """Have the task's cache hold what its forecaster learned, unless a note says that it does.

    Whoever makes the forecaster afterwards loads no library that only learning takes. Errors: TrainingFailed.
    """
    if not _learned_note(task).exists():
        trainer.train(task, limit_s)
        note_learned(task)


def note_learned(task: Task) -> None:
    """Note that the task's cache holds what its forecaster learned."""
    with suppress(OSError):  # without the note it is made once more from the cache
        _learned_note(task).touch()


def _learned_note(task: Task) -> Path:
    order = TrainingOrder(forecaster=task.forecaster, history=task.history, seed=task.seed, version=__version__)
    return task.cache_dir / f"learned-{order.digest[:32]}"


def _spawn() -> subprocess.Popen[bytes]:
    """The child; it logs where we log."""
    command = [*ONE_THREAD, sys.executable, "-P", "-m", MODULE, str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own module


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP_S)
    if child.poll() is None:
        child.kill()
        child.wait()
