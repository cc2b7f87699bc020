"""Housekeeping of a store that lives for years: ledgers are compacted, keys of removed models expire.

What grows, and how far, stands in docs/live.md.
"""

from __future__ import annotations

import logging

from mark.accounting.compaction import folding_end
from mark.steady_time import WALL
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

EACH_S = 3600.0
"""Of the service's clock, between two compactions."""
LEAST = 500
"""Transitions that are worth writing a ledger anew."""


def keep_house(store: ServiceStore, now: float) -> None:
    """Compact and expire. now: service time. RetryLater where the store is unreachable."""
    store.share_wall(WALL.offset_s)  # kept for as long as anything runs here
    for model in store.spec().billed:
        folded = store.compact_ledger(model.name, folding_end(now), least=LEAST)
        if folded:
            log.info("the ledger is compacted", extra={"model": model.name, "transitions": folded})
    for name in store.retire_models():
        log.info("a model is no longer served and its keys expire", extra={"model": name})
