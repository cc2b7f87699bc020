"""The webhook of a service on one machine: its address is in the environment variable that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from mark.config.service import ServiceSettings
from mark.domain.errors import Misconfigured
from mark.live.background.alerts import Post
from mark.protocols.alert_messages import AlertMessage, slack_body
from mark.protocols.webhook_post import check_webhook_url, post


def webhook_of(service: ServiceSettings, environment: Mapping[str, str]) -> Post | None:
    """Posts a message; None where no variable is named. Misconfigured where it holds no address."""
    name = service.webhook_variable
    if name is None:
        return None
    url = environment.get(name, "").strip()
    if not url:
        raise Misconfigured(
            f"service.webhook_variable names {name}, and the environment has none: export it with the webhook's "
            "address, or leave the setting out"
        )
    check_webhook_url(url)
    return partial(_post, url)


def _post(url: str, message: AlertMessage) -> None:
    post(url, slack_body(message))
