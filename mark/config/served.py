"""What a service serves, by its settings alone: each model with its own settings and the service's.

No policy is made here: commands that name models, or send to them, need no more than this.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from mark.catalog.load import load_models
from mark.catalog.shipped_models import MODEL_FILE, PROFILE_FILE, folder_of
from mark.config.service import BackendSettings, OfferingSettings, ServedSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured, unknown
from mark.domain.offerings.offering import Market
from mark.policies.bundles import KAIROS

ON_LAMBDA = ("emulated", "python")
"""Backends that the Lambda handler runs; a server of its own has nothing to overflow to."""
DEFAULT_SERVE = (
    ServedSettings(
        model="inception-v3",
        market=Market.SPOT,
        offerings=OfferingSettings(types=("c5.large", "c5.xlarge", "c5.2xlarge")),
        expected_rps=40.0,
    ),
    ServedSettings(
        model="digits",
        backend=BackendSettings(kind="python", target="mark.models.digits:Digits"),
        expected_rps=5.0,
    ),
)
"""Models that are served where settings name none and torch is installed."""
NEEDS_TORCH = "digits"


def default_serve() -> tuple[ServedSettings, ...]:
    """Models that are served where settings name none: those whose libraries are installed."""
    return tuple(one for one in DEFAULT_SERVE if one.model != NEEDS_TORCH or _has_torch())


def lacks_torch(settings: Settings) -> bool:
    """True where the settings name no model, and one is left out of the usual ones because torch is missing."""
    return not (settings.service.serve or settings.model or _has_torch())


def _has_torch() -> bool:
    """True where torch is installed; it is not imported, which takes seconds."""
    return find_spec("torch") is not None


def served_models(settings: Settings) -> tuple[ServedSettings, ...]:
    """The models that the settings name, as they name them."""
    return tuple(one for _, one in each_model(settings))


def model_names(settings: Settings) -> tuple[str, ...]:
    """Names of the models that the settings name, in their order."""
    return tuple(one.model for _, one in each_model(settings))


def is_service(settings: Settings) -> bool:
    """True where the settings serve several models and name none of them."""
    return len(settings.service.serve) > 1 and settings.model is None


def settings_of_model(settings: Settings, name: str) -> Settings:
    """Settings of one model of a service: its own, and the service's where it says nothing."""
    found = {one.model: merged for merged, one in each_model(settings)}
    if name not in found:
        raise unknown("model of the service", name, found)
    return found[name]


def settings_alone(settings: Settings) -> Settings:
    """The settings of the one model that they name: its own where the service serves it, or serves no other."""
    names = [one.model for one in settings.service.serve]
    name = names[0] if settings.model is None and len(names) == 1 else settings.model
    return settings_of_model(settings, name) if name in names else settings


def settings_of_one(settings: Settings) -> Settings:
    """The same, for what looks at one model at a time.

    Misconfigured where a service has several and none is named.
    """
    names = [one.model for one in settings.service.serve]
    if settings.model is None and len(names) > 1:
        raise Misconfigured(f"this looks at one model at a time: add --model, one of {', '.join(names)}")
    return settings_alone(settings)


def each_model(settings: Settings) -> list[tuple[Settings, ServedSettings]]:
    """Settings of each model: its own, and the file's where it says nothing.

    Misconfigured where a model is served twice.
    """
    serve = settings.service.serve
    if not serve and settings.model is not None:
        serve = (ServedSettings(model=settings.model),)
    serve = serve or tuple(_with_offerings(one, settings) for one in default_serve())
    names = [one.model for one in serve]
    for name in names:
        if names.count(name) > 1:
            raise Misconfigured(f"the model {name} is served twice; a service holds a model once")
    return [(_settings_of(one, settings), one) for one in serve]


def as_rolled_out(settings: Settings) -> Settings:
    """The settings with what a service has where they leave it out: kinds of machines, and memory of functions."""
    rollout = settings.rollout
    functions = rollout.functions.model_copy(update={"memory_mib": rollout.function_mib})
    made = rollout.model_copy(update={"machines": rollout.machine_kinds, "functions": functions})
    return settings.model_copy(update={"rollout": made})


def _with_offerings(one: ServedSettings, settings: Settings) -> ServedSettings:
    """A default model with what the settings say of offerings: nobody has written its own."""
    if one.offerings is None:
        return one
    usual, told = OfferingSettings(), settings.offerings
    said = {name: value for name, value in told if value != getattr(usual, name)}
    return one.model_copy(update={"offerings": one.offerings.model_copy(update=said)})


def _settings_of(one: ServedSettings, settings: Settings) -> Settings:
    own = {
        "objective": one.objective,
        "market": one.market,
        "offerings": one.offerings,
        "trace": one.trace,
        "profiles": one.profiles,
        "policies": None if one.policy_name is None else (one.policy_name,),
        "forecaster": one.forecaster,
        "dispatch": one.dispatch,
        "too_late": one.too_late,
        "capacity": one.capacity,
    }
    update: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
    merged = as_rolled_out(settings).model_copy(update={"model": one.model, **update})
    if merged.policies[0] != KAIROS and one.policy_name is not None:  # the budget is that of other models' pools
        policy = merged.policy.model_copy(update={"budget_usd_per_hour": None})
        merged = merged.model_copy(update={"policy": policy})
    if one.backend.kind not in ON_LAMBDA or one.backend.streams:  # Lambda's adapter answers whole
        offerings = merged.offerings.model_copy(update={"overflow": False})
        merged = merged.model_copy(update={"offerings": offerings})
    beside = folder_of(one.backend.target, one.backend.folder) if one.backend.kind == "python" else None
    if beside is None:
        return merged
    more: dict[str, Any] = {}
    described = merged.models is not None and merged.models.is_file() and one.model in load_models(merged.models)
    if not described and (beside / MODEL_FILE).is_file():
        more["models"] = beside / MODEL_FILE
    if (beside / PROFILE_FILE).is_file():
        more["profiles"] = (*merged.profiles, str(beside / PROFILE_FILE))
    return merged.model_copy(update=more)
