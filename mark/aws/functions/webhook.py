"""A message to a service's webhook through its function, as alarms are posted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mark.aws.functions.probe import answer_of
from mark.aws.names import WEBHOOK, name_of
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mark.aws.session import Aws


def post_test(aws: Aws, service: str) -> None:
    """Have the function post a message of its own. Misconfigured, with its reason, where it could not."""
    function = name_of(service, WEBHOOK)
    lacking = "which posts alarms: deploy with rollout.alarms.webhook"
    told = answer_of(aws, function, {"mark-test": True}, lacking)
    if not told.get("posted"):
        raise Misconfigured(f"the function {function} posted nothing: {told.get('why', 'it does not say why')}")
