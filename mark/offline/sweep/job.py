"""Job of a worker, on this machine or another: one replay, or the yardsticks of one load.

A job holds all that decides its result but the trace, which is handed over beside it. Its key is made from the
same things (keys.py), so a result that is kept under the key is the result.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from mark.config.policies import chosen_overrides
from mark.config.settings import Settings
from mark.domain.errors import MarkError
from mark.offline.experiments import make_experiment
from mark.offline.simulate import run_remarks
from mark.offline.sweep.keys import code_digest
from mark.offline.workloads import workload_on
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_documents import RunDocument, run_document
from mark.simulator.traces.trace import Trace


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
    """Reference and floor of one load, USD; null where there is none."""

    reference_usd: float | None
    floor_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Result of a job: its document, or one line with the error."""

    job: SweepJob
    document: Mapping[str, Any] | None = None
    failure: str | None = None
    wall_s: float = 0.0


def attempt(job: SweepJob, trace: Trace) -> Finished:
    """Do the job; whatever goes wrong becomes its one line, so that the others go on."""
    began = time.monotonic()
    try:
        document = perform(job, trace)
    except MarkError as error:
        failure = str(error)
    except Exception as error:  # noqa: BLE001 - the worker's outermost driver: a defect ends its job, not the sweep
        failure = f"{type(error).__name__}: {error}"
    else:
        return Finished(job=job, document=document, wall_s=time.monotonic() - began)
    return Finished(job=job, failure=" ".join(failure.split()), wall_s=time.monotonic() - began)


def attempt_elsewhere(job: SweepJob, trace: Trace) -> Finished:
    """Run `attempt` in another process than the sweep's: refused where the code differs there."""
    if _own_code() != job.code:
        return Finished(
            job=job,
            failure="the worker has other code of mark than the sweep, or other packages; give it the same",
        )
    return attempt(job, trace)


def perform(job: SweepJob, trace: Trace) -> RunDocument | LoadYardsticks:
    """The document of the job: a run without yardsticks, or `reference_usd` and `floor_usd`."""
    settings = Settings.model_validate(job.settings)
    experiment = make_experiment(settings, workload=workload_on(settings, trace))
    if job.policy is None:
        reference_usd, floor_usd = experiment.yardsticks()
        return {"reference_usd": reference_usd, "floor_usd": floor_usd}
    result = experiment.run(job.policy, overrides=chosen_overrides(settings))
    result = replace(result, notes=(*run_remarks(settings, experiment, job.policy), *result.notes))
    return run_document(ComparedRun(result=result))


@functools.cache
def _own_code() -> str:
    """Of this process, which does not see what changes on the disk later."""
    return code_digest()
