"""A message to a service's webhook through its function, as alarms are posted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mark.aws.error_codes import NOT_THERE
from mark.aws.errors import code_of, translated
from mark.aws.names import WEBHOOK, name_of
from mark.domain.errors import MarkError, Misconfigured

if TYPE_CHECKING:
    from mark.aws.session import Aws


def post_test(aws: Aws, service: str) -> None:
    """Have the function post a message of its own. Misconfigured, with its reason, where it could not."""
    function = name_of(service, WEBHOOK)
    try:
        with translated():
            answer = aws.lambda_.invoke(FunctionName=function, Payload=json.dumps({"mark-test": True}).encode())
            payload = answer["Payload"].read()
    except MarkError as error:
        if code_of(error) not in NOT_THERE:
            raise
        raise Misconfigured(
            f"there is no function {function}, which posts alarms: deploy with rollout.alarms.webhook"
        ) from error
    if answer.get("FunctionError"):
        raise Misconfigured(f"the function {function} failed: {payload[:500].decode(errors='replace')}")
    told = json.loads(payload)
    if not told.get("posted"):
        raise Misconfigured(f"the function {function} posted nothing: {told.get('why', 'it does not say why')}")
