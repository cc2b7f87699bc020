"""The budget of a pool: what the policy `kairos` may rent, for which sizes of requests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.errors import Misconfigured
from mark.domain.load.size_window import SizeCounts, SizeWindow
from mark.domain.load.sizes import SizeDistribution

DRIFT = 0.05
"""Share of the bound of the pool now chosen by which the present pool's must lie below it before pools change.

A change costs a boot during which part of the budget serves nobody; less than a twentieth is not worth it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """The budget of a pool and the sizes that it is chosen for."""

    #: What the ordered instances may cost together, USD an hour.
    budget_usd_per_hour: float
    #: Sizes of requests in items, until enough have been measured.
    sizes: SizeDistribution
    #: Requests whose sizes are remembered; 0 keeps to `sizes`, as journals do that do not say.
    size_window: int = 0
    #: Share of the chosen pool's bound by which the present pool's must lie below it before pools change.
    drift: float = DRIFT

    def __post_init__(self) -> None:
        if not (math.isfinite(self.budget_usd_per_hour) and self.budget_usd_per_hour > 0):
            raise Misconfigured(f"a budget must be above 0 USD/h, not {self.budget_usd_per_hour:g}")

    def watch(self, window: SizeWindow, counts: SizeCounts) -> SizeWindow:
        """The window with the requests of one more unit; empty where sizes are not measured."""
        return window.followed_by(counts, self.size_window) if self.size_window else window

    def sizes_now(self, window: SizeWindow, largest: int) -> SizeDistribution:
        """The sizes to choose by: as measured where enough are known. largest: the largest that is served."""
        measured = window.distribution(self.size_window, largest) if self.size_window else None
        return measured or self.sizes
