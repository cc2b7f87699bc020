"""Trainings in the service's function `train`, whose image has what this process's lacks, such as torch.

The order and its result lie in the service's bucket, under a key of the order's digest (`mark.plugins.trained`).
What another controller ordered is taken if it is there still. Otherwise the order is written, its result marked
as pending, and the function is told; the result is looked for until it is there or the time is over. Whatever
fails is the training's error, and the forecaster stays as it was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from mark import __version__
from mark.aws.resources import TRAIN_TIMEOUT_S
from mark.aws.session import Aws
from mark.aws.trainings import fetch_result, order_training, training_key
from mark.config.settings import Settings
from mark.config.training import trains_in_function
from mark.domain.errors import MarkError, RetryLater
from mark.live.aws_clients import aws_of
from mark.live.forecasting.forecaster_training import Task, Trainer, TrainingFailed
from mark.live.local.running import Running
from mark.live.models import LiveModel
from mark.plugins.trained import PENDING, ResultRefused, TrainingOrder, may_train_elsewhere, read_result
from mark.store.published_status import RESOURCES
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

POLL_S = 10.0
START_S = 120.0
"""Beside the function's own limit: its image is loaded, and its call may wait for a free environment."""


class FunctionTrainer:
    """One training in the function of a service; `bucket` is asked for when it begins.

    ordered: whether another controller had the same made before.
    """

    def __init__(
        self,
        aws: Callable[[], Aws],
        bucket: Callable[[], str],
        *,
        service: str,
        model: str,
        ordered: bool,
        poll_s: float = POLL_S,
    ) -> None:
        self._aws, self._bucket, self._service, self._model = aws, bucket, service, model
        self._ordered, self._poll_s = ordered, poll_s
        self._stopped = threading.Event()

    def train(self, task: Task, limit_s: float) -> None:
        """Take the result into the task's cache; see `Trainer`."""
        order = TrainingOrder(
            forecaster=task.forecaster, history=task.history, seed=task.seed, version=__version__
        )
        with closing(self._aws()) as aws:
            key, bucket = training_key(self._service, self._model, order.name), self._bucket()
            files = self._there(aws, bucket, key, order) if self._ordered else None
            if files is None:
                order_training(aws, self._service, bucket, key, order)
                files = self._awaited(aws, bucket, key, order, min(limit_s, TRAIN_TIMEOUT_S + START_S))
        task.cache_dir.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (task.cache_dir / name).write_bytes(content)

    def stop(self) -> None:
        """Look for the result no longer; the function goes on, and its result may be taken later."""
        self._stopped.set()

    def _there(self, aws: Aws, bucket: str, key: str, order: TrainingOrder) -> Mapping[str, bytes] | None:
        """Files of the result that another controller had made; None where it cannot be taken any more."""
        try:
            return read_result(fetch_result(aws, bucket, key), order)
        except (MarkError, ResultRefused) as error:
            log.info("a training is ordered again: its result cannot be taken", extra={"why": str(error)})
            return None

    def _awaited(
        self, aws: Aws, bucket: str, key: str, order: TrainingOrder, limit_s: float
    ) -> Mapping[str, bytes]:
        """Files of the result once it is there."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if self._stopped.wait(self._poll_s):
                raise TrainingFailed("the service ends")
            try:
                document = fetch_result(aws, bucket, key)
            except RetryLater as error:
                log.info("a training's result is looked for again", extra={"why": str(error)})
                continue
            if document != PENDING:
                return read_result(document, order)
        raise TrainingFailed(f"its function had no result within {limit_s:g} s")


def function_trainers(
    settings: Settings, running: Running, store: ServiceStore
) -> Callable[[LiveModel], Callable[[bool], Trainer] | None]:
    """For each model what makes its trainers in the function; None for one that trains in a child process."""

    def bucket() -> str:
        resources = RESOURCES.read(store)
        if resources is None:
            raise RetryLater("nobody has said yet what the service has in AWS")
        return resources.bucket

    def trainers(model: LiveModel) -> Callable[[bool], Trainer] | None:
        if not (trains_in_function(settings) and may_train_elsewhere(model.bundle.forecaster)):
            return None
        aws = partial(aws_of, settings.service.aws.region, running, "controller")
        return lambda ordered: FunctionTrainer(
            aws, bucket, service=running.name, model=model.name, ordered=ordered
        )

    return trainers
