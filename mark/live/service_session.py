"""The AWS and the store of a service, for a command: those of `mark up` where it is up here, or others.

The account's AWS is found as boto3 finds it: credentials from role, profile or environment.
"""

from __future__ import annotations

from mark.aws.session import Aws, AwsSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.aws_resources import credentials_of
from mark.live.local.run_dir import RunFolder
from mark.live.store_link import open_link
from mark.store.service import ServiceStore


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


def service_store(settings: Settings) -> tuple[ServiceStore, tuple[str, ...]]:
    """The service's store and its models: up on this machine, or where service.store of the settings says."""
    name = settings.service.name
    running = RunFolder.of(name).running()
    url = running.store if running is not None else settings.service.store
    if not url:
        raise Misconfigured(
            f"no service {name} is up on this machine; for one elsewhere name its store in the settings, as "
            "service.store"
        )
    store = ServiceStore(open_link(url), name)
    return store, tuple(served.name for served in store.spec().models)
