"""The rent of instances that models share, divided by the device time that each model took. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RentShares:
    """Who pays what of a rent, USD."""

    by_model: Mapping[str, float] = field(default_factory=dict)
    #: The rent of the time in which devices ran no model: booting, loading and waiting.
    idle_usd: float = 0.0


def device_usd(device_s: float, usd_per_hour: float) -> float:
    """The rent of so much of an instance's time, USD."""
    return device_s * usd_per_hour / SECONDS_PER_HOUR


def divide_rent(rent_usd: float, used_usd: Mapping[str, float]) -> RentShares:
    """Each model pays the rent of the device time that it took (`device_usd`); nobody pays for the rest.

    Where more was counted than the rent, as by rounding, all shares shrink alike: they never exceed it.
    """
    used = sum(used_usd.values())
    factor = min(1.0, rent_usd / used) if used > 0.0 else 0.0
    shares = {model: factor * usd for model, usd in used_usd.items()}
    return RentShares(by_model=shares, idle_usd=max(0.0, rent_usd - factor * used))
