"""What the report function does, and what it needs for it: heavy, so it is imported within the function.

MARK_STORE_URL, or the secret that MARK_STORE_SECRET names, is the store's URL; MARK_REPORT_FROM an identity that
SES has verified; MARK_REPORT_TO addresses with commas between them.
"""

from __future__ import annotations

import time
from functools import cache

import boto3
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from aws_lambda_powertools.utilities.parameters import get_secret

from lambda_handlers.environment import told, told_or
from lambda_handlers.once import LinkClient
from mark.aws.mail import send_mail
from mark.domain.errors import Misconfigured
from mark.report.cost_report_reading import read_cost_report
from mark.report.mail import mime, render
from mark.store.connect import Link, connect
from mark.store.service import ServiceStore

DAY_S = 86400.0


def mail_report(scheduled_at: float) -> str:
    """Make and mail the report up to an instant of the service's clock; SES's id of it. Errors: MarkError."""
    store = ServiceStore(_link(), told("MARK_SERVICE"))
    wall_at = min(store.clock().wall_time(scheduled_at), time.time())
    report = read_cost_report(store, period_s=_period_s(), wall_at=wall_at)
    sender, to = told("MARK_REPORT_FROM"), [who.strip() for who in told("MARK_REPORT_TO").split(",")]
    message = mime(render(report), sender, to)
    return send_mail(boto3.session.Session().client("sesv2"), message, sender=sender, to=to)


def done_before() -> CachePersistenceLayer:
    """Where powertools keeps what was done: the service's own store."""
    return CachePersistenceLayer(client=LinkClient(_link(), told("MARK_SERVICE")))


@cache
def _link() -> Link:
    url = told_or("MARK_STORE_URL", "")
    return connect(url or str(get_secret(told("MARK_STORE_SECRET"))))


def _period_s() -> float:
    text = told_or("MARK_REPORT_PERIOD_S", str(DAY_S))
    try:
        seconds = float(text)
    except ValueError as error:
        raise Misconfigured(f"MARK_REPORT_PERIOD_S must be seconds, not {text!r}") from error
    if not 0 < seconds < float("inf"):
        raise Misconfigured(f"MARK_REPORT_PERIOD_S must be above 0, not {text}")
    return seconds
