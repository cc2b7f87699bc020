"""Job of a worker, here or elsewhere: one replay of what the settings serve, or the yardsticks of one load.

A job holds all that decides its result but its load, which is handed over beside it. Its key is made from the
same things (keys.py), so a result that is kept under the key is the result.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from mark.config.settings import Settings
from mark.domain.errors import MarkError
from mark.offline.sweep.keys import code_digest
from mark.offline.sweep.served import Load, replay_document, yardsticks_of
from mark.report.runs.run_documents import RunDocument
from mark.report.service.service_cell import ServiceCellDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJob:
    """A replay of `policy`, or without one the yardsticks of the load. `settings` is the tree, as JSON holds it.

    `trace` and `code` are digests: of the load, and of the modules that decide a result.
    """

    key: str
    trace: str
    code: str
    settings: Mapping[str, Any]
    policy: str | None
    label: str


class LoadYardsticks(TypedDict):
    """Reference and floor of one load, and the reference's total, USD; null where there is none."""

    reference_usd: float | None
    floor_usd: float | None
    reference_total_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Result of a job: its document, or one line with the error."""

    job: SweepJob
    document: Mapping[str, Any] | None = None
    failure: str | None = None
    wall_s: float = 0.0


def attempt(job: SweepJob, load: Load) -> Finished:
    """Do the job; whatever goes wrong becomes its one line, so that the others go on."""
    began = time.monotonic()
    try:
        document = perform(job, load)
    except MarkError as error:
        failure = str(error)
    except Exception as error:  # noqa: BLE001 - the worker's outermost driver: a defect ends its job, not the sweep
        failure = f"{type(error).__name__}: {error}"
    else:
        return Finished(job=job, document=document, wall_s=time.monotonic() - began)
    return Finished(job=job, failure=" ".join(failure.split()), wall_s=time.monotonic() - began)


def attempt_elsewhere(job: SweepJob, load: Load) -> Finished:
    """Run `attempt` in another process than the sweep's: refused where the code differs there."""
    if _own_code() != job.code:
        return Finished(
            job=job,
            failure="the worker has other code of mark than the sweep, or other packages; give it the same",
        )
    return attempt(job, load)


def perform(job: SweepJob, load: Load) -> RunDocument | ServiceCellDocument | LoadYardsticks:
    """The document of the job: a run without yardsticks, or the yardsticks alone."""
    settings = Settings.model_validate(job.settings)
    if job.policy is None:
        known = yardsticks_of(settings, load)
        return {
            "reference_usd": known.reference_usd,
            "floor_usd": known.floor_usd,
            "reference_total_usd": known.reference_total_usd,
        }
    return replay_document(settings, load, job.policy)


@functools.cache
def _own_code() -> str:
    """Of this process, which does not see what changes on the disk later."""
    return code_digest()
