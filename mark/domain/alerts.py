"""Alerts of a service: dead letters and ringing alarms, as AWS tells them and the status shows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmStatus:
    """An alarm that rings."""

    #: Its name in CloudWatch.
    name: str
    #: What CloudWatch says of it.
    reason: str = ""
    #: Its description.
    about: str = ""
    #: When it began to ring, epoch seconds of the wall; None where CloudWatch does not say.
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsStatus:
    """Dead letters and alarms in AWS."""

    #: When it was asked.
    at: float = 0.0
    #: Messages about instances that nobody could read; None where AWS does not say.
    dead_letters: int | None = None
    #: Alarms of the service that ring; None where AWS does not say.
    ringing: tuple[AlarmStatus, ...] | None = None
    #: Why AWS does not say; else empty.
    unknown: str = ""
