"""`--trial`: the settings of a first deploy, made from those of the whole service. All else is the same deploy.

A trial takes what an account has on its first day and what can be had without a domain, a mail address or a
quota: one model, one node, instances on demand, an internal address. It costs little, stops when the day's
budget is spent, and ends by itself after a week unless it is deployed again. What differs is said; a later deploy
without it goes over to the settings as they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

from pydantic import BaseModel

from mark.accounting.budget import Reached
from mark.catalog.load import load_profiles
from mark.catalog.machines import FREE_PLAN_TYPES
from mark.config.rollout import FUNCTION_MIB, MachineSettings, node_name
from mark.config.served import served_models, settings_of_model
from mark.config.service import BackendSettings, ServedSettings
from mark.config.settings import Settings
from mark.deployment.bundles import fits_function
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market
from mark.report.terminal import note

MOST_USD_PER_HOUR, MOST_USD_A_DAY = 1.0, 5.0
DAYS = 7
"""A trial ends with the night after so many days: nobody hears of its alarms."""
CALLS = 10
"""Lambda's calls at once in a new account."""
RPS = 1.0
ONE_PROCESSOR = "the image needs one processor only, that of most instances"
NEW_ACCOUNT = "a new account has no more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting that a trial sets to another value."""

    setting: str
    value: object
    why: str


def tried(settings: Settings) -> Settings:
    """The settings of a trial of this service, after saying what differs."""
    changed, differences = trial_settings(settings, fits=lambda backend: fits_function(settings, backend))
    note("a trial: these settings differ")
    for one in differences:
        note(f"{one.setting}: {shown(one.value)} ({one.why})")
    return changed


def trial_settings(
    settings: Settings, *, fits: Callable[[BackendSettings], bool], today: date | None = None
) -> tuple[Settings, tuple[Difference, ...]]:
    """The settings of a trial, and what differs. `fits`: whether a Lambda function can answer for a model."""
    served = tried_model(settings)
    model, differences = _changed(_whole(settings, served), _of_model(settings, served, fits), "service.serve[].")
    kept = served_models(settings)
    if len(kept) > 1:
        differences.insert(
            0, Difference(setting="service.serve", value=served.model, why=f"one model of {len(kept)} will do")
        )
    service = settings.service.model_copy(update={"serve": (model,)})
    wanted = _of_service(settings, today or datetime.now(UTC).date())
    changed, others = _changed(settings.model_copy(update={"service": service}), wanted, "")
    return changed, (*differences, *others)


def tried_model(settings: Settings) -> ServedSettings:
    """The first model that is one. Misconfigured where all are emulated."""
    found = next((one for one in served_models(settings) if one.backend.kind != "emulated"), None)
    if found is None:
        raise Misconfigured(
            "a trial serves a model, and every backend of service.serve is emulated: take the line `backend` of "
            "`digits` in the mark.yaml that `mark init` writes, or `mark init my.py:Model` for your own"
        )
    return found


Wanted = tuple[str, object, str]
"""A setting, its value in a trial, and why."""


def _of_model(
    settings: Settings, served: ServedSettings, fits: Callable[[BackendSettings], bool]
) -> Iterator[Wanted]:
    merged = settings_of_model(settings, served.model)
    yield "market", Market.ON_DEMAND, "an instance stays until it is not needed"
    yield "offerings.standby_share", 0.0, "standbys are for spot and for surges"
    if not merged.offerings.types:
        profiled = load_profiles(served.model, merged.profiles).instance_types
        if types := tuple(name for name in FREE_PLAN_TYPES if name in profiled):
            yield "offerings.types", types, "an account on AWS's Free plan may launch no other"
    if not fits(served.backend):
        folder = settings.rollout.functions.bundles
        yield "offerings.overflow", False, f"neither {folder}/infer.zip nor functions.infer_image has the model"
    yield "expected_rps", min(served.expected_rps or RPS, RPS), "one instance will do until requests come"


def _of_service(settings: Settings, today: date) -> Iterator[Wanted]:
    aws, budget, rollout = settings.service.aws, settings.budget, settings.rollout
    limits, functions, node = settings.policy.overflow_limits, rollout.functions, rollout.node
    limit_usd = min(aws.max_usd_per_hour or MOST_USD_PER_HOUR, MOST_USD_PER_HOUR)
    yield "service.aws.max_usd_per_hour", limit_usd, "instances cost no more an hour"
    named = (usd for usd in (budget.daily_usd, budget.monthly_usd) if usd is not None)
    yield "budget.daily_usd", min([MOST_USD_A_DAY, *named]), "nor does the service a day"
    yield "budget.when_reached", Reached.PAUSE, "then instances end until the next day"
    yield "policy.overflow_limits.concurrency", min(limits.concurrency, CALLS), NEW_ACCOUNT
    yield "rollout.shape", "lean", "no load balancer, no ElastiCache, no Fargate"
    yield (
        "rollout.ends_on",
        rollout.ends_on or today + timedelta(days=DAYS),
        "it ends by itself; deploy again to go on",
    )
    yield "rollout.nodes", 1, "its loss stops the service, which a trial can take"
    if rollout.machines is None:
        yield "rollout.machines", (MachineSettings(),), ONE_PROCESSOR
        yield "rollout.node.architecture", "amd64", ONE_PROCESSOR
        if node.architecture != "amd64" and node.instance_type is not None:
            yield "rollout.node.instance_type", None, ONE_PROCESSOR
    else:
        plain = tuple(machine for machine in rollout.machines if not machine.accelerator)
        yield "rollout.machines", plain or (MachineSettings(),), "a new account may rent no GPU"
    if node.zone is None:
        yield "rollout.node.name", node_name(rollout, settings.service.name), "no domain is needed"
    yield "rollout.node.self_signed", node.certificate is None, "no certificate is needed"
    yield "rollout.gateway.scheme", "internal", "nobody outside the network can call it"
    yield "rollout.gateway.clients", (), "`mark try` calls from within the network"
    if rollout.network.private:
        yield "rollout.network.egress", "public", "the shape lean has no endpoints"
    yield "rollout.functions.probe", True, "`mark try` goes through it"
    yield "rollout.functions.provisioned", 0, "it is billed"
    yield "rollout.functions.reserved", None, NEW_ACCOUNT
    if functions.memory_mib is not None:
        yield "rollout.functions.memory_mib", min(functions.memory_mib, FUNCTION_MIB), NEW_ACCOUNT
    yield "rollout.report.sender", None, "SES need not know you: `mark report` makes the report"
    yield "rollout.report.to", (), "as above"
    yield "rollout.report.reconcile", False, "as above"
    yield "rollout.alarms.to", (), "no mail has to be confirmed"
    yield "rollout.alarms.webhook", None, "no secret has to be made"


P = TypeVar("P", bound=BaseModel)


def _whole(settings: Settings, served: ServedSettings) -> ServedSettings:
    """The model's entry with what it takes from the service written into it, where a trial changes that."""
    merged = settings_of_model(settings, served.model)
    return served.model_copy(update={"market": merged.market, "offerings": merged.offerings})


def _changed(part: P, wanted: Iterator[Wanted], prefix: str) -> tuple[P, list[Difference]]:
    """The settings with these values, and those that they did not have before."""
    differences = []
    for setting, value, why in wanted:
        keys = setting.split(".")
        if _value(part, keys) != value:
            part = _with(part, keys, value)
            differences.append(Difference(setting=f"{prefix}{setting}", value=value, why=why))
    return part, differences


def _value(part: object, keys: Sequence[str]) -> object:
    for key in keys:
        part = getattr(part, key)
    return part


def _with(part: P, keys: Sequence[str], value: object) -> P:
    first, *rest = keys
    return part.model_copy(update={first: _with(getattr(part, first), rest, value) if rest else value})


def shown(value: object) -> str:
    """A value as a settings file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(shown(one) for one in value)}]"
    if isinstance(value, MachineSettings):
        return value.name
    return "left out" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
