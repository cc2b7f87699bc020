"""Housekeeping of a store that lives for years: ledgers are compacted, keys of removed models expire.

What grows, and how far, stands in docs/live.md.
"""

from __future__ import annotations

import logging
import math

from mark.accounting.compaction import folding_end
from mark.ports import Clock
from mark.steady_time import WALL
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

EACH_S = 3600.0
"""Of the service's clock, between two compactions."""
LEAST = 500
"""Transitions that are worth writing a ledger anew."""


class Housekeeper:
    """Compacts and expires each hour, while a controller acts."""

    def __init__(self, *, store: ServiceStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._due_at = -math.inf

    def poll(self) -> None:
        """Do what is due. RetryLater where the store is unreachable: the next poll tries again."""
        now = self._clock.now()
        if now < self._due_at:
            return
        self._store.share_wall(WALL.offset_s)  # kept for as long as anything runs here
        for model in self._store.spec().billed:
            folded = self._store.compact_ledger(model.name, folding_end(now), least=LEAST)
            if folded:
                log.info("the ledger is compacted", extra={"model": model.name, "transitions": folded})
        for name in self._store.retire_models():
            log.info("a model is no longer served and its keys expire", extra={"model": name})
        self._due_at = now + EACH_S
