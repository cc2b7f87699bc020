"""A fixed number of workers that each serve every variant: what share is in time, and how accurate it is.

No controller and no cloud: requests wait in one queue by deadline, and a worker that is free takes a batch and
chooses its variant. A request that no allowed variant can answer in time any more leaves unanswered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mark.cloudmodel.noise import noise_factors, noise_quantile
from mark.dispatch.variants.slackfit import FREE, SLACKS, Shared, VariantRule, build_choices, full_needs_s, share
from mark.domain.errors import Misconfigured, unknown
from mark.domain.models.objective import Slo
from mark.domain.models.variants import VariantTable
from mark.simulator.engine import kernel_variants as kernels
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.rng import stream

Floats = NDArray[np.float64]
Rows = tuple[tuple[float, ...], ...]

CHEAPEST = "cheapest"
NOISES = 1 << 16
"""Factors on a batch's time that are drawn, and used in turn."""
ROUNDING_S = 1e-9
"""An answer this late is in time: sums of floats differ by less."""


@dataclass(frozen=True, slots=True)
class VariantPolicy:
    """A rule by its name; `fixed` is the variant of a rule that has one."""

    name: str
    rule: VariantRule
    fixed: int | None = None


def variant_policy(name: str, table: VariantTable) -> VariantPolicy:
    """The policy of a name: a rule's, `fixed:VARIANT`, `fixed-full:VARIANT`, or `cheapest`.

    `cheapest` is the least accurate variant alone.
    """
    if name == CHEAPEST:
        return VariantPolicy(name, VariantRule.FIXED, 0)
    if found := re.fullmatch(r"(fixed|fixed-full):(.+)", name):
        return VariantPolicy(name, VariantRule(found[1]), table.number(found[2]))
    if name not in FREE:
        raise unknown("policy", name, (*map(str, FREE), "fixed:VARIANT", "fixed-full:VARIANT", CHEAPEST))
    return VariantPolicy(name, VariantRule(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRun:
    """Outcome of a stream under a policy."""

    #: share of all requests that were answered in time
    attained: float
    #: mean accuracy of the variants that answered in time; None where none did
    accuracy: float | None
    #: requests a batch
    mean_batch: float
    decisions: int
    #: shape (seconds,): requests that arrived in each second, their share in time, and its mean accuracy
    arrived: NDArray[np.int64]
    attained_by_second: Floats
    accuracy_by_second: Floats


def _by_items(rows: Rows) -> Floats:
    """Shape (1, variants, largest batch + 1): seconds of a batch; column 0 is unused."""
    return np.pad(np.array(rows), ((0, 0), (1, 0)))[None]


@cache
def _choices(policy: VariantPolicy, rows: Rows, planned: float, horizon_s: float, slacks: int) -> Shared:
    """The policy's table, the same for any number of workers: to build it takes longer than most runs.

    rows: seconds by variant and items - 1. planned: a batch is planned to take so many times as long.
    """
    mean_s = _by_items(rows)
    latency_s = mean_s * planned
    choices = build_choices(policy.rule, latency_s, horizon_s=horizon_s, fixed=policy.fixed, slacks=slacks)
    return share(policy.rule, choices, latency_s, mean_s, horizon_s=horizon_s)


class FixedWorkers:
    """An evaluator of policies for one table, objective and number of workers.

    noise_cv: coefficient of variation of a batch's time around the table's. Policies then plan with a time that
    few batches take longer than: half of the share that the objective lets miss. They know how much times vary,
    not which will. slacks: steps of a policy's table.
    """

    def __init__(
        self,
        table: VariantTable,
        instance_type: str,
        *,
        workers: int,
        slo: Slo,
        kernel: VariantKernel,
        noise_cv: float = 0.0,
        seed: int = 0,
        slacks: int = SLACKS,
    ) -> None:
        if workers < 1:
            raise Misconfigured(f"requests need at least one worker, not {workers}")
        self._table, self._workers, self._slo, self._kernel = table, workers, slo, kernel
        self._slacks = slacks
        self._rows = tuple(map(tuple, table.rows(instance_type)))
        self._latency_s = _by_items(self._rows)
        self._planned = noise_quantile(noise_cv, (1 + slo.target) / 2)
        normals = stream(seed, "batch times").standard_normal(NOISES if noise_cv else 1)
        self._noise = np.array(noise_factors(noise_cv, normals.tolist()))
        self._accuracies = np.array([variant.accuracy for variant in table.variants])

    def run(self, name: str, arrived_s: Floats, until_s: Floats | None = None) -> VariantRun:
        """Serve a stream. arrived_s: shape (requests,), rising. until_s: shape (workers,), when each is lost."""
        if arrived_s.size == 0:
            raise Misconfigured("a stream needs at least one request")
        policy = variant_policy(name, self._table)
        deadline_s = arrived_s + self._slo.latency_s
        work = kernels.make_work(arrived_s.size, self._workers, self._table.max_batch)
        self._kernel.run(
            kernels.Requests(arrived_s, deadline_s, deadline_s, np.full(arrived_s.size, policy.fixed or 0)),
            kernels.Workers(
                kind=np.zeros(self._workers, np.int64),
                from_s=np.zeros(self._workers),
                until_s=np.full(self._workers, np.inf) if until_s is None else until_s,
                latency_s=self._latency_s,
                noise=self._noise,
            ),
            _choices(policy, self._rows, self._planned, self._slo.latency_s, self._slacks),
            kernels.VariantRules(
                asks=False, drop_late=True, wait_s=self._slo.latency_s, needs_s=self._needs_s(policy)
            ),
            work,
        )
        return self._outcome(arrived_s, work.finish_s <= deadline_s + ROUNDING_S, work)

    def _needs_s(self, policy: VariantPolicy) -> Floats:
        if policy.rule not in (VariantRule.SLACKFIT, VariantRule.FULL):
            return kernels.ANY_TIME
        number = int(self._latency_s[0, :, -1].argmin()) if policy.fixed is None else policy.fixed
        return full_needs_s(self._latency_s[0, number], self._slo.latency_s)[None]

    def _outcome(self, arrived_s: Floats, in_time: NDArray[np.bool_], work: kernels.Work) -> VariantRun:
        accuracy = self._accuracies[work.variant[in_time]]
        second = arrived_s.astype(np.int64)
        arrived = np.bincount(second)
        answered = np.bincount(second[in_time], minlength=arrived.size)
        summed = np.bincount(second[in_time], weights=accuracy, minlength=arrived.size)
        with np.errstate(invalid="ignore"):
            by_second = answered / arrived, summed / answered
        batches = int(work.counts[kernels.BATCHES])
        served = arrived_s.size - int(work.counts[kernels.DROPPED])
        return VariantRun(
            attained=float(in_time.mean()),
            accuracy=float(accuracy.mean()) if accuracy.size else None,
            mean_batch=served / batches if batches else 0.0,
            decisions=int(work.counts[kernels.DECISIONS]),
            arrived=arrived,
            attained_by_second=by_second[0],
            accuracy_by_second=by_second[1],
        )
