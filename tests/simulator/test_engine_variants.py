"""Variants in the engine: each instance chooses one, and how many it takes, when it starts a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.dispatch.policy import Bounced, DispatchPolicy, Late
from mark.dispatch.slackfit import VariantRule
from mark.dispatch.variants import VariantDispatch, VariantServing
from mark.domain.errors import Misconfigured
from mark.domain.objective import Slo
from mark.domain.variants import Variant, VariantTable
from mark.simulator.engine.compiled import Kernel, plain_kernel
from mark.simulator.engine.data_plane import Engine
from tests.planner.builders import offering
from tests.simulator.engines import batching, engine, poisson

SLO = Slo(latency_s=0.5, target=0.98)
TYPE = "c5.large"
LOSSY = DispatchPolicy(bounced=Bounced.NOWHERE, late=Late.SHED, admission_factor=1.0)
CASES = [
    VariantDispatch(),
    VariantDispatch(VariantRule.MAXACC),
    VariantDispatch(VariantRule.MAXBATCH),
    VariantDispatch(VariantRule.FIXED, "middle"),
]


def rows(*full_s: float, batch: int = 8) -> tuple[tuple[float, ...], ...]:
    """Latencies that rise from a third to all of `full_s`."""
    return tuple(tuple(float(s) for s in np.linspace(last / 3, last, batch)) for last in full_s)


TABLE = VariantTable(
    model="net",
    variants=(Variant("small", 0.7), Variant("middle", 0.75), Variant("large", 0.8)),
    latency_s={TYPE: rows(0.06, 0.12, 0.25)},
)


def serving(dispatch: VariantDispatch, floor: int = 0, table: VariantTable = TABLE) -> VariantServing:
    return VariantServing(table=table, dispatch=dispatch, floor=floor, max_batch={TYPE: 8}, late={TYPE: 1.0})


def surge(kernel: Kernel, variants: VariantServing, seed: int = 3, cv: float = 0.0) -> Engine:
    """An instance at 15/s, of which ten seconds have 60/s: more than `large` can answer, less than `small` can."""
    arrivals = np.concatenate(
        [poisson(15.0, 10.0, seed), 10.0 + poisson(60.0, 10.0, seed + 1), 20.0 + poisson(15.0, 10.0, seed + 2)]
    )
    made = engine(kernel, arrivals, dispatch=LOSSY, slo=SLO, duration_s=32.0, variants=variants)
    made.add(replace(offering(TYPE, batch=8, rps=32.0), cv=cv), standby=False)
    made.run_until(32.0)
    return made


def accuracy(run: Engine, from_s: int, to_s: int) -> float:
    seconds = run.seconds()
    assert seconds.accuracy_sum is not None
    return float(seconds.accuracy_sum[from_s:to_s].sum() / seconds.answered[from_s:to_s].sum())


@pytest.mark.parametrize("dispatch", CASES, ids=str)
def test_compiled_and_plain_give_the_same_run(kernel: Kernel, dispatch: VariantDispatch):
    for cv in (0.0, 0.3):
        fast, slow = (surge(made, serving(dispatch), cv=cv) for made in (kernel, plain_kernel()))
        assert fast.served() == slow.served()
        assert np.array_equal(fast._tally.seconds, slow._tally.seconds)
        assert np.array_equal(fast._tally.histogram, slow._tally.histogram)
        assert np.array_equal(fast._fleet.servers, slow._fleet.servers)


def test_a_surge_is_answered_less_accurately_rather_than_late(kernel: Kernel):
    slackfit = surge(kernel, serving(VariantDispatch()))
    large = surge(kernel, serving(VariantDispatch(VariantRule.FIXED, "large")))
    small = surge(kernel, serving(VariantDispatch(VariantRule.FIXED, "small")))
    assert slackfit.attained() > large.attained() + 0.1
    assert slackfit.attained() > 0.97
    assert small.accuracy() == pytest.approx(0.7)
    assert large.accuracy() == pytest.approx(0.8)
    assert accuracy(slackfit, 11, 20) < accuracy(slackfit, 0, 10)
    assert accuracy(slackfit, 22, 30) == pytest.approx(accuracy(slackfit, 0, 10), abs=0.01)


def test_nothing_is_answered_below_the_floor(kernel: Kernel):
    for dispatch in CASES:
        run = surge(kernel, serving(dispatch, floor=1))
        seconds = run.seconds()
        assert seconds.accuracy_sum is not None
        assert (seconds.accuracy_sum >= 0.75 * seconds.answered - 1e-9).all()
    with pytest.raises(Misconfigured, match="below the accuracy floor: the first variant above it is middle"):
        serving(VariantDispatch(VariantRule.FIXED, "small"), floor=1)


def test_a_model_of_one_variant_is_served_as_one_without(kernel: Kernel):
    plain = batching(8, 0.05, 0.2)
    latency_s = tuple(plain.profile.latencies_s(8))
    alone = VariantTable(model="net", variants=(Variant("only", 0.9),), latency_s={TYPE: (latency_s,)})
    arrivals = poisson(40.0, 20.0, 5)
    runs = []
    for variants in (None, serving(VariantDispatch(VariantRule.MAXBATCH), table=alone)):
        made = engine(kernel, arrivals, slo=Slo(latency_s=5.0, target=0.98), duration_s=22.0, variants=variants)
        made.add(plain, standby=False)
        made.run_until(22.0)
        runs.append(made)
    assert runs[0].served() == runs[1].served()
    assert np.array_equal(runs[0]._tally.histogram, runs[1]._tally.histogram)
    assert runs[0].accuracy() is None
    assert runs[1].accuracy() == pytest.approx(0.9)


def test_the_total_is_that_of_the_seconds_and_a_service_without_variants_has_none(kernel: Kernel):
    run = surge(kernel, serving(VariantDispatch()))
    total, seconds = run.accuracy_total(), run.seconds()
    assert seconds.accuracy_sum is not None
    assert total.answers == run.served().instance
    assert total.accuracy_sum == pytest.approx(seconds.accuracy_sum.sum())
    assert engine(kernel, np.zeros(0), dispatch=LOSSY, slo=SLO, duration_s=1.0).accuracy_total().answers == 0
