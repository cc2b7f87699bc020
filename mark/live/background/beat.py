"""The sign that a controller acts: in the store for agents, in the bucket for who does not reach the store.

Without it they take the service for left alone, and end its instances (`domain/fleet/orphan.py`).
"""

from __future__ import annotations

import math

from mark.aws.archive import put_object
from mark.aws.names import acted_key
from mark.aws.session import Aws
from mark.domain.fleet.orphan import BEAT_S
from mark.ports import Clock
from mark.store.published_status import RESOURCES
from mark.store.service import ServiceStore


class Beat:
    """Gives the sign each BEAT_S, while a controller acts."""

    def __init__(self, *, store: ServiceStore, aws: Aws, clock: Clock) -> None:
        self._store, self._aws, self._clock = store, aws, clock
        self._due_at = -math.inf

    def poll(self) -> None:
        """Give it where it is due. Errors: MarkError; the next poll tries again."""
        now = self._clock.now()
        if now < self._due_at:
            return
        self._store.put_acted_at(now)
        resources = RESOURCES.read(self._store)
        if resources is not None and resources.bucket:
            key = acted_key(self._store.service)
            put_object(self._aws.objects, resources.bucket, key, repr(now).encode(), content_type="text/plain")
        self._due_at = now + BEAT_S
