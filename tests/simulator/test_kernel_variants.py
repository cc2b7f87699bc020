"""The kernel of variants: plain, compiled, with a caller that decides, and a model that shares nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.variants.slackfit import Choices, plainly
from mark.simulator.engine import kernel_variants as variants
from mark.simulator.engine.compiled import VariantKernel, compiled_variant_kernel, plain_variant_kernel

STEP_S = 0.5
WAIT_S = 0.25


@pytest.fixture(scope="session")
def compiled() -> VariantKernel:
    return compiled_variant_kernel(Path(tempfile.gettempdir()) / "mark-test-engine")


class Case:
    """Random requests, workers and tables. Half of the cases have halves of seconds: much happens at once."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        types, levels, largest = (int(rng.integers(1, high)) for high in (3, 4, 6))
        workers, requests, slacks = (int(rng.integers(1, high)) for high in (5, 80, 7))
        gaps = rng.exponential(rng.uniform(0.1, 1.5), requests)
        latency_s = np.sort(rng.uniform(0.1, 4.0, (types, levels, largest + 1)), axis=2)
        if rng.integers(2):
            gaps, latency_s = np.round(2 * gaps) / 2, np.round(2 * latency_s + 0.5) / 2
        arrived_s = np.cumsum(gaps)
        deadline_s = arrived_s + rng.uniform(0.5, 5.0, requests)
        come = np.where(rng.random(workers) < 0.2, rng.uniform(0, 20, workers), 0.0)
        go = np.where(rng.random(workers) < 0.2, rng.uniform(0, 40, workers), np.inf)
        come[0], go[0] = 0.0, np.inf
        self.requests = variants.Requests(
            arrived_s,
            deadline_s,
            deadline_s + rng.uniform(0.0, 2.0, requests),
            np.where(rng.random(requests) < 0.1, rng.integers(levels, size=requests), 0),
        )
        self.workers = variants.Workers(
            rng.integers(types, size=workers), come, go, latency_s, rng.uniform(0.8, 1.3, 8)
        )
        shape = (types, slacks, largest + 1)
        batch = np.where(rng.random(shape) < 0.1, 0, rng.integers(1, largest + 1, shape))
        batch[:, 0] = np.maximum(1, batch[:, 0])  # who waits without slack waits for ever
        self.choices = plainly(Choices(batch, rng.integers(levels, size=shape), STEP_S))
        self.drop_late = bool(rng.integers(2))
        needs = np.sort(rng.uniform(0.0, 4.0, (1, 3)))
        self.needs_s = needs if rng.integers(2) else variants.ANY_TIME

    def run(self, kernel: VariantKernel, *, asks: bool = False) -> variants.Work:
        rules = variants.VariantRules(asks=asks, drop_late=self.drop_late, wait_s=WAIT_S, needs_s=self.needs_s)
        work = variants.make_work(
            self.requests.arrived_s.size, self.workers.kind.size, self.workers.latency_s.shape[2] - 1
        )
        while kernel.run(self.requests, self.workers, self.choices, rules, work) == variants.ASK:
            slack_s = self.requests.deadline_s[work.heap[0]] - work.clock[0]
            kind = self.workers.kind[work.counts[variants.ASKED]]
            work.choice[:] = self.chosen(kind, slack_s, work.counts[variants.QUEUED])
        return work

    def chosen(self, kind: int, slack_s: float, queued: int) -> tuple[int, int]:
        table = self.choices.choices
        _, slacks, columns = table.batch.shape
        at = (kind, min(max(0, int(slack_s / STEP_S + 1e-9)), slacks - 1), min(queued, columns - 1))
        return int(table.batch[at]), int(table.variant[at])


def modelled(case: Case) -> tuple[list[float], list[int]]:  # noqa: C901, PLR0912, PLR0915 - one event loop
    """The same rules over sorted lists, written for reading: finish (nan unanswered) and variant by request."""
    requests, workers = case.requests, case.workers
    count = requests.arrived_s.size
    finish, variant = [float("nan")] * count, [variants.NONE] * count
    serving: dict[int, tuple[float, list[int], int]] = {}
    asleep: dict[int, float] = {}
    queue: list[int] = []
    coming, decisions, left, now = 0, 0, 0, -np.inf
    while left < count:
        due = [min(end, workers.until_s[w]) for w, (end, _, _) in serving.items()]
        due += [requests.arrived_s[coming]] if coming < count else []
        if queue:
            idle = [w for w in range(workers.kind.size) if w not in serving]
            due += [workers.from_s[w] for w in idle if workers.from_s[w] > now]
            due += [asleep[w] for w in idle if now < asleep.get(w, now) < workers.until_s[w]]
        now = min(due, default=np.inf)
        if now == np.inf:
            break
        for w, (end, batch, level) in sorted(serving.items()):
            if end <= min(now, workers.until_s[w]):
                left += len(batch)
                for request in batch:
                    finish[request], variant[request] = end, level
                del serving[w]
            elif workers.until_s[w] <= now:
                queue += batch
                del serving[w]
        while coming < count and requests.arrived_s[coming] <= now:
            queue.append(coming)
            coming += 1
            asleep.clear()
        there = [w for w in range(workers.kind.size) if workers.from_s[w] <= now < workers.until_s[w]]
        for w in range(workers.kind.size):
            queue.sort(key=lambda request: (requests.deadline_s[request], request))
            while case.drop_late and queue:
                first = queue[0]
                least = min(
                    (workers.latency_s[workers.kind[o], requests.floor[first] :, 1].min() for o in there),
                    default=0.0,
                )
                least = max(least, float(case.needs_s[0, min(len(queue), case.needs_s.shape[1] - 1)]))
                if not there or now + least <= requests.limit_s[first]:
                    break
                queue.pop(0)
                left += 1
            if not queue:
                break
            if w in serving or w not in there or asleep.get(w, -np.inf) > now:
                continue
            kind = int(workers.kind[w])
            taken, level = case.chosen(kind, requests.deadline_s[queue[0]] - now, len(queue))
            decisions += 1
            batch, queue = queue[:taken], queue[taken:]
            if not batch:
                asleep[w] = now + WAIT_S
                continue
            level = max(level, *(int(requests.floor[request]) for request in batch))
            noise = workers.noise[decisions % workers.noise.size]
            serving[w] = (now + workers.latency_s[kind, level, len(batch)] * noise, batch, level)
    return finish, variant


@given(st.integers(0, 2**32 - 1))
def test_every_request_fares_as_in_a_model_that_is_written_for_reading(seed: int):
    case = Case(seed)
    work = case.run(plain_variant_kernel())
    finish_s, variant = modelled(case)
    np.testing.assert_array_equal(work.finish_s, finish_s)
    assert list(work.variant) == variant


@given(st.integers(0, 2**32 - 1))
def test_compiled_code_and_a_caller_that_decides_give_the_same(compiled: VariantKernel, seed: int):
    case = Case(seed)
    plain = case.run(plain_variant_kernel())
    for other in (case.run(compiled), case.run(compiled, asks=True)):
        np.testing.assert_array_equal(other.finish_s, plain.finish_s)
        np.testing.assert_array_equal(other.variant, plain.variant)
        np.testing.assert_array_equal(other.counts, plain.counts)


@given(st.integers(0, 2**32 - 1))
def test_requests_leave_once_and_no_answer_is_below_its_floor(seed: int):
    case = Case(seed)
    work = case.run(plain_variant_kernel())
    answered = ~np.isnan(work.finish_s)
    assert work.counts[variants.LEFT] == answered.size  # one worker stays, so none is left behind
    assert answered.sum() + work.counts[variants.DROPPED] == answered.size
    assert (work.variant[answered] >= case.requests.floor[answered]).all()
    assert (work.finish_s[answered] > case.requests.arrived_s[answered]).all()
