"""A dispatch rule of your own: `mark simulate --policy kairos --dispatch dispatch.py:SlowestInTime` replays it."""

import numpy as np

from mark.dispatch.central.own_rule import Ints, Waiting


class SlowestInTime:
    """Each request, the oldest first, on the slowest idle instance that answers it in time."""

    def assign(self, waiting: Waiting) -> Ints:
        """The instance of each request, -1 for none."""
        chosen = np.full(waiting.size.size, -1)
        idle = np.flatnonzero(waiting.is_idle)
        for request, left_ms in enumerate(waiting.left_ms[: idle.size]):
            takes_ms = waiting.latency_ms[request, idle]
            place = np.argmax(np.where(takes_ms <= left_ms, takes_ms, -takes_ms))  # late on all: the fastest
            chosen[request] = idle[place]
            idle = np.delete(idle, place)
        return chosen
