"""Shell completion of names: policies, models, forecasters and choices."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from collections.abc import Callable, Iterable

Completion = Callable[[str], list[str]]


def choices(*names: str) -> Completion:
    """Complete one of a few fixed names."""
    return names_of(lambda: names)


def names_of(known: Callable[[], Iterable[str]]) -> Completion:
    """Complete the last name of a comma list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known() if name.startswith(last)]

    return complete


def _policies() -> list[str]:
    from mark.policies.bundles import policy_names

    return [*policy_names(), "all"]


def _models() -> list[str]:
    from mark.catalog.load import known_models

    return sorted(known_models(None))


def _forecasters() -> list[str]:
    from mark.plugins.load import forecaster_names

    return list(forecaster_names())


def _rules() -> list[str]:
    from mark.dispatch.rules import rule_names

    return list(rule_names())


policies = names_of(_policies)
models = names_of(_models)
forecasters = names_of(_forecasters)
rules = names_of(_rules)
