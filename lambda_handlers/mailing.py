"""The report function's work and its heavy imports, which is why the handler imports it late.

MARK_STORE_URL, or the secret that MARK_STORE_SECRET names, is the store's URL. Where MARK_REPORT_TABLE is set
instead, the store is out of reach: the report is of its last snapshot in the bucket, and the table remembers
what was mailed. MARK_REPORT_FROM is an identity that SES has verified; MARK_REPORT_TO addresses with commas
between them. With MARK_REPORT_RECONCILE the ledger is compared with Cost Explorer, whose answer costs a cent;
in MARK_REPORT_BUCKET, where it is set, the report is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from functools import cache

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from aws_lambda_powertools.utilities.idempotency.persistence.dynamodb import DynamoDBPersistenceLayer
from aws_lambda_powertools.utilities.parameters import get_secret

from mark.aws.archive import get_object, put_object, report_key, snapshot_key
from mark.aws.costs import daily_usd
from mark.aws.ec2.tags import SERVICE
from mark.aws.mail import send_mail
from mark.aws.session import Aws, AwsSettings
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.lambda_handlers.environment import required_variable, variable_or
from mark.lambda_handlers.once import LinkClient
from mark.report.cost.archive_reader import ArchiveReader
from mark.report.cost.read import Period, read_cost_report, report_period
from mark.report.mail.message import Mail, mime, render, standalone
from mark.store.connect import Link, connect
from mark.store.service import ServiceStore
from mark.store.snapshot import read_snapshot

DAY_S = 86400.0
logger = Logger(service="mark-report")


def mail_report(scheduled_at: float) -> str:
    """Make and mail the report up to an instant of the service's clock; SES's id of it. Errors: MarkError."""
    name = required_variable("MARK_SERVICE")
    with closing(Aws(AwsSettings(region=required_variable("AWS_REGION"), role="report"))) as aws:
        store, known_at = _source(aws, name)
        wall_at, period_s = min(store.clock().wall_time(min(scheduled_at, known_at)), time.time()), _period_s()
        period = report_period(store, period_s=period_s, wall_at=wall_at)
        billed = _billed_usd(aws, name, period) if variable_or("MARK_REPORT_RECONCILE", "") else None
        report = read_cost_report(store, period_s=period_s, wall_at=wall_at, aws_usd=billed)
        sender, to = (
            required_variable("MARK_REPORT_FROM"),
            [who.strip() for who in required_variable("MARK_REPORT_TO").split(",")],
        )
        mail = render(report)
        _keep(aws, report_key(name, period.until), mail)
        return send_mail(aws.mail, mime(mail, sender, to), sender=sender, to=to)


def _source(aws: Aws, service: str) -> tuple[ArchiveReader, float]:
    """The source of a report, and the instant up to which it knows."""
    if not variable_or("MARK_REPORT_TABLE", ""):
        return ServiceStore(_link(), service), math.inf
    packed = get_object(aws.objects, required_variable("MARK_REPORT_BUCKET"), snapshot_key(service))
    snapshot = read_snapshot(packed)
    return snapshot, snapshot.at


def _keep(aws: Aws, key: str, mail: Mail) -> None:
    """In the service's bucket, before it is sent; where it cannot be kept it is sent all the same."""
    bucket = variable_or("MARK_REPORT_BUCKET", "")
    if not bucket:
        return
    try:
        put_object(aws.objects, bucket, key, standalone(mail).encode(), content_type="text/html; charset=utf-8")
    except MarkError as error:
        logger.warning("the report is not kept in %s: %s", bucket, error)


def _billed_usd(aws: Aws, service: str, period: Period) -> Mapping[date, float] | None:
    """Cost Explorer's bill of the days that are over; None, with a log line, where access is denied."""
    first, last = (datetime.fromtimestamp(at, UTC).date() for at in (period.since, period.until))
    try:
        return daily_usd(aws, first, max(last, first + timedelta(days=1)), {SERVICE: service})
    except (Misconfigured, RetryLater) as error:
        logger.warning("the ledger is not reconciled with Cost Explorer: %s", error)
        return None


def done_before() -> BasePersistenceLayer:
    """Persistence of powertools' idempotency: the service's own store, or its table."""
    table = variable_or("MARK_REPORT_TABLE", "")
    if table:
        return DynamoDBPersistenceLayer(
            table, key_attr="part", sort_key_attr="place", static_pk_value="report", expiry_attr="expires"
        )
    return CachePersistenceLayer(client=LinkClient(_link(), required_variable("MARK_SERVICE")))


@cache
def _link() -> Link:
    url = variable_or("MARK_STORE_URL", "")
    return connect(url or str(get_secret(required_variable("MARK_STORE_SECRET"))))


def _period_s() -> float:
    text = variable_or("MARK_REPORT_PERIOD_S", str(DAY_S))
    try:
        seconds = float(text)
    except ValueError as error:
        raise Misconfigured(f"MARK_REPORT_PERIOD_S must be seconds, not {text!r}") from error
    if not 0 < seconds < float("inf"):
        raise Misconfigured(f"MARK_REPORT_PERIOD_S must be above 0, not {text}")
    return seconds
