"""`mark alerts test`: one message to the webhook, by the function that posts alarms, and what came of it."""

from __future__ import annotations

from contextlib import closing

from mark.aws.functions.webhook import post_test
from mark.aws.names import WEBHOOK, name_of
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.service_session import service_aws
from mark.report.terminal import show, show_json


def try_webhook(settings: Settings, *, as_json: bool) -> None:
    """Post the message. MarkError with the reason where it could not be posted."""
    service = settings.service
    if settings.rollout.alarms.webhook is None:
        raise Misconfigured("the settings name no webhook: set rollout.alarms.webhook (docs/deploy.md#alarms)")
    with closing(service_aws(settings, "prober")) as aws:
        post_test(aws, service.name)
    through = f"{name_of(service.name, WEBHOOK)} in {service.aws.region}"
    if as_json:
        show_json({"service": service.name, "through": through, "posted": True})
    else:
        show(f"the webhook took a message from {through}")
