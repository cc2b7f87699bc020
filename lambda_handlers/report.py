"""The report by mail: EventBridge Scheduler's event in, a mail through SES out.

It covers MARK_REPORT_PERIOD_S seconds (a day) up to the time that was scheduled, and is sent once for each of
those, however often the event comes: a mail twice is what a reader sees, so here idempotency pays. What it needs
is imported within the function, which alone takes a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.data_classes import EventBridgeEvent

from mark.domain.errors import MarkError, Misconfigured
from mark.lambda_handlers.metrics import count
from mark.protocols.events import instant

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

REMEMBERED_S = 7 * 86400
logger = Logger(service="mark-report")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    """Mail the report of a scheduled time; answers SES's `message` id, the same one when it is asked again."""
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function  # noqa: PLC0415

    from mark.lambda_handlers.mailing import done_before  # noqa: PLC0415

    if not isinstance(event.get("time"), str):
        raise Misconfigured('the event must name a "time", as EventBridge Scheduler\'s does')
    config = IdempotencyConfig(event_key_jmespath="[resources, time]", expires_after_seconds=REMEMBERED_S)
    config.register_lambda_context(context)
    once = idempotent_function(
        _mail, data_keyword_argument="event", persistence_store=done_before(), config=config
    )
    done: dict[str, str] = once(event=event)
    return done


def _mail(event: dict[str, Any]) -> dict[str, str]:
    from mark.lambda_handlers.mailing import mail_report  # noqa: PLC0415

    try:
        name = mail_report(instant(EventBridgeEvent(event).time))
    except MarkError as error:
        logger.warning("no report is mailed: %s", error)
        count("report", Failed=1)
        raise
    return {"message": name}
