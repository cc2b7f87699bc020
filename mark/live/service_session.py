"""The AWS of a service, for a command: that of `mark up` where it is up on this machine, else the account's.

The account's is found as boto3 finds it: credentials from role, profile or environment.
"""

from __future__ import annotations

from mark.aws.session import Aws, AwsSettings
from mark.config.settings import Settings
from mark.live.aws_resources import credentials_of
from mark.live.local.run_dir import RunFolder


def service_aws(settings: Settings, role: str) -> Aws:
    """Clients for whoever acts as `role` (`mark.aws.permissions.calls`)."""
    running = RunFolder.of(settings.service.name).running()
    return Aws(
        AwsSettings(
            region=settings.service.aws.region,
            endpoint_url=running.aws_endpoint if running else None,
            credentials=credentials_of(running) if running else None,
            role=role,
        )
    )
