"""Alerts: dead letters of the events queue and ringing alarms, asked of AWS each minute and shown by status."""

from __future__ import annotations

from mark.aws.alarms import read_alerts
from mark.aws.session import Aws
from mark.store.published_status import ALERTS
from mark.store.service import ServiceStore

EACH_S = 60.0
"""Of the service's clock: CloudWatch evaluates no oftener, and each of its answers is billed."""


def publish_alerts(store: ServiceStore, aws: Aws, now: float) -> None:
    """Ask AWS, and write the document. now: service time."""
    ALERTS.write(store, read_alerts(aws, store.service, at=now))
