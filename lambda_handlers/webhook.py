"""Alarms to a webhook: an event of SNS in, one message a record out.

MARK_WEBHOOK_SECRET names the secret that holds the address, which is read anew for each event: one that is changed
there counts at once. What fails raises, so that Lambda tries again and at last keeps the event as a dead letter.
{"mark-test": true} posts a message of its own and answers what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from mark.domain.errors import MarkError, Misconfigured
from mark.lambda_handlers.environment import required_variable
from mark.protocols.alert_messages import TEST, AlertMessage, messages_of, slack_body
from mark.protocols.webhook_post import post

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="mark-webhook")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, object]:  # noqa: ARG001 - Lambda's signature
    """Post what the event says; answers how many messages that were, and for a test why it failed."""
    if event.get("mark-test"):
        return _try()
    messages = tuple(messages_of(event, required_variable("MARK_SERVICE")))
    if messages:
        _post(*messages)
    return {"posted": len(messages)}


def _try() -> dict[str, object]:
    try:
        _post(TEST)
    except MarkError as error:
        return {"posted": 0, "why": str(error)}
    return {"posted": 1}


def _post(*messages: AlertMessage) -> None:
    url = _address(required_variable("MARK_WEBHOOK_SECRET"))
    for message in messages:
        post(url, slack_body(message))


def _address(secret: str) -> str:
    """The address that the secret holds. Misconfigured where it cannot be read."""
    import boto3  # noqa: PLC0415 - importing it takes longer than all else here
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    client = boto3.session.Session().client("secretsmanager")
    try:
        return str(client.get_secret_value(SecretId=secret).get("SecretString", "")).strip()
    except (BotoCoreError, ClientError) as error:
        raise Misconfigured(f"the secret {secret} cannot be read: {error}") from error
    finally:
        client.close()
