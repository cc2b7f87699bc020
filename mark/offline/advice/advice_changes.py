"""Changes of a service's settings that may cost less, one at a time. Pure but for the profiles that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from mark.catalog.load import load_profiles
from mark.catalog.type_sets import CURRENT
from mark.config.settings import Settings
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.offerings.offering import Market
from mark.report.formatting import percent
from mark.simulator.experiment import Experiment

OWN = "hedged"
LOOSER = 1.25
"""Factor of the latency objective that is tried."""
LESS_SURE = 0.95
"""Target that is tried where a service has a higher one."""
ASSUMED = "assumed-current"
"""The shipped profiles of types that nobody measured for the paper's models."""
SHOWN_TYPES = 3
PROFILED = "measured.json"
"""The file that a measurement of more types writes."""
SECOND = "second.yaml"
"""The second service's settings, where a service moves to another shape (docs/deploy.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the settings, and how it is made: in the file, and in a replay by flags of `mark simulate`."""

    what: str
    setting: str
    settings: Settings
    flags: str
    #: The command that brings it into the service once the file says it.
    does: str
    #: False where clients get less than they are promised now.
    same_promise: bool = True


def does_settings(settings: Settings, file: str) -> str:
    """The command after which a service has what its file says: in an account where it names an image, or here."""
    if settings.rollout.image is not None:
        return f"mark deploy --config {file}"
    return f"mark down --config {file} && mark up --config {file}"


def changes_of(settings: Settings, experiment: Experiment, policy: str, file: str) -> Iterator[Change]:
    """Changes of these settings that may be worth it; every one differs from what they say.

    file: the settings' own, as a shell reads it.
    """
    does = does_settings(settings, file)
    market, slo, offerings = experiment.spec.market, experiment.spec.slo, settings.offerings
    other = Market.ON_DEMAND if market is Market.SPOT else Market.SPOT
    yield Change(
        what=f"rent on {other.value.replace('-', ' ')}",
        setting=f"market: {other.value}",
        settings=settings.model_copy(update={"market": other}),
        flags=f"--market {other.value}",
        does=does,
    )
    if policy != OWN:
        yield Change(
            what=f"let {OWN} plan instead of {policy}",
            setting=f"policies: [{OWN}]",
            settings=settings.model_copy(update={"policies": (OWN,)}),
            flags=f"--policy {OWN}",
            does=does,
        )
    if set(offerings.types) not in (set(), {CURRENT}):
        yield Change(
            what="choose among all current types that are profiled",
            setting=f"offerings.types: [{CURRENT}]",
            settings=_with(settings, "offerings", types=(CURRENT,)),
            flags=f"--types {CURRENT}",
            does=does,
        )
    new = _unprofiled(settings, experiment)
    if new:
        named = ", ".join(new[:SHOWN_TYPES]) + (" and others" if len(new) > SHOWN_TYPES else "")
        yield Change(
            what=f"profile {named} (by assumed profiles)",
            setting=f"profiles: [{', '.join((*settings.profiles, PROFILED))}]; offerings.types: [{CURRENT}]",
            settings=_with(settings, "offerings", types=(CURRENT,)).model_copy(
                update={"profiles": (*settings.profiles, ASSUMED)}
            ),
            flags=" ".join(
                (f"--types {CURRENT}", *(f"--profiles {name}" for name in (*settings.profiles, ASSUMED)))
            ),
            does=f"mark profile --config {file} --on {','.join(new)} --out {PROFILED} && {does}",
        )
    if not offerings.overflow:
        yield Change(
            what="let Lambda take what instances cannot serve in time",
            setting="offerings.overflow: true",
            settings=_with(settings, "offerings", overflow=True),
            flags="--set offerings.overflow=true",
            does=does,
        )
    if settings.rollout.shape != "lean":
        yield Change(
            what="deploy the lean shape",
            setting="rollout.shape: lean",
            settings=_with(settings, "rollout", shape="lean"),
            flags="--set rollout.shape=lean",
            does=f"mark deploy --config {SECOND}",
        )
    if settings.rollout.network.egress == "public" and settings.rollout.network.vpc is None:
        network = settings.rollout.network.model_copy(update={"egress": "ipv6"})
        yield Change(
            what="let instances reach AWS by IPv6, without a public address",
            setting="rollout.network.egress: ipv6",
            settings=_with(settings, "rollout", network=network),
            flags="--set rollout.network.egress=ipv6",
            does=does,
        )
    zones = settings.rollout.network.zones
    if len(zones) > 2:
        kept = {"zones": zones[:2], "subnets": settings.rollout.network.subnets[:2]}
        written = {key: f"[{','.join(names)}]" for key, names in kept.items() if names}
        network = settings.rollout.network.model_copy(update=kept)
        yield Change(
            what=f"use two zones instead of {len(zones)}",
            setting="; ".join(f"rollout.network.{key}: {names}" for key, names in written.items()),
            settings=_with(settings, "rollout", network=network),
            flags=" ".join(f"--set rollout.network.{key}={names}" for key, names in written.items()),
            does=does,
        )
    looser_ms = 1000 * slo.latency_s * LOOSER
    yield Change(
        what=f"promise {looser_ms:g} ms instead of {1000 * slo.latency_s:g} ms",
        setting=f"objective.latency_ms: {looser_ms:g}",
        settings=_with(settings, "objective", latency_ms=looser_ms),
        flags=f"--slo-ms {looser_ms:g}",
        does=does,
        same_promise=False,
    )
    if slo.target > LESS_SURE:
        yield Change(
            what=f"promise {percent(LESS_SURE, digits=0)} instead of {percent(slo.target)}",
            setting=f"objective.target: {LESS_SURE:g}",
            settings=_with(settings, "objective", target=LESS_SURE),
            flags=f"--slo-target {LESS_SURE:g}",
            does=does,
            same_promise=False,
        )


def _unprofiled(settings: Settings, experiment: Experiment) -> tuple[str, ...]:
    """Current types that nobody profiled for the model, of which a profile is assumed."""
    name = experiment.spec.model.name
    try:
        known = load_profiles(name, settings.profiles).instance_types
        assumed = load_profiles(name, (*settings.profiles, ASSUMED)).instance_types
    except MarkError:  # of a model of one's own nothing is assumed
        return ()
    return tuple(sorted(set(assumed) - set(known)))


def _with(settings: Settings, part: str, **values: object) -> Settings:
    section = getattr(settings, part)
    return settings.model_copy(update={part: section.model_copy(update=values)})


def checked(settings: Settings) -> Settings:
    """The same settings, as a file with them would be read. Misconfigured where that would be refused."""
    try:
        return Settings.model_validate(settings.model_dump(exclude_unset=True))
    except ValidationError as error:
        raise Misconfigured(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from error
