"""Asks AWS each minute whether messages about instances were dead letters, and which alarms ring; status tells."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from mark.aws.alarms import Alerts, read_alerts
from mark.aws.session import Aws
from mark.ports import Clock
from mark.store.service import ServiceStore

ALERTS = "alerts"
"""The status document."""
EACH_S = 60.0
"""Of the service's clock: CloudWatch looks no oftener, and each of its answers is billed."""


class AlertWatch:
    """Writes the document while a controller acts."""

    def __init__(self, *, store: ServiceStore, aws: Aws, clock: Clock) -> None:
        self._store, self._aws, self._clock = store, aws, clock
        self._due_at = -math.inf

    def look(self) -> None:
        """Ask where a minute is over."""
        now = self._clock.now()
        if now < self._due_at:
            return
        self._due_at = now + EACH_S
        told = alerts_document(read_alerts(self._aws, self._store.service))
        self._store.put_status(ALERTS, {"at": now, **told})


def alerts_document(alerts: Alerts) -> dict[str, Any]:
    """As `mark status --json` has it (docs/json.md)."""
    ringing = None if alerts.ringing is None else [asdict(one) for one in alerts.ringing]
    return {"dead_letters": alerts.dead_letters, "ringing": ringing, "unknown": alerts.unknown}
