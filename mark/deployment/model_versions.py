"""Versions with which the models of a rollout begin, and whether their functions can answer as versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mark.config.service import Mode
from mark.config.settings import Settings
from mark.live.models import LiveModel
from mark.live.version_bundles import VersionBundle, bundle_of, has_function_versions


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
        bundle.packages()
    return bundles


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
