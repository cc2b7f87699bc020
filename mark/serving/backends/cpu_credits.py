"""CPU credits of an emulated or metered instance: the simulator's arithmetic, with a balance that is kept."""

from __future__ import annotations

from mark.dispatch.instance.credits import earned, slowed_s
from mark.domain.offerings.offering import BurstCredits

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_CREDIT = 60.0


class CpuCredits:
    """One credit is one vCPU at full speed for one minute of service time. `surplus`: used beyond the balance."""

    def __init__(self, burst: BurstCredits, *, balance: float, now: float) -> None:
        self._balance, self._at = balance, now
        self._earn_per_s = burst.earn_per_hour / SECONDS_PER_HOUR
        self._burn_per_s = burst.vcpus / SECONDS_PER_CREDIT
        self._max_balance = burst.max_balance
        self._slow = 1.0 if burst.unlimited else 1.0 / burst.baseline
        self.surplus = 0.0

    def balance(self, now: float) -> float:
        """Credits at `now`; nothing is earned before the end of what runs at baseline."""
        return earned(self._balance, max(0.0, now - self._at), self._earn_per_s, self._max_balance)

    def spend(self, now: float, work_s: float, speed: float = 1.0) -> float:
        """Pay for `work_s` of full speed that begin at `now`; how long they really take.

        Work is real seconds, `now` service time, which moves `speed` times as fast.
        """
        balance = self.balance(now)
        needed = work_s * speed * self._burn_per_s
        self._at = now
        self._balance = max(0.0, balance - needed)
        if self._slow <= 1.0:  # unlimited: full speed, the rest is billed
            self.surplus += max(0.0, needed - balance)
            return work_s
        takes_s = slowed_s(balance, needed, work_s, self._slow)
        if needed > balance:
            self._at = now + takes_s * speed  # baseline is the speed that uses up what is earned
        return takes_s

    def throttle(self, now: float, full_s: float, speed: float = 1.0) -> float:
        """Service time of a batch over that at full speed: baseline once `full_s` of work are not covered."""
        return 1.0 if self.balance(now) >= full_s * speed * self._burn_per_s else self._slow
