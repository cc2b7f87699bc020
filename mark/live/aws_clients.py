"""Clients for the AWS that a service rents from."""

from __future__ import annotations

from mark.aws.session import Aws, AwsSettings, Credentials
from mark.live.local.running import Running


def aws_of(region: str, running: Running, role: str) -> Aws:
    """Clients for the service's AWS; `role`: who calls."""
    return Aws(aws_settings(region, running, role))


def aws_settings(region: str, running: Running, role: str) -> AwsSettings:
    """The service's AWS, boto3's own where no endpoint is named; `role`: who calls."""
    return AwsSettings(
        region=region,
        endpoint_url=running.aws_endpoint or None,
        credentials=credentials_of(running),
        role=role,
    )


def credentials_of(running: Running) -> Credentials | None:
    """The key of the AWS on this machine; None where the service's AWS is none, and boto3 finds one."""
    if not running.aws_endpoint:
        return None
    return Credentials(access_key_id=running.aws_access_key_id, secret_access_key=running.aws_secret_access_key)
