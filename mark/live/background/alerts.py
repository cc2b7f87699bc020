"""Alerts: dead letters of the events queue and ringing alarms, asked of AWS each minute and shown by status.

Where the service has a webhook, a message is posted when an alarm begins to ring and when it ends. The store keeps
whose beginning was posted: so another controller goes on where one ended, and a message that could not be posted
is tried again each minute while its alarm rings. One that was posted just before a crash may come twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mark.aws.alarms import Alerts, read_alerts
from mark.aws.session import Aws
from mark.domain.errors import MarkError, RetryLater
from mark.ports import Clock
from mark.protocols.alert_messages import AlertMessage, AlertPhase, alarm_message
from mark.store.published_status import ALERTS, AlarmStatus, AlertsStatus
from mark.store.service import ServiceStore

EACH_S = 60.0
"""Of the service's clock: CloudWatch evaluates no oftener, and each of its answers is billed."""
Post = Callable[[AlertMessage], None]
"""Post one message. Errors: MarkError."""


class AlertWatch:
    """Writes the document while a controller acts."""

    def __init__(self, *, store: ServiceStore, aws: Aws, clock: Clock, post: Post | None = None) -> None:
        self._store, self._aws, self._clock, self._post = store, aws, clock, post
        self._due_at = -math.inf

    def poll(self) -> None:
        """Ask AWS where a minute is over."""
        now = self._clock.now()
        if now < self._due_at:
            return
        self._due_at = now + EACH_S
        before = ALERTS.read(self._store)  # first: while the store is unreachable nothing is posted
        found = alerts_status(read_alerts(self._aws, self._store.service), at=now)
        if self._post is not None:
            posted = before.posted if before is not None else ()
            found = post_changes(found, posted, service=self._store.service, post=self._post)
        ALERTS.write(self._store, found)


def alerts_status(alerts: Alerts, *, at: float) -> AlertsStatus:
    """The status of alerts read `at` an instant, service time."""
    ringing = alerts.ringing
    return AlertsStatus(
        at=at,
        dead_letters=alerts.dead_letters,
        ringing=None
        if ringing is None
        else tuple(
            AlarmStatus(name=one.name, reason=one.reason, about=one.about, since=one.since) for one in ringing
        ),
        unknown=alerts.unknown,
    )


def post_changes(
    found: AlertsStatus, posted: tuple[AlarmStatus, ...], *, service: str, post: Post
) -> AlertsStatus:
    """Post what changed; the status with what was posted so far, and why no more was.

    posted: alarms whose beginning was posted, and whose end was not yet.
    """
    failed = ""
    for phase, alarm in changes(posted, found.ringing):
        began = phase is AlertPhase.BEGAN
        at = alarm.since if began else None
        try:
            post(
                alarm_message(
                    alarm.name, service=service, phase=phase, about=alarm.about, reason=alarm.reason, at=at
                )
            )
        except RetryLater as error:
            failed = str(error)
            break  # the others would wait as long
        except MarkError as error:
            failed = str(error)
            continue  # this one alone may be refused, and the others are not lost for it
        others = tuple(one for one in posted if one.name != alarm.name)
        posted = (*others, alarm) if began else others
    return replace(found, posted=posted, post_failed=failed)


def changes(
    posted: Sequence[AlarmStatus], ringing: Sequence[AlarmStatus] | None
) -> Iterator[tuple[AlertPhase, AlarmStatus]]:
    """Alarms that ended since they were posted, then those that began; none where AWS does not say what rings.

    One that rings since another instant than was posted ended unseen, and began again.
    """
    if ringing is None:
        return
    now = {one.name: one for one in ringing}
    going_on = {one.name for one in posted if one.name in now and not _began_again(one, now[one.name])}
    yield from ((AlertPhase.ENDED, one) for one in posted if one.name not in going_on)
    yield from ((AlertPhase.BEGAN, one) for one in ringing if one.name not in going_on)


def _began_again(posted: AlarmStatus, ringing: AlarmStatus) -> bool:
    return posted.since is not None and ringing.since is not None and posted.since < ringing.since
