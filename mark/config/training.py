"""Which forecasters of a service train in its function, by the settings alone."""

from __future__ import annotations

from mark.config.settings import Settings
from mark.plugins.trained import may_train_elsewhere, may_train_with_torch
from mark.policies.bundles import LEARNING


def models_trained_in_function(settings: Settings, *, models: int = 1) -> int:
    """Number of the service's models whose forecasters the function trains; `models` where none are named."""
    if settings.rollout.training_image is None:
        return 0
    return sum(name is not None and may_train_elsewhere(name) for name in _learners(settings, models))


def trains_on_nodes(settings: Settings) -> bool:
    """True where controllers train a model's forecaster, in a process beside them."""
    in_function = settings.rollout.training_image is not None
    learners = [name for name in _learners(settings, 1) if name is not None and may_train_with_torch(name)]
    return any(not (in_function and may_train_elsewhere(name)) for name in learners)


def _learners(settings: Settings, models: int) -> list[str | None]:
    """The forecaster that each model trains; None where it trains none that is known."""
    policy, forecaster = settings.policies[0], settings.forecaster
    serve = settings.service.serve
    asked = [(one.forecaster or forecaster, one.policy_name or policy) for one in serve] or [
        (forecaster, policy)
    ] * models
    return [own or LEARNING.get(of_policy) for own, of_policy in asked]


def trains_in_function(settings: Settings) -> bool:
    """True where the service has a function that trains."""
    return models_trained_in_function(settings) > 0
