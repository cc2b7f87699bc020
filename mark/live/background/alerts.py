"""Alerts: dead letters of the events queue and ringing alarms, asked of AWS each minute and shown by status."""

from __future__ import annotations

import math

from mark.aws.alarms import read_alerts
from mark.aws.session import Aws
from mark.ports import Clock
from mark.store.published_status import ALERTS
from mark.store.service import ServiceStore

EACH_S = 60.0
"""Of the service's clock: CloudWatch evaluates no oftener, and each of its answers is billed."""


class AlertWatch:
    """Writes the document while a controller acts."""

    def __init__(self, *, store: ServiceStore, aws: Aws, clock: Clock) -> None:
        self._store, self._aws, self._clock = store, aws, clock
        self._due_at = -math.inf

    def poll(self) -> None:
        """Ask AWS where a minute is over."""
        now = self._clock.now()
        if now < self._due_at:
            return
        self._due_at = now + EACH_S
        ALERTS.write(self._store, read_alerts(self._aws, self._store.service, at=now))
