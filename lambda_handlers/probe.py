"""A request from within the network: {"url", "body", "token"} -> status, who answered, in what time, the answer.

It asks the service for `mark try`, whose caller is outside the network. Its security group lets it reach nothing
but HTTPS there, and it has no permission of its own: the caller sends the token along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from mark.domain.errors import Misconfigured
from mark.protocols.probe import ProbeReply, ask

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="mark-probe")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> ProbeReply:  # noqa: ARG001 - Lambda's signature
    """Send the request, once."""
    url, body, token = (event.get(key) for key in ("url", "body", "token"))
    if not isinstance(url, str) or not url.startswith("https://"):
        raise Misconfigured("url must be that of the service, https://NAME/v2/models/MODEL/infer")
    if not isinstance(body, str) or not isinstance(token, str):
        raise Misconfigured("body and token must be texts")
    return ask(url, body, token)
