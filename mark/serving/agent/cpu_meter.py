"""CPU credits of a burstable instance, by what its processors have worked: as AWS counts them, from within.

CloudWatch's CPUSurplusCreditsCharged comes minutes late and at a price for each reading. The kernel's own count of
busy time is there at once, and costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mark.domain.offerings.offering import BurstCredits
from mark.serving.backends.cpu_credits import SECONDS_PER_CREDIT, CpuCredits

BUSY = (1, 2, 3, 6, 7)
"""Columns of the line `cpu` in /proc/stat that are work: user, nice, system, irq, softirq (proc(5)). Guests are
among the users; what was idle, waited for a disk or was stolen is none."""


def busy_vcpu_s(file: Path) -> float:
    """VCPU seconds of work since the boot. file: in the form of /proc/stat. Errors: OSError."""
    columns = file.read_text().partition("\n")[0].split()
    return sum(int(columns[place]) for place in BUSY) / os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """Credits of this machine since its start, with the arithmetic of replays (`dispatch/instance/credits.py`).

    A start brings the type's launch credits and no others: what a T3 kept while it was stopped is not known here,
    so that its surplus is counted on the dear side.

    busy_vcpu_s: the machine's work since its boot, vCPU seconds. now: service time, s.
    """

    def __init__(self, burst: BurstCredits, *, busy_vcpu_s: Callable[[], float], now: Callable[[], float]) -> None:
        self._vcpus = burst.vcpus
        self._busy_vcpu_s, self._now = busy_vcpu_s, now
        self._account = CpuCredits(burst, balance=burst.launch_credits, now=now())
        self._paid_vcpu_s = 0.0

    @property
    def credits(self) -> float:
        """CPU credits (vCPU minutes) left now."""
        self._pay()
        return self._account.balance(self._now())

    @property
    def surplus_vcpu_s(self) -> float:
        """VCPU seconds used beyond the credits, which an unlimited type is billed for."""
        self._pay()
        return self._account.surplus * SECONDS_PER_CREDIT

    def _pay(self) -> None:
        busy_vcpu_s = self._busy_vcpu_s()
        self._account.spend(self._now(), max(0.0, busy_vcpu_s - self._paid_vcpu_s) / self._vcpus)
        self._paid_vcpu_s = max(busy_vcpu_s, self._paid_vcpu_s)
