"""Versions with which the models of a rollout begin, and whether their functions can answer as versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mark.config.service import Mode
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.models import LiveModel
from mark.live.version_bundles import VersionBundle, bundle_of, has_function_versions

GIB = 1024**3
SYSTEM_GIB = 10
"""Of an instance's disk: AWS's machine image, and MArk's own with torch."""


def first_bundles(settings: Settings, models: Sequence[LiveModel]) -> dict[str, VersionBundle]:
    """The models' files as they are, by model; none where nobody is served.

    Packages of their own are installed for instances. Errors: Misconfigured, as where one does not resolve.
    """
    if settings.service.mode is Mode.OBSERVE:
        return {}
    bundles = {
        model.name: bundle_of(model.served.backend, model.name, model.served.model.architectures)
        for model in models
    }
    for bundle in bundles.values():
        _check_fits(settings, bundle)
    return bundles


def _check_fits(settings: Settings, bundle: VersionBundle) -> None:
    """Misconfigured where a version's files and packages have no room on the disk of an instance."""
    packages = bundle.packages()
    files = [] if packages is None else [one for kind in bundle.kinds for one in (packages / kind).rglob("*")]
    taken_gib = (bundle.unpacked_bytes + sum(one.stat().st_size for one in files if one.is_file())) / GIB
    for machine in settings.rollout.machine_kinds:
        room_gib = max(0, machine.disk_gib - SYSTEM_GIB)
        if taken_gib > room_gib:
            raise Misconfigured(
                f"{bundle.name}: its files and packages take {taken_gib:.1f} GiB, and an instance's disk has room "
                f"for {room_gib}: raise disk_gib of rollout.machines"
            )


def in_versions(
    settings: Settings, models: Sequence[LiveModel], bundles: Mapping[str, VersionBundle]
) -> tuple[LiveModel, ...]:
    """The models, told whose functions answer as versions.

    Those with provisioned environments do not: these load a model before a call can name a version.
    """
    if settings.rollout.functions.provisioned:
        return tuple(models)
    return tuple(_in_versions(model, bundles.get(model.name)) for model in models)


def _in_versions(model: LiveModel, bundle: VersionBundle | None) -> LiveModel:
    in_versions = bundle is not None and has_function_versions(model.served, bundle)
    return replace(model, served=replace(model.served, function_versions=in_versions))
