"""The emulated instance spends credits exactly as the simulator's engine does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offerings.offering import BurstCredits
from mark.serving.backends.cpu_credits import CpuCredits
from mark.simulator.engine import kernel

T2 = BurstCredits(vcpus=2, earn_per_hour=24, max_balance=576, baseline=0.2, launch_credits=60)
T3 = BurstCredits(
    vcpus=2, earn_per_hour=24, max_balance=576, baseline=0.2, keeps_when_stopped=True, unlimited=True
)


def engine_server(burst, balance, now):
    servers = np.zeros(1, kernel.SERVER).view(np.recarray)
    server = servers[0]
    server.max_batch, server.balance, server.balance_at = 1, balance, now
    server.burn_per_s, server.earn_per_s = burst.vcpus / 60.0, burst.earn_per_hour / 3600.0
    server.max_balance, server.slow = burst.max_balance, 1.0 if burst.unlimited else 1.0 / burst.baseline
    return server


@given(
    burst=st.sampled_from([T2, T3]),
    balance=st.floats(0, 600),
    steps=st.lists(st.tuples(st.floats(0, 600), st.floats(0.001, 120)), min_size=1, max_size=30),
)
def test_it_spends_as_the_simulator_does(burst, balance, steps):
    live = CpuCredits(burst, balance=balance, now=100.0)
    server = engine_server(burst, balance, 100.0)
    now = 100.0
    for idle_s, work_s in steps:
        now += idle_s
        batch_s = np.array([0.0, work_s])
        expected_s = kernel._spend_credits(now, work_s, server, batch_s)
        assert live.spend(now, work_s) == pytest.approx(expected_s)
        assert server.single_s == pytest.approx(work_s * live.throttle(now, work_s))
        now += expected_s
        assert live.balance(now) >= 0.0
        assert live.surplus == pytest.approx(server.surplus)
        assert live.throttle(now, work_s) in {1.0, server.slow}


def test_without_credits_it_runs_at_its_baseline():
    account = CpuCredits(T2, balance=0.0, now=0.0)
    assert account.spend(0.0, 1.0) == pytest.approx(5.0)
    assert account.throttle(5.0, 1.0) == 5.0


def test_credits_end_sooner_on_a_fast_clock():
    plain, fast = (CpuCredits(T2, balance=1.0, now=0.0) for _ in range(2))
    assert plain.spend(0.0, 3.0, speed=1.0) == pytest.approx(3.0)
    # 20 times as fast, the same three seconds are a minute of two vCPUs: half is covered.
    assert fast.spend(0.0, 3.0, speed=20.0) == pytest.approx(1.5 + 1.5 * 5)


def test_unlimited_types_keep_their_speed_and_are_billed():
    account = CpuCredits(T3, balance=1.0, now=0.0)
    assert account.spend(0.0, 60.0) == 60.0
    assert account.surplus == pytest.approx(1.0)
    assert account.throttle(60.0, 60.0) == 1.0
