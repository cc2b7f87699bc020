"""Replays of quality-aware schedulers: nothing is counted twice, and a training goes on where it stopped."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mark
from mark.dispatch.variants.qos import QosChoice, QosPool, fixed_choice, heuristic_choice
from mark.dispatch.variants.qos_policy import action_count, action_pair, actions_allowed
from mark.domain.errors import Misconfigured
from mark.simulator.engine.compiled import compiled_variant_kernel, plain_variant_kernel
from mark.simulator.qos.checkpoint import checkpoint_bytes, read_checkpoint
from mark.simulator.qos.drawn_load import LEARNED_LEVELS, DailyLoad, daily_load, level_for
from mark.simulator.qos.episode import Conditions, QosEpisode, QosQueries, draw_queries, serve_queries
from mark.simulator.qos.judge import Jobs, judge_scheduler, outcome_of
from mark.simulator.qos.learned import CODE, Lesson, learn
from mark.simulator.qos.policy_gradient import WINDOW, Practice
from mark.simulator.traces.trace import Trace
from tests.dispatch.variants.test_qos import POOL

KERNEL = compiled_variant_kernel(Path(tempfile.gettempdir()) / "mark-test-engine")


def queries(seed: int, qps: float, duration_s: float) -> QosQueries:
    return draw_queries(np.array([qps]), np.array([0.0, duration_s]), np.random.default_rng(seed))


def load() -> DailyLoad:
    rates = np.tile(10 + 5 * np.sin(np.arange(1440) / 229), 2)
    return daily_load(Trace(name="waves", start_at=0.0, bin_s=60.0, rates_rps=rates, whole_counts=False))


def lesson(iterations: int, pool: QosPool = POOL) -> Lesson:
    return Lesson(pool=pool, load=load(), qps=40.0, job_s=5.0, iterations=iterations, seed=3)


@given(st.integers(0, 2**32 - 1), st.floats(5, 150))
@settings(max_examples=8, deadline=None)
def test_what_decisions_lose_is_what_responses_lack(seed: int, qps: float):
    """Whatever is done: losses add up, each query is answered once or leaves, and no batch is taken twice."""
    stream, rng = queries(seed, qps, 5.0), np.random.default_rng(seed)
    episode = QosEpisode(POOL, stream, plain_variant_kernel(), seed)
    lost, asks = 0.0, episode.advance()
    while asks:
        state = episode.state()
        assert state.queued > 0
        assert (np.diff(state.left_s) >= 0).all()
        assert (state.rest_s >= 0).all()
        assert state.rest_s[POOL.kind_of == state.kind].min() == 0  # it is free
        allowed = actions_allowed(state.kind, state.queued, POOL.tables)
        action = int(rng.choice(np.flatnonzero(allowed)))
        asks, quality = episode.decide(QosChoice(*action_pair(action, POOL.tables.sizes)))
        lost += (1 - quality).sum()
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
    assert queries(0, 0.0, 10.0).sent_s.size == 0


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
    with pytest.raises(Misconfigured, match="trained for the pool fast=2,slow=1"):
        learn(lesson(1, other), KERNEL, path, lambda share: None)
    with pytest.raises(Misconfigured, match="other inputs"):
        learn(replace(lesson(1), qps=50.0), KERNEL, path, print)
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


def days(*shapes: float, start_at: float = 0.0, busy_h: float | None = None) -> DailyLoad:
    """Days of hourly rates; busy_h: the hour that has ten times the load."""
    rates = np.concatenate([np.full(24, shape) for shape in shapes])
    if busy_h is not None:
        rates[int(busy_h) :: 24] *= 10
    return daily_load(Trace(name="days", start_at=start_at, bin_s=3600.0, rates_rps=rates, whole_counts=False))


def test_jobs_to_learn_from_are_of_no_judged_day():
    found = days(1.0, 1.0, 1.0, 1.0)
    rates = found.rates.copy()
    rates[list(found.judged)] *= 1000  # a job of such a day would have thousands of queries
    draw = DailyLoad("dense", rates).drawing(10.0, 2.0)
    rng = np.random.default_rng(0)
    assert max(draw(rng).sent_s.size for _ in range(200)) < 150


def test_a_day_begins_at_midnight_where_the_trace_has_a_clock():
    begins_h = 18
    epoch = days(*[1.0] * 4, start_at=begins_h * 3600.0, busy_h=(13 - begins_h) % 24)
    assert epoch.rates.argmax(axis=1).tolist() == [13, 13, 13]
    assert days(*[1.0] * 4, busy_h=5).rates.argmax(axis=1).tolist() == [5] * 4


@pytest.mark.parametrize("bins", [25, 36, 23])
def test_bins_divide_an_hour(bins: int):
    trace = Trace(name="odd", start_at=0.0, bin_s=86_400 / bins, rates_rps=np.ones(3 * bins), whole_counts=False)
    with pytest.raises(Misconfigured, match="in bins that divide an hour"):
        daily_load(trace)


def test_an_idle_stretch_has_no_jobs_and_ends_nothing():
    rates = np.ones((2, 24))
    rates[:, 13:16] = 0.0
    idle = DailyLoad("idle", rates)
    jobs = Jobs(count=2, job_s=20.0)
    found = list(
        judge_scheduler(fixed_choice, POOL, idle, jobs, days=idle.judged, qps=20.0, kernel=KERNEL, seed=1)
    )
    assert {job.period for job in found} == {0, 1, 2, 3}
    assert len(found) == 2 * 4 - 2
    draw, rng = idle.drawing(5.0, 5.0), np.random.default_rng(1)
    assert all(draw(rng).sent_s.size for _ in range(50))
    nothing = DailyLoad("nothing", np.zeros((2, 24)))
    with pytest.raises(Misconfigured, match="nothing: no query in any job"):
        list(judge_scheduler(fixed_choice, POOL, nothing, jobs, days=[1], qps=20.0, kernel=KERNEL, seed=1))
    with pytest.raises(Misconfigured, match="nothing: no query in 5 s"):
        nothing.drawing(5.0, 5.0)(rng)


def test_days_are_found_by_the_seconds_of_their_trace():
    begins_h = 18
    load_ = days(*[1.0] * 4, start_at=begins_h * 3600.0)
    first_s = (24 - begins_h) * 3600.0
    assert load_.from_s == first_s
    assert load_.days_between(0.0, first_s) == range(0)
    assert load_.days_between(first_s, first_s + 1) == range(1)
    assert load_.days_between(first_s + 86_399, first_s + 86_401) == range(2)
    assert load_.days_between(0.0, 1e9) == range(len(load_.rates))
    assert days(*[1.0] * 10).from_s == 2 * 86_400


def test_a_pool_counts_in_seconds_of_its_own():
    """A hundredth of a second as the unit: a job of 10 s is 1000 of them, at a hundredth of the rate."""
    quick = Conditions(unit_s=0.01, network_s=0.5)
    found = days(1.0, 1.0).job(1, 50_000.0, 10.0, 300.0, 0, quick)
    assert found.sent_s.size == pytest.approx(3000, abs=300)
    assert 900 < found.sent_s[-1] <= 1000
    assert found.arrived_s == pytest.approx(found.sent_s + 0.5)
    draw, rng = days(1.0, 1.0).drawing(10.0, 300.0, quick), np.random.default_rng(0)
    drawn = [draw(rng).sent_s.size / 3000 for _ in range(30)]
    low, high = LEARNED_LEVELS
    assert low - 0.1 < min(drawn) < low + 0.2
    assert high - 0.2 < max(drawn) < high + 0.1
    calm, busy = (days(1.0, 1.0, busy_h=13).job(1, 3600.0 * hour, 10.0, 30.0, 0, quick) for hour in (12, 13))
    assert busy.sent_s.size > 5 * calm.sent_s.size


@pytest.mark.parametrize("drop_late", [True, False])
def test_late_queries_leave_or_are_answered_worthlessly(drop_late: bool):
    pool = replace(POOL, devices={"slow": 1}, waits=False)
    stream = draw_queries(np.array([400.0]), np.array([0.0, 5.0]), np.random.default_rng(0), 0.0)
    conditions = Conditions(noise_cv=0.0, drop_late=drop_late)
    run = serve_queries(pool, stream, fixed_choice, kernel=KERNEL, seed=0, conditions=conditions)
    assert (run.answered == stream.sent_s.size) is not drop_late
    assert (run.quality == 0).any()


def test_where_no_device_waits_none_learns_to_and_its_policy_is_for_no_other_pool(tmp_path: Path):
    eager, path = replace(POOL, waits=False), tmp_path / "policy.npz"
    episode = QosEpisode(eager, queries(0, 40.0, 10.0), KERNEL, 0)
    asks = episode.advance()
    while asks:
        state = episode.state()
        allowed = actions_allowed(state.kind, state.queued, eager.tables)
        assert not allowed[0]
        asks, _ = episode.decide(QosChoice(*action_pair(int(np.flatnonzero(allowed)[0]), eager.tables.sizes)))
    learn(lesson(1, eager), KERNEL, path, lambda share: None)
    assert read_checkpoint(path, eager)[0].iterations == 1
    with pytest.raises(Misconfigured, match="other times of batches: train anew with `mark qos train`"):
        read_checkpoint(path, POOL)
    with pytest.raises(Misconfigured, match="other inputs"):
        learn(replace(lesson(1, eager), conditions=Conditions(noise_cv=0.5)), KERNEL, path, lambda share: None)


def test_a_policy_of_another_format_is_refused_in_a_line(tmp_path: Path):
    path = tmp_path / "policy.npz"
    state = learn(lesson(1), KERNEL, path, lambda share: None)
    path.write_bytes(checkpoint_bytes(state, lesson(1).made.model_copy(update={"format": "mark-qos/2"})))
    with pytest.raises(Misconfigured, match=r"its format mark-qos/2 is not mark-qos/3; train anew with `mark qos"):
        read_checkpoint(path, POOL)


def test_the_papers_reward_is_the_mean_quality_of_the_last_responses():
    stream, untrained = load().drawing(20.0, 60.0), learn(lesson(1), KERNEL, None, lambda share: None).network
    own, windowed = (
        Practice(pool=POOL, draw=stream, kernel=KERNEL, windowed=flag).play(untrained, 5) for flag in (False, True)
    )
    assert own.action.tolist() == windowed.action.tolist()
    assert (own.lost >= -1e-9).all()
    responses = own.lost.cumsum()[windowed.lost > 0] / windowed.lost[windowed.lost > 0]
    first = responses[responses < WINDOW - 100]  # none has left the window yet
    assert first == pytest.approx(first.round())
    assert (np.diff(first) >= 0).all()
    train = lesson(1)
    assert replace(train, windowed=True).file_name != train.file_name


def test_a_level_that_is_not_there_is_no_level():
    with pytest.raises(Misconfigured, match="no load from 10 to 60 queries/s has the published quality 0"):
        level_for(0.856, lambda _qps: 1.0, (10.0, 60.0))


def other(**differs: Any) -> QosPool:
    """POOL, but for what is named."""
    told = {"devices": POOL.devices, "sizes": POOL.sizes, "delay_s": POOL.delay_s, "kappa": POOL.kappa}
    return QosPool(**told | differs)


def test_weights_that_are_no_numbers_and_another_order_of_devices_are_refused(tmp_path: Path):
    path = tmp_path / "policy.npz"
    state = learn(lesson(1), KERNEL, path, lambda share: None)
    turned = other(devices=dict(reversed(POOL.devices.items())))
    assert len(turned.devices) > 1
    with pytest.raises(Misconfigured, match="in this order"):
        read_checkpoint(path, turned)
    with pytest.raises(Misconfigured, match="other times of batches"):
        read_checkpoint(path, other(kappa=(0.123, *POOL.kappa[1:])))
    broken = state.best._replace(outer_bias=np.full_like(state.best.outer_bias, np.nan))
    path.write_bytes(checkpoint_bytes(state._replace(best=broken), lesson(1).made))
    with pytest.raises(Misconfigured, match="no numbers"):
        read_checkpoint(path, POOL)


def test_a_file_that_is_no_policy_is_refused_in_a_line(tmp_path: Path):
    empty, array, cut = tmp_path / "empty.npz", tmp_path / "array.npy", tmp_path / "cut.npz"
    empty.touch()
    np.save(array, np.ones(3))
    learn(lesson(1), KERNEL, cut, lambda share: None)
    cut.write_bytes(cut.read_bytes()[:-200])
    for path in (empty, array, cut):
        with pytest.raises(Misconfigured, match="not a policy that `mark qos train` wrote"):
            read_checkpoint(path, POOL)


def test_other_figures_of_a_pool_are_another_file_in_the_cache():
    doubled = {kind: tuple(tuple(2 * s for s in row) for row in rows) for kind, rows in POOL.delay_s.items()}
    pools = (POOL, other(kappa=(0.123, *POOL.kappa[1:])), other(delay_s=doubled))
    assert len({lesson(1, pool).file_name for pool in pools}) == 3


def test_all_code_that_a_training_hangs_on_is_there():
    assert all((Path(mark.__file__).parent / name).is_file() for name in CODE)
