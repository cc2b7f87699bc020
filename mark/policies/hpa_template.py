"""A policy of your own: Kubernetes' HPA. `mark simulate --policy policy.py:HPA` replays it (docs/python.md)."""

import math
from collections.abc import Mapping

from mark.domain.plan import PlanRequest

TARGET = 0.7  # share of what an instance carries that is to be busy
TOLERANCE = 0.1  # nearer to the target nothing changes
STABLE_MIN = 5  # it scales in to what the busiest of the last minutes needs


class HPA:
    """As many instances of one type as the last minute needs."""

    period_s = 15.0  # seconds between two plans

    def plan(self, request: PlanRequest) -> Mapping[str, int]:
        """The instances wanted, by offering."""
        running = dict(request.running)
        kind = min(request.offerings, key=lambda item: (item.name not in running, item.usd_per_request))
        current, target_rps = running.get(kind.name, 0), TARGET * kind.capacity_rps
        minutes = request.history.mean_rps
        windows = request.recent_rps or minutes[-1:] or (0.0,)
        rate = sum(windows) / len(windows)
        wanted = max(1, math.ceil(rate / target_rps))
        if current and abs(rate / (current * target_rps) - 1) <= TOLERANCE:
            wanted = current
        lately = max((math.ceil(one / target_rps) for one in minutes[-STABLE_MIN:]), default=1)
        return {kind.name: max(wanted, min(current, lately))}
