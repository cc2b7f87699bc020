"""A model's forecaster in the service, retrained on a schedule and when it drifts.

States: idle, or one `Training` in the background, in a child process or in the service's training function. All
transitions are in `follow` (while we act, between two forecasts) and in `keep_up` (while another acts). What the
current forecaster was made of is in the store before it is used: a controller that takes over makes the same from
the cache, or from the function's result, so that a journal goes on with the same forecasts. A training that fails
or is late leaves the forecaster as it was.
"""

from __future__ import annotations

import logging
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from mark.adapters import adapter_of
from mark.config.service import RetrainSettings
from mark.controller.journal import Tick
from mark.controller.runner import Journal, check_forecast
from mark.controller.state import Decision, Note, NoteKind, Observation
from mark.domain.demand import Demand, Forecast
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.instances import FleetView
from mark.live.forecasting.drift import Drift, DriftPolicy, update_drift, worsening
from mark.live.forecasting.forecaster_training import (
    ChildTrainer,
    Task,
    Trainer,
    TrainerLost,
    Training,
    TrainingFailed,
    learn_first,
)
from mark.live.forecasting.own_clock import OwnClock
from mark.live.models import LiveModel
from mark.plugins.deadline import PunctualForecaster
from mark.plugins.load import build_forecaster
from mark.ports import Forecaster
from mark.store.published_status import FailedTraining, ForecasterStatus, RunningTraining, TrainingCause
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

PAUSE_S = 600.0
"""Real seconds from a process's start, or a training's end, to the next: a rehearsal's hours pass in minutes."""
REST = 4.0
"""A training is followed by a pause this many times as long: a model takes a fifth of a core at most."""
KEEP = 2
"""Trainings that stay in the cache: who makes the last but one when a new one comes need not train."""
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
"""History from which on a forecaster learns."""


def pause_after(took_s: float) -> float:
    """Real seconds that nothing is trained after a training that took so many."""
    return max(PAUSE_S, REST * took_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The record of the current forecaster: what it was made of, why, and since when it is used (service time).

    `took_s`: real seconds; None for the one that the service began with, which may have come from the cache.
    """

    forecaster: str
    seed: int
    why: TrainingCause
    at: float
    history: Demand
    took_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A training that runs. `again` is set where it makes what another controller made already."""

    training: Training
    task: Task
    why: TrainingCause
    since: float
    again: Trained | None = None


class Retraining:
    """One model's forecaster: a Forecaster itself, which delegates to whatever was trained last."""

    def __init__(
        self,
        model: LiveModel,
        settings: RetrainSettings,
        *,
        slot: threading.Lock,
        service: str,
        pause: Callable[[float], float] = pause_after,
        elsewhere: Callable[[bool], Trainer] | None = None,
    ) -> None:
        """Make the first forecaster. `slot` is shared by all of the service that may train, one at a time.

        elsewhere: makes what trains in another image, where this one may lack what it takes; it is told whether
        another controller had the same made before.
        """
        self.name = model.bundle.forecaster
        self._elsewhere = elsewhere
        self._model, self._settings, self._slot, self._pause = model, settings, slot, pause
        cache_dir = model.setup.cache_dir
        self._cache = cache_dir / "services" / service / model.name if cache_dir else None
        first = self._first_forecaster()
        self._untrained = isinstance(first, _Untrained)
        self._first = OwnClock(first, model.setup.history)
        self._current = PunctualForecaster(self._first, name=self.name)
        self._trained: Trained | None = None
        self._drift_policy = DriftPolicy(lead_units=model.bundle.controller.lead_units)
        self._drift = Drift()
        self._history = model.setup.history
        self._run: _Run | None = None
        self._failed: FailedTraining | None = None
        self._tried_at = self._given_up_at = -math.inf
        self._rest_until = time.monotonic() + pause(0.0)
        self.notes: list[Note] = []
        """Notes of trainings while we act that stand in no journal yet."""

    # What the controller asks.

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """The current forecaster's forecast; see `PunctualForecaster`."""
        return self._current.forecast(history, horizon)

    # While we act.

    def read(self, ticks: Iterable[Tick]) -> Iterator[Tick]:
        """The ticks of a journal as they are, noting on the way how its forecasts did."""
        self._drift = Drift()
        for tick in ticks:
            self._drift = update_drift(self._drift, tick.seen, self._drift_policy)
            yield tick

    def begin(self, store: ServiceStore, began_at: float) -> None:
        """A term begins; the service did at `began_at` (service time). Catch up where another trained since."""
        if self._trained is None:
            self._first.begin(began_at)
            history = self._model.history(began_at)
            self._trained = Trained(
                forecaster=self.name, seed=self._model.setup.seed, why="first", at=began_at, history=history
            )
        self.keep_up(store)

    def follow(self, seen: Observation, history: Demand, store: ServiceStore) -> None:
        """A tick was written down: note how forecasts do, take what has been trained, train where it is time."""
        self._history = history
        self._drift = update_drift(self._drift, seen, self._drift_policy)
        run = self._run
        if run is not None:
            if self._adopt(run, seen.now, store):
                self.notes.append(_ended(run))
            return
        why = self._due(seen.now)
        if why is not None and self._train(why, history, seen.now):
            self._tried_at = seen.now
            drift = worsening(self._drift, self._drift_policy)
            self.notes.append(_begun(why, history, drift, self._settings.limit_min))

    def told(self) -> ForecasterStatus | None:
        """The forecaster in the status document: the last training, drift, and what runs or failed."""
        trained, run = self._trained, self._run
        if trained is None:
            return None
        until = trained.history.end_at
        return ForecasterStatus(
            forecaster=self.name,
            why=trained.why,
            at=trained.at,
            from_=until - len(trained.history) * trained.history.unit_s,
            until=until,
            took_s=trained.took_s,
            drift=worsening(self._drift, self._drift_policy),
            training=RunningTraining(why=run.why, since=run.since) if run else None,
            failed=self._failed,
        )

    # While another acts.

    def keep_up(self, store: ServiceStore) -> bool:
        """Make what the acting controller made, in the background; returns whether nothing is left to be made."""
        if self._run is not None:
            if self._run.again is not None:
                self._adopt(self._run, self._run.since, store)
            return self._run is None
        known_at = max(self._given_up_at, self._trained.at if self._trained else -math.inf)
        told = store.status(f"trained:{self._model.name}")
        if told is None or told["at"] <= known_at or self._cache is None:
            return True
        try:
            record = adapter_of(Trained).validate_python(store.status(f"trained-on:{self._model.name}"))
        except ValidationError:
            log.warning(
                "a training's record of another version is ignored",
                extra={"model": self._model.name},
            )
            record = None
        if record is None or (record.forecaster, record.seed) != (self.name, self._model.setup.seed):
            self._given_up_at = told["at"]  # it was trained under other settings
            return True
        self._train(record.why, record.history, record.at, again=record)
        return False

    def stop(self) -> None:
        """End the training that runs."""
        if self._run is not None:
            self._run.training.stop()
            self._run = None

    # Both.

    def _first_forecaster(self) -> Forecaster:
        """The forecaster of the model's own past; one that is still to be trained, where this image cannot.

        A child learns, where there is enough to learn from. One that dies or hangs would be this process, if it
        tried again itself.
        """
        setup, history = self._model.setup, self._model.setup.history
        if setup.cache_dir is not None and len(history) * history.unit_s >= DAY_S:
            task = Task(forecaster=self.name, history=history, seed=setup.seed, cache_dir=setup.cache_dir)
            try:
                learn_first(task, self._settings.limit_min * 60, ChildTrainer())
            except TrainerLost as error:
                log.warning("the first forecaster could not be trained", extra={"why": str(error)})
                return _Untrained(str(error))
            except TrainingFailed:
                pass  # making it says why, and whether it can be used without
        try:
            return build_forecaster(self.name, setup)
        except Misconfigured as error:
            if self._elsewhere is None:
                raise
            log.warning("the first forecaster waits for its training", extra={"why": str(error)})
            return _Untrained(str(error))

    def _due(self, now: float) -> TrainingCause | None:
        """The cause of a training that is due now; None where none is."""
        trained = self._trained
        if trained is None or self._cache is None or time.monotonic() < self._rest_until:
            return None
        enough = len(self._history) * self._history.unit_s >= DAY_S
        return due_cause(
            self._settings,
            since_trained_h=(now - trained.at) / HOUR_S,
            since_tried_h=(now - self._tried_at) / HOUR_S,
            lacking=(self._elsewhere is not None or self._untrained) and trained.took_s is None and enough,
            drift=worsening(self._drift, self._drift_policy),
        )

    def _train(self, why: TrainingCause, history: Demand, now: float, again: Trained | None = None) -> bool:
        """Begin, where nothing else is being trained in this process; returns whether it has."""
        if self._cache is None or not self._slot.acquire(blocking=False):
            return False
        cache_dir = self._cache / f"{history.end_at:.0f}"
        task = Task(forecaster=self.name, history=history, seed=self._model.setup.seed, cache_dir=cache_dir)
        limit_s = self._settings.limit_min * 60
        trainer = self._elsewhere(again is not None) if self._elsewhere is not None else None
        training = Training(task, limit_s=limit_s, prove=self._prove, slot=self._slot, trainer=trainer)
        self._run = _Run(training=training, task=task, why=why, since=now, again=again)
        return True

    def _prove(self, made: Forecaster) -> None:
        """Have it forecast once off the critical path: the first forecast loads, computes and may fail."""
        history, horizon = self._history, self._model.bundle.controller.horizon
        check_forecast(made.forecast(history, horizon), history, horizon)

    def _adopt(self, run: _Run, now: float, store: ServiceStore) -> bool:
        """Use what was trained, if it is done; returns whether it is."""
        training = run.training
        if not training.done:
            return False
        if training.forecaster is None:
            self._failed = FailedTraining(at=now, why=run.why, error=training.error)
            self._given_up_at = run.again.at if run.again else self._given_up_at
        else:
            trained = run.again or self._record(run, now, store)
            before, self._trained = self._current, trained
            self._current = PunctualForecaster(training.forecaster, name=self.name)
            self._failed = None
            before.close()
            log.info("a retrained forecaster is in use", extra={"model": self._model.name, "why": run.why})
        self._run = None
        self._rest_until = time.monotonic() + self._pause(training.seconds)
        return True

    def _record(self, run: _Run, now: float, store: ServiceStore) -> Trained:
        """Write the record of a training before it is used; last the short key that other controllers poll."""
        trained = Trained(
            forecaster=self.name,
            seed=run.task.seed,
            why=run.why,
            at=now,
            history=run.task.history,
            took_s=round(run.training.seconds, 1),
        )
        store.put_status(f"trained-on:{self._model.name}", adapter_of(Trained).dump_python(trained, mode="json"))
        store.put_status(f"trained:{self._model.name}", {"at": trained.at})
        _drop_older(run.task.cache_dir)
        return trained


class _Untrained:
    """A forecaster before its first training: the controller's fallback answers, and each tick says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def forecast(self, history: Demand, horizon: int) -> Forecast:  # noqa: ARG002 - the port's signature
        """MarkError with the reason."""
        raise MarkError(f"it is not trained yet: {self._reason}")


def due_cause(
    asked: RetrainSettings, *, since_trained_h: float, since_tried_h: float, lacking: bool, drift: float | None
) -> TrainingCause | None:
    """The cause of a training that is due; None where none is.

    since_tried_h: hours since one began, infinite where none did. lacking: the first forecaster could not learn
    here what it can elsewhere, and now has the history to. drift: recent losses by usual ones, where known.
    """
    if since_tried_h < asked.at_least_h:
        return None
    if lacking:
        return "first"
    if since_trained_h < asked.at_least_h:
        return None
    if asked.every_h is not None and since_trained_h >= asked.every_h:
        return "schedule"
    return "drift" if drift is not None and asked.drift is not None and drift >= asked.drift else None


def _begun(why: TrainingCause, history: Demand, drift: float | None, limit_min: float) -> Note:
    """The journal's note that a training begins."""
    losses = "" if drift is None else f"; losses of late {drift:.2f}x the usual"
    return _noted(f"training begins ({why}) on {len(history)} min, {limit_min:g} min at most{losses}")


def _ended(run: _Run) -> Note:
    """The journal's note that a training is over, and how."""
    took, history = f"{run.training.seconds:.1f} s", run.task.history
    what = f"({run.why}) on {len(history)} min"
    if run.training.forecaster is None:
        return _noted(f"training {what} failed after {took}: {run.training.error}; the one before goes on")
    if run.again is not None:
        return _noted(f"what another controller trained {what} is in use from now on, made again in {took}")
    return _noted(f"training {what} is done after {took}: it is in use from now on")


def _noted(text: str) -> Note:
    return Note(kind=NoteKind.TRAINING, text=f"forecaster: {text}")


def _drop_older(newest: Path) -> None:
    """Delete what was learned before, but for the last: a year of trainings would fill a disk."""
    with suppress(OSError):  # somebody else tidies up
        others = [folder for folder in newest.parent.iterdir() if folder != newest]
        others.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in others[KEEP - 1 :]:
            shutil.rmtree(folder, ignore_errors=True)


class FollowedJournal:
    """A journal that calls `follow` after each tick. `notes` go into the next tick, and are dropped then."""

    def __init__(self, journal: Journal, follow: Callable[[Observation], None], notes: list[Note]) -> None:
        self._journal, self._follow, self._notes = journal, follow, notes

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick, then call `follow`."""
        noted = replace(decision, notes=(*decision.notes, *self._notes)) if self._notes else decision
        self._journal.append(before, seen, noted)
        self._notes.clear()
        self._follow(seen)
