"""CPU credits of burstable instances: one arithmetic for replays, emulated instances and metered ones."""

from __future__ import annotations


def earned(balance: float, elapsed_s: float, earn_per_s: float, max_balance: float) -> float:
    """Credits (vCPU minutes) after `elapsed_s`; launch credits above `max_balance` are kept, not added to."""
    grown = balance + elapsed_s * earn_per_s
    ceiling = max(max_balance, balance)
    return min(ceiling, grown)


def slowed_s(balance: float, needed: float, work_s: float, slow: float) -> float:
    """Seconds that `work_s` of full speed take when it needs `needed` credits and `balance` are there.

    What the balance does not cover runs at baseline, `slow` times as long.
    """
    if needed <= balance or needed <= 0.0:
        return work_s
    covered = balance / needed
    return work_s * (covered + (1.0 - covered) * slow)
