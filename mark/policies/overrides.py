"""Tuning: what a team changes in our own policies, and how a run's notes say so.

Every tunable setting is one row of `SETTINGS`: its name in the section `policy`, and the field of a policy where
it acts. Defaults stand at that field alone. Baselines stay what they are: a comparison with a baseline that was
changed along with us says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mark.domain.errors import unknown
from mark.domain.offerings.offering import Market
from mark.policies.bundles import FLEET_PER_MODEL, PolicyBundle

Part = TypeVar("Part")
Tuning = Mapping[str, object]
"""Settings of our own policies by their dotted names in the section `policy`; None leaves what the policy has."""

OWN_POLICIES = ("hedged", FLEET_PER_MODEL, "mark", "greedy-oracle", "milp", "kairos")
"""Policies that a Tuning applies to."""
MONITOR_TYPE_KEY = "monitor.instance_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class TunableSetting:
    """One setting of the section `policy`."""

    #: Its dotted name there.
    key: str
    #: The field of a `PolicyBundle` where it acts, dotted; a part that the policy lacks is left out.
    field: str
    #: How many of the field's unit are one of the setting's.
    scale: float | None = None
    #: The only planner that it changes; None for all.
    planner: str | None = None

    def applies(self, bundle: PolicyBundle) -> bool:
        """True where that policy has the part, and the planner, that it changes."""
        return self.planner in (None, bundle.controller.planner) and _part(bundle, self.field) is not None


SETTINGS = (
    TunableSetting(key="lead_min", field="controller.lead_units"),
    TunableSetting(key="cooldown_min", field="controller.cooldown_s", scale=60.0),
    TunableSetting(key="max_instances", field="controller.max_instances"),
    TunableSetting(key="launch_weight_usd_per_s", field="controller.launch_weight_usd_per_s", planner="milp"),
    TunableSetting(key="admission_factor", field="dispatch.admission_factor"),
    TunableSetting(key="admission_confidence", field="dispatch.admission_confidence"),
    TunableSetting(key="standby.max_count", field="controller.standby.max_count"),
    TunableSetting(key="monitor.requests", field="controller.monitor.requests"),
    TunableSetting(key="monitor.seconds", field="controller.monitor.seconds"),
    TunableSetting(key="monitor.count", field="controller.monitor.count"),
    TunableSetting(key="monitor.cooldown_s", field="controller.monitor.cooldown_s"),
    TunableSetting(key=MONITOR_TYPE_KEY, field="controller.monitor.offering"),
)


def tuned(bundle: PolicyBundle, tuning: Tuning, market: Market) -> PolicyBundle:
    """The bundle with what is tuned; another policy than our own as it is."""
    if bundle.name not in OWN_POLICIES:
        return bundle
    for setting in SETTINGS:
        value: Any = tuning.get(setting.key)
        if value is None or not setting.applies(bundle):
            continue
        if setting.scale is not None:
            value *= setting.scale
        if setting.key == MONITOR_TYPE_KEY:
            value = _offering_of(bundle, value, market)
        bundle = _with(bundle, setting.field.split("."), value)
    return bundle


def tuning_notes(before: PolicyBundle, after: PolicyBundle) -> tuple[str, ...]:
    """One note for each setting of `before` that is another in `after`."""
    return tuple(
        f"policy.{key} is {new} instead of {old}"
        for (key, old), (_, new) in zip(_shown(before), _shown(after), strict=True)
        if old != new
    )


def _offering_of(bundle: PolicyBundle, instance_type: str, market: Market) -> str:
    name = f"{instance_type}:{market.value}"
    known = {item.name: item.instance_type.name for item in bundle.controller.offerings}
    if name not in known:
        raise unknown("instance type in policy.monitor", instance_type, known.values())
    return name


def _shown(bundle: PolicyBundle) -> Iterator[tuple[str, str]]:
    """Every setting that applies, as the settings file names and counts it."""
    for setting in SETTINGS:
        if not setting.applies(bundle):
            continue
        value: Any = _part(bundle, setting.field)
        if setting.scale is not None:
            value /= setting.scale
        if setting.key == MONITOR_TYPE_KEY:
            yield setting.key, value.partition(":")[0]
        else:
            yield setting.key, f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _part(whole: object, field: str) -> object:
    """The value of a dotted field; None where a part on the way is None."""
    for name in field.split("."):
        if whole is None:
            return None
        whole = getattr(whole, name)
    return whole


def _with(whole: Part, field: Sequence[str], value: object) -> Part:
    """The same dataclass with another value in a field of a field of it."""
    name, *rest = field
    changed: Any = {name: _with(getattr(whole, name), rest, value) if rest else value}
    return replace(whole, **changed)  # type: ignore[type-var]
