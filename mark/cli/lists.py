"""`mark policies` and `mark models`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from mark.cli import options as given

POLICIES_EXAMPLES = ("mark policies", "mark policies --json")
MODELS_EXAMPLES = ("mark models", "mark models --json")


def policies(*, json: given.Json = False, config: given.Config = None) -> None:
    """List policies, forecasters and dispatch rules."""
    given.settings_of(locals())
    from mark.offline.list_names import list_policies

    list_policies(as_json=json)


def models(*, json: given.Json = False, config: given.Config = None) -> None:
    """List models, their objectives and profiles.

    Models that come with weights, ready to be served, are listed apart.
    """
    settings = given.settings_of(locals())
    from mark.offline.list_names import list_models

    list_models(settings, as_json=json)
