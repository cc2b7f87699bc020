"""The grid of a sweep: which settings take which values, and the settings of every combination.

Every setting that decides a replay can be swept by its dotted name, such as `policy.lead_min`. Values are read as
YAML, so lists and objects can be swept too: `offerings.types=[c5.large],[c5.large,c5.xlarge]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from mark.config.settings import Settings, load_settings, types_of
from mark.domain.errors import MarkError, Misconfigured, unknown

MAX_COMBINATIONS = 100_000
"""More is a slip: a hundred thousand replays of a second each take a day."""
OWN_FLAGS = {"trace.file": "--trace", "policies": "--policy"}
"""Settings that have a flag of their own, because a comma means more there."""
NO_REPLAY = ("out", "service", "telemetry")
"""What does not decide a replay, but for `OF_SERVICE`."""
OF_SERVICE = ("service.aws.max_usd_per_hour", "service.aws.max_vcpus", "service.aws.max_gpus")
"""The cap over all models of a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A setting and the values it takes; `flag` is what an error calls it."""

    key: str
    flag: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The settings of one point of the grid, and those of them that differ between points, by dotted name."""

    settings: Settings
    swept: Mapping[str, Any]

    @property
    def words(self) -> str:
        """Name in errors: `policy.lead_min=3 seed=1`."""
        return " ".join(f"{key}={value}" for key, value in self.swept.items())


def parse_axis(text: str) -> Axis:
    """`policy.lead_min=3,5,8`. Misconfigured where the setting is unknown or the values cannot be read."""
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not values.strip():
        raise Misconfigured(f"--set {text!r} must read SETTING=VALUE,VALUE, such as policy.lead_min=3,5")
    known = setting_names()
    if key in OWN_FLAGS:
        raise Misconfigured(f"--set {key} has a flag of its own: {OWN_FLAGS[key]}")
    if not _is_replayed(key):
        raise Misconfigured(f"--set {key}: no replay depends on it; docs/settings.md lists what can be swept")
    if key not in known:
        raise unknown("setting", key, known)
    try:
        found = yaml.safe_load(f"[{values}]")
    except (yaml.YAMLError, ValueError) as error:
        raise Misconfigured(
            f"--set {key}: {values!r} cannot be read as values with commas between them"
        ) from error
    return Axis(key=key, flag=f"--set {key}", values=tuple(found))


def plain_axis(key: str, flag: str, values: Sequence[Any]) -> Axis | None:
    """The axis of a flag; None where it was not given."""
    return Axis(key=key, flag=flag, values=tuple(values)) if values else None


def combinations(config: Path | None, axes: Sequence[Axis]) -> Iterator[Combination]:
    """Every combination, the last axis fastest, validated one by one.

    Misconfigured where a setting is given twice, a value is refused, or the grid is far too large.
    """
    keys = [axis.key for axis in axes]
    twice = next((axis for axis in axes if keys.count(axis.key) > 1), None)
    if twice is not None:
        raise Misconfigured(f"{twice.key} is given twice; name all its values in one place")
    count = math.prod(len(axis.values) for axis in axes)
    if count > MAX_COMBINATIONS:
        raise Misconfigured(f"a grid of {count:,} combinations is too large; {MAX_COMBINATIONS:,} at most")
    differing = [axis.key for axis in axes if len(axis.values) > 1]
    for values in product(*(axis.values for axis in axes)):
        flags = {axis.key: (axis.flag, value) for axis, value in zip(axes, values, strict=True)}
        settings = load_settings(config, flags)
        tree = settings.model_dump(mode="json")
        yield Combination(settings=settings, swept={key: _at(tree, key) for key in differing})


def refusal_of(combination: Combination, error: MarkError) -> Misconfigured:
    """The error of one combination, which says which one where there are several."""
    message = f"{combination.words}: {error}" if combination.swept else str(error)
    return Misconfigured(message)


def setting_names() -> tuple[str, ...]:
    """The dotted names of all settings that a sweep may change."""
    return tuple(name for name in _leaves(Settings, "") if _is_replayed(name))


def _is_replayed(key: str) -> bool:
    """True where a replay may depend on the setting."""
    return key in OF_SERVICE or key.partition(".")[0] not in NO_REPLAY


def _leaves(part: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in part.model_fields.items():
        inner = next((kind for kind in types_of(field.annotation) if issubclass(kind, BaseModel)), None)
        if inner is None or "tuple" in str(field.annotation):
            yield f"{prefix}{name}"
        else:
            yield from _leaves(inner, f"{prefix}{name}.")


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part]
    return tree
