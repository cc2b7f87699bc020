"""Short names of settings, for flags and for Python: `start_s` is `trace.start_s`, and `--start-s` gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.config.events import parse_event
from mark.config.settings import Settings, load_settings
from mark.domain.errors import Misconfigured, unknown

SETTINGS = {
    "accuracy_floor": "objective.accuracy_floor",
    "ask_above": "service.aws.ask_above_usd_per_hour",
    "bursts": "trace.bursts",
    "commitments": "account.commitments",
    "dispatch": "dispatch",
    "duration_s": "trace.duration_s",
    "event": "events",
    "forecaster": "forecaster",
    "interrupt": "faults.interrupts",
    "market": "market",
    "mean_rps": "trace.mean_rps",
    "model": "model",
    "models": "models",
    "name": "service.name",
    "now": "simulate.now",
    "out": "out",
    "policy": "policies",
    "pool_usd_per_hour": "policy.budget_usd_per_hour",
    "profiles": "profiles",
    "qos_policy": "qos_policy",
    "region": "service.aws.region",
    "rows": "trace.rows",
    "scale": "trace.scale",
    "seed": "seed",
    "sizes": "trace.sizes",
    "slo_ms": "objective.latency_ms",
    "slo_target": "objective.target",
    "speed": "trace.speed",
    "start_s": "trace.start_s",
    "stress": "faults.stress",
    "dates": "trace.dates",
    "time": "trace.time",
    "trace": "trace.file",
    "tz": "trace.tz",
    "value": "trace.value",
    "types": "offerings.types",
    "where": "trace.where",
    "world": "simulate.world",
}
"""Short names and the settings that they stand for."""


def settings_named(given: Mapping[str, Any], config: Path | Mapping[str, Any] | None = None) -> Settings:
    """Settings by their short or dotted names, over those of a file or of what it holds.

    A value of None is not given. Misconfigured where a name or value is wrong.
    """
    for name in given:
        if not ("." in name or name in SETTINGS or name in Settings.model_fields):
            raise unknown("setting", name, SETTINGS)
    return load_settings(
        config, {SETTINGS.get(name, name): (name, value_of(name, value)) for name, value in given.items()}
    )


def value_of(name: str, given: Any) -> Any:
    """A value by its short name, as the setting takes it: lists may be texts with commas, and texts parts."""
    if name in ("policy", "types", "interrupt", "event"):
        given = [given] if isinstance(given, str) else [*given] if isinstance(given, Iterable) else given
        if given is not None and not (isinstance(given, list) and all(isinstance(one, str) for one in given)):
            raise Misconfigured(f"{name} takes texts, not {given!r:.60}")
    if name in ("policy", "types"):
        return split_list(given)
    if name == "interrupt":
        return parse_interrupts(given)
    if name == "event":
        return [parse_event(text) for text in given or ()]
    return str(given) if isinstance(given, Path) else given


def split_list(values: Sequence[str] | str | None) -> list[str]:
    """Names of a comma list that may repeat."""
    given = [values] if isinstance(values, str) else list(values or ())
    return [name.strip() for value in given for name in value.split(",") if name.strip()]


def parse_interrupts(values: Sequence[str] | None) -> list[dict[str, float]]:
    """`7:0.4` loses 40 % of the spot instances at minute 7."""
    found = []
    for value in values or ():
        minute, _, share = value.partition(":")
        try:
            found.append({"at_min": float(minute), "share": float(share)})
        except ValueError as error:
            raise Misconfigured(f"--interrupt {value!r} must read MINUTE:SHARE, such as 7:0.4") from error
    return found
