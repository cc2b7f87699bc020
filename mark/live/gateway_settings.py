"""What of the settings a gateway starts from."""

from __future__ import annotations

from collections.abc import Mapping

from mark.config.settings import Settings
from mark.domain.offerings.offering import calls_of_models
from mark.live.aws_clients import aws_settings
from mark.live.gateway_start import GatewayStart
from mark.live.local.running import Running
from mark.store.users import StoreUser

MOST_THREADS = 500
"""A call of Lambda takes a thread; half of an account's usual thousand."""


def gateway_start(settings: Settings, running: Running, collector: Mapping[str, str]) -> GatewayStart:
    """The start of each gateway of the service. collector: headers for it."""
    service = settings.service
    return GatewayStart(
        service=running.name,
        store=running.store_for(StoreUser.GATEWAY),
        host=service.host,
        aws=aws_settings(service.aws.region, running, "gateway"),
        lambda_calls=lambda_calls(settings),
        token=running.token,
        tls_certificate=service.tls_certificate,
        tls_key=service.tls_key,
        collector=collector,
    )


def lambda_calls(settings: Settings) -> int:
    """One gateway's share of the calls that models may have at once."""
    allowed = calls_of_models(settings.policy.overflow_limits.concurrency)
    return min(MOST_THREADS, max(1, allowed // settings.service.gateway_count))
