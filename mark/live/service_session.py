"""The AWS and the store of a service, for a command: those of `mark up` where it is up here, or others.

The account's AWS is found as boto3 finds it: credentials from role, profile or environment.
"""

from __future__ import annotations

from collections.abc import Iterable

from mark.aws.session import Aws, AwsSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.aws_clients import credentials_of
from mark.live.local.run_dir import RunFolder, not_up
from mark.live.model_files import remove_versions
from mark.live.store_link import open_link
from mark.live.version_bundles import VersionBundle, upload
from mark.service_spec import BackendSpec, ServedModel
from mark.store.published_status import RESOURCES
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


def keep_bundle(
    settings: Settings, store: ServiceStore, served: ServedModel, bundle: VersionBundle
) -> BackendSpec:
    """Have a version's files where instances and functions find them; the backend as instances load it.

    Misconfigured where they are edited meanwhile, or the service has no bucket.
    """
    folder = RunFolder.of(settings.service.name)
    if folder.running() is None:
        _upload(settings, store, bundle)
        return bundle.backend
    kept = bundle.keep(folder.versions / served.name)
    if served.function_versions:
        _upload(settings, store, bundle)
    return kept


def _upload(settings: Settings, store: ServiceStore, bundle: VersionBundle) -> None:
    resources = RESOURCES.read(store)
    if resources is None or not resources.bucket:
        raise Misconfigured(f"the service {store.service} has no bucket to keep versions in: deploy it again")
    aws = service_aws(settings, "releaser")
    try:
        upload(aws, resources.bucket, bundle)
    finally:
        aws.close()


def remove_copies(settings: Settings, model: str, versions: Iterable[str]) -> None:
    """Remove copies of a model's versions on this machine; bundles in a bucket stay."""
    folder = RunFolder.of(settings.service.name)
    if folder.running() is not None:
        remove_versions(folder.versions / model, versions)


def service_store(settings: Settings) -> tuple[ServiceStore, tuple[str, ...]]:
    """The service's store and its models: up on this machine, or where service.store of the settings says."""
    name = settings.service.name
    running = RunFolder.of(name).running()
    url = running.store if running is not None else settings.service.store
    if not url:
        raise not_up(name, "for one elsewhere name its store in the settings, as service.store")
    store = ServiceStore(open_link(url), name)
    return store, tuple(served.name for served in store.spec().models)
