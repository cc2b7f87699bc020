"""A burstable machine pays for its work with the credits that its type earns, as in a replay."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offerings.offering import BurstCredits, Offering
from mark.live.processes import agent
from mark.serving.agent.cpu_meter import CpuMeter, busy_vcpu_s
from tests.planner.builders import offering

T3 = BurstCredits(
    vcpus=2, earn_per_hour=24, max_balance=576, baseline=0.2, keeps_when_stopped=True, unlimited=True
)
T2 = BurstCredits(vcpus=2, earn_per_hour=24, max_balance=576, baseline=0.2, launch_credits=60)


@dataclass
class Machine:
    now: float = 1000.0
    worked: float = 0.0

    def meter(self, burst: BurstCredits) -> CpuMeter:
        return CpuMeter(burst, busy_vcpu_s=lambda: self.worked, now=lambda: self.now)

    def work(self, seconds: float, vcpus: float) -> None:
        self.now, self.worked = self.now + seconds, self.worked + seconds * vcpus


def stat(folder: Path, *columns: int) -> Path:
    file = folder / "stat"
    file.write_text(f"cpu  {' '.join(map(str, columns))}\ncpu0 1 1 1 1 1 1 1 1 1 1\nctxt 5\n")
    return file


def test_busy_time_is_what_the_kernel_counts_as_work(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    file = stat(tmp_path, *(ticks * seconds for seconds in (5, 1, 2, 1000, 50, 3, 4, 70, 5, 0)))
    assert busy_vcpu_s(file) == 5 + 1 + 2 + 3 + 4, "neither idle, nor waiting for a disk, stolen, or counted twice"
    assert busy_vcpu_s(Path("/proc/stat")) > 0.0


def test_what_exceeds_the_baseline_is_surplus_and_the_baseline_is_not() -> None:
    machine = Machine()
    meter = machine.meter(T3)
    for _ in range(600):
        machine.work(1.0, 2 * T3.baseline)
        assert meter.surplus_vcpu_s == pytest.approx(0.0, abs=1e-9)
    machine.work(600.0, 2.0)
    assert meter.surplus_vcpu_s == pytest.approx(600.0 * 2 * (1 - T3.baseline))
    assert meter.surplus_vcpu_s == pytest.approx(600.0 * 2 * (1 - T3.baseline)), "a reading changes nothing"


def test_launch_credits_pay_first_and_idle_time_earns() -> None:
    machine = Machine()
    meter = machine.meter(T2)
    machine.work(600.0, 2.0)
    assert meter.credits == pytest.approx(60.0 + 4.0 - 20.0)
    machine.work(3600.0, 0.0)
    assert meter.credits == pytest.approx(60.0 + 4.0 - 20.0 + 24.0)
    assert meter.surplus_vcpu_s == 0.0


@given(st.lists(st.tuples(st.floats(0.1, 600.0), st.floats(0.0, 2.0)), min_size=1, max_size=40))
def test_no_more_is_surplus_than_was_worked_and_no_less_than_was_not_earned(
    steps: list[tuple[float, float]],
) -> None:
    machine = Machine()
    meter, read = machine.meter(T3), 0.0
    for seconds, vcpus in steps:
        machine.work(seconds, vcpus)
        assert meter.surplus_vcpu_s >= read, "what was billed is not taken back"
        read = meter.surplus_vcpu_s
    earned = (machine.now - 1000.0) * T3.earn_per_hour / 60.0
    assert machine.worked - earned - 1e-6 <= read <= machine.worked + 1e-6


def burstable(burst: BurstCredits | None) -> Offering:
    plain = offering("t3.medium")
    return replace(plain, instance_type=replace(plain.instance_type, credits=burst))


def test_only_a_burstable_machine_of_its_own_is_metered(tmp_path: Path) -> None:
    told = {agent.CPU_TIMES: str(stat(tmp_path, *(0,) * 10))}
    assert agent._cpu_meter(burstable(T3), told, lambda: 0.0) is not None
    assert agent._cpu_meter(burstable(None), told, lambda: 0.0) is None
    assert agent._cpu_meter(burstable(T3), {}, lambda: 0.0) is None, "emulated instances share one machine"
    for text in ("", "cpu x y z\n"):
        (tmp_path / "stat").write_text(text)
        assert agent._cpu_meter(burstable(T3), told, lambda: 0.0) is None, "what cannot be read stops no agent"
    (tmp_path / "stat").unlink()
    assert agent._cpu_meter(burstable(T3), told, lambda: 0.0) is None
