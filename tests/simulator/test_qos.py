"""Replays of quality-aware schedulers: nothing is counted twice, and a training goes on where it stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.dispatch.qos import QosPool, fixed_choice, heuristic_choice
from mark.dispatch.qos_policy import action_choice, action_count, allowed_actions, feature_count
from mark.domain.errors import Misconfigured
from mark.simulator.engine.compiled import compiled_variant_kernel, plain_variant_kernel
from mark.simulator.qos.environment import QosEnvironment
from mark.simulator.qos.episode import QosEpisode, QosQueries, draw_queries, serve_queries
from mark.simulator.qos.judge import Jobs, judge_scheduler, outcome_of
from mark.simulator.qos.learned import Lesson, learn
from mark.simulator.qos.load import DailyLoad, daily_load, level_for
from mark.simulator.traces.trace import Trace
from tests.dispatch.test_qos import POOL

KERNEL = compiled_variant_kernel(Path(tempfile.gettempdir()) / "mark-test-engine")


def queries(seed: int, qps: float, duration_s: float) -> QosQueries:
    return draw_queries(np.array([qps]), np.array([0.0, duration_s]), np.random.default_rng(seed))


def load() -> DailyLoad:
    rates = np.tile(10 + 5 * np.sin(np.arange(1440) / 229), 2)
    return daily_load(Trace(name="waves", start_at=0.0, bin_s=60.0, rates_rps=rates, whole_counts=False))


def lesson(iterations: int, pool: QosPool = POOL) -> Lesson:
    return Lesson(pool=pool, load=load(), qps=40.0, job_s=10.0, iterations=iterations, seed=3)


@given(st.integers(0, 2**32 - 1), st.floats(5, 150))
@settings(max_examples=25, deadline=None)
def test_what_decisions_lose_is_what_responses_lack(seed: int, qps: float):
    """Whatever is done: losses add up, each query is answered once or leaves, and no batch is taken twice."""
    stream, rng = queries(seed, qps, 5.0), np.random.default_rng(seed)
    episode = QosEpisode(POOL, stream, plain_variant_kernel(), seed)
    lost, asks = 0.0, episode.advance()
    while asks:
        state = episode.state()
        assert state.queued == state.bins.sum() > 0
        assert ((state.free >= 0) & (state.free <= 1)).all()
        action = int(rng.choice(np.flatnonzero(allowed_actions(state, POOL))))
        asks, cost = episode.decide(action_choice(action, POOL))
        lost += cost
    run = episode.run()
    # Those that left before the first decision are no decision's loss: here there are none, nobody was busy.
    assert lost == pytest.approx((1 - run.quality).sum())
    assert run.small <= run.answered <= run.quality.size
    assert ((run.quality >= 0) & (run.quality <= 1)).all()


def test_both_kernels_give_the_same_outcome():
    stream = queries(1, 60.0, 20.0)
    plain, compiled = (
        serve_queries(POOL, stream, heuristic_choice, kernel=kernel, seed=2)
        for kernel in (plain_variant_kernel(), KERNEL)
    )
    assert plain.quality.tolist() == compiled.quality.tolist()
    assert plain.decisions == compiled.decisions


def test_the_heuristic_uses_the_small_model_less_than_the_fixed_baseline():
    stream = queries(4, 60.0, 120.0)
    fixed, heuristic = (
        serve_queries(POOL, stream, scheduler, kernel=KERNEL, seed=0)
        for scheduler in (fixed_choice, heuristic_choice)
    )
    assert heuristic.small < fixed.small
    assert heuristic.quality.mean() > fixed.quality.mean()
    assert heuristic.decisions < heuristic.clock_decisions


def test_queries_arrive_in_order_after_they_were_sent():
    stream = queries(0, 50.0, 10.0)
    assert (np.diff(stream.arrived_s) >= 0).all()
    assert (stream.arrived_s > stream.sent_s).all()
    with pytest.raises(Misconfigured, match="no query was drawn"):
        queries(0, 0.0, 10.0)


def test_the_environment_is_one_of_gymnasium():
    environment = QosEnvironment(POOL, load().drawing(10.0, 40.0), KERNEL)
    found, info = environment.reset(seed=5)
    again, _ = environment.reset(seed=5)
    assert found.tolist() == again.tolist()
    assert environment.observation_space.contains(found)
    assert isinstance(environment, gymnasium.Env)
    ended, steps, last = False, 0, info["now"]
    while not ended:
        action = int(np.flatnonzero(info["allowed"])[-1])
        assert environment.action_space.contains(action)
        found, reward, ended, truncated, info = environment.step(action)
        assert found.shape == (feature_count(POOL),)
        assert reward <= 1e-9
        assert not truncated
        assert info["now"] >= last
        last, steps = info["now"], steps + 1
    assert steps > 10
    assert info["state"] is None
    with pytest.raises(gymnasium.error.ResetNeeded):
        QosEnvironment(POOL, load().drawing(10.0, 40.0), KERNEL).step(0)


def test_a_training_goes_on_from_its_checkpoint_and_comes_out_the_same(tmp_path: Path):
    whole = learn(lesson(3), KERNEL, None, lambda share: None)
    shares: list[float] = []

    def interrupt(share: float) -> None:
        shares.append(share)
        if share >= 0.6:
            raise KeyboardInterrupt

    path = tmp_path / "policy.npz"
    with pytest.raises(KeyboardInterrupt):
        learn(lesson(3), KERNEL, path, interrupt, save_each=1)
    assert path.exists()
    resumed = learn(lesson(3), KERNEL, path, shares.append)
    assert resumed.iterations == whole.iterations == 3
    for ours, theirs in zip(resumed.best, whole.best, strict=True):
        assert np.array_equal(ours, theirs)
    assert resumed.network.outer.shape[1] == action_count(POOL)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path):
    path = tmp_path / "policy.npz"
    learn(lesson(1), KERNEL, path, lambda share: None)
    other = QosPool(devices={"fast": 1}, sizes=POOL.sizes, delay_s=POOL.delay_s, kappa=POOL.kappa)
    with pytest.raises(Misconfigured, match="trained for the pool fast=2, slow=1"):
        learn(lesson(1, other), KERNEL, path, lambda share: None)
    with pytest.raises(Misconfigured, match="other inputs"):
        learn(Lesson(pool=POOL, load=load(), qps=50.0, job_s=10.0, iterations=1, seed=3), KERNEL, path, print)
    path.write_bytes(b"no policy")
    with pytest.raises(Misconfigured, match="not a policy"):
        learn(lesson(1), KERNEL, path, lambda share: None)


def test_days_are_scaled_alike_and_those_judged_are_not_learned_from():
    found = load()
    assert found.rates[:, 720:].mean(axis=1) == pytest.approx(1.0)
    assert not set(found.learned) & set(found.judged)
    rates, edges_s = found.job_rates(1, 12 * 3600.0, 600.0)
    assert rates.size + 1 == edges_s.size
    assert edges_s[-1] == 600.0
    short = Trace(name="short", start_at=0.0, bin_s=60.0, rates_rps=np.ones(1440), whole_counts=False)
    with pytest.raises(Misconfigured, match="two whole days"):
        daily_load(short)


def test_the_level_is_where_quality_has_fallen_to_the_target():
    assert level_for(0.25, lambda qps: 1 - qps, (0.0, 1.0), steps=20) == pytest.approx(0.75, abs=1e-4)


def test_jobs_of_every_period_are_judged_and_add_up():
    jobs = list(
        judge_scheduler(
            fixed_choice, POOL, load(), Jobs(count=2, job_s=5.0), days=[1], qps=40.0, kernel=KERNEL, seed=0
        )
    )
    assert [(job.day, job.period) for job in jobs] == [(1, period) for period in range(4) for _ in range(2)]
    outcome = outcome_of(jobs)
    assert 0 <= outcome.quality <= 1
    assert outcome.decisions == sum(job.run.decisions for job in jobs)
    with pytest.raises(Misconfigured, match="at least one"):
        Jobs(count=0)
