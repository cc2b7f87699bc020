"""`mark alerts test`: one message to the webhook, from where alarms are posted, and what came of it."""

from __future__ import annotations

from contextlib import closing

from mark.aws.functions.webhook import post_test
from mark.aws.names import WEBHOOK, name_of
from mark.config.settings import Settings, process_environment
from mark.domain.errors import Misconfigured
from mark.live.background.webhook_address import webhook_of
from mark.live.local.run_dir import RunFolder
from mark.live.service_session import service_aws
from mark.protocols.alert_messages import TEST
from mark.report.terminal import show, show_json


def try_webhook(settings: Settings, *, as_json: bool) -> None:
    """Post the message. MarkError with the reason where it could not be posted.

    A service on this machine, or one whose settings name no secret, posts from here: with the variable of this
    shell. Else the function in the account does, as it does for alarms.
    """
    folder = RunFolder.of(settings.service.name)
    is_up = folder.running() is not None
    service, secret = (folder.settings() if is_up else settings).service, settings.rollout.alarms.webhook
    if is_up or secret is None:
        post = webhook_of(service, process_environment())
        if post is None:
            raise Misconfigured(
                "the settings name no webhook: set service.webhook_variable for a service on this machine, or "
                "rollout.alarms.webhook for one in an account (docs/deploy.md#alarms)"
            )
        post(TEST)
        through = "this machine"
    else:
        with closing(service_aws(settings, "prober")) as aws:
            post_test(aws, service.name)
        through = f"{name_of(service.name, WEBHOOK)} in {service.aws.region}"
    if as_json:
        show_json({"service": service.name, "through": through, "posted": True})
    else:
        show(f"the webhook took a message from {through}")
