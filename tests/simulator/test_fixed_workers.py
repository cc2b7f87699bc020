"""Fixed workers under a policy: shares, accuracies and seconds add up, and policies are found by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.domain.models.objective import Slo
from mark.domain.models.variants import Variant, VariantTable
from mark.simulator.engine.compiled import plain_variant_kernel
from mark.simulator.fixed.fixed_workers import FixedWorkers, variant_policy

TABLE = VariantTable(
    model="net",
    variants=(Variant("small", 0.7), Variant("large", 0.9)),
    latency_s={"gpu": ((0.01, 0.012, 0.014, 0.016), (0.02, 0.03, 0.04, 0.05))},
)
NAMES = ("slackfit", "slackfit-published", "maxbatch", "maxacc", "cheapest", "fixed:large", "fixed-full:large")


def workers(count: int = 1, noise_cv: float = 0.0) -> FixedWorkers:
    return FixedWorkers(
        TABLE,
        "gpu",
        workers=count,
        slo=Slo(latency_s=0.06, target=0.999),
        kernel=plain_variant_kernel(),
        noise_cv=noise_cv,
        slacks=60,
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from(NAMES), st.floats(5, 400))
def test_seconds_add_up_to_the_whole(seed: int, name: str, rps: float):
    arrived_s = np.sort(np.random.default_rng(seed).uniform(0, 3, max(1, round(rps))))
    run = workers().run(name, arrived_s)
    assert run.arrived.sum() == arrived_s.size
    there = run.arrived > 0
    in_time = run.attained_by_second[there] * run.arrived[there]
    assert in_time.sum() == pytest.approx(run.attained * arrived_s.size)
    if run.accuracy is not None:
        assert 0.7 - 1e-9 <= run.accuracy <= 0.9 + 1e-9
        some = in_time > 0
        mean = (run.accuracy_by_second[there][some] * in_time[some]).sum() / in_time.sum()
        assert mean == pytest.approx(run.accuracy)


def test_one_request_gets_the_best_variant_and_a_crowd_the_cheap_one():
    alone = workers().run("slackfit", np.array([0.0]))
    assert (alone.attained, alone.accuracy, alone.mean_batch) == (1.0, 0.9, 1.0)
    stream = np.arange(400) / 200
    crowd = workers().run("slackfit", stream)
    assert crowd.attained > 0.9
    assert crowd.accuracy is not None
    assert crowd.accuracy < 0.9
    assert workers().run("fixed:large", stream).attained < 0.5


def test_full_batches_answer_more_in_overload_than_those_that_wait_for_the_most_urgent():
    stream = np.arange(400) / 200
    full, hurried = workers().run("fixed-full:large", stream), workers().run("fixed:large", stream)
    assert full.mean_batch > hurried.mean_batch
    assert full.attained > 1.4 * hurried.attained
    assert workers().run("fixed-full:large", np.array([0.0])).attained == 1.0


def test_a_lost_worker_gives_back_what_it_holds():
    stream = np.array([0.0, 0.0])
    run = workers(2).run("maxacc", stream, np.array([0.005, np.inf]))
    assert run.attained == 1.0
    assert workers(1).run("maxacc", stream, np.array([0.005])).attained == 0.0


def test_with_noise_policies_leave_room():
    arrived_s = np.arange(2000) * 0.002
    noisy = workers(4, noise_cv=0.25).run("slackfit", arrived_s)
    calm = workers(4).run("slackfit", arrived_s)
    assert noisy.attained >= 0.999
    assert noisy.accuracy is not None
    assert calm.accuracy is not None
    assert noisy.accuracy < calm.accuracy


def test_policies_have_names():
    assert variant_policy("cheapest", TABLE).fixed == variant_policy("fixed:small", TABLE).fixed == 0
    with pytest.raises(Misconfigured, match="did you mean 'slackfit'"):
        variant_policy("slakfit", TABLE)
    with pytest.raises(Misconfigured, match="variant of net"):
        variant_policy("fixed:medium", TABLE)
    with pytest.raises(Misconfigured, match="policy"):
        variant_policy("fixed", TABLE)


def test_nothing_to_serve_and_nobody_to_serve_it():
    with pytest.raises(Misconfigured, match="at least one request"):
        workers().run("slackfit", np.empty(0))
    with pytest.raises(Misconfigured, match="at least one worker"):
        workers(0)
