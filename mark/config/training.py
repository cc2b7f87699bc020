"""Which forecasters of a service train in its function, by the settings alone."""

from __future__ import annotations

from mark.config.settings import Settings
from mark.plugins.trained import may_train_elsewhere
from mark.policies.bundles import LEARNING


def models_trained_in_function(settings: Settings, *, models: int = 1) -> int:
    """Number of the service's models whose forecasters the function trains; `models` where none are named."""
    if settings.rollout.training_image is None:
        return 0
    policy, forecaster = settings.policies[0], settings.forecaster
    serve = settings.service.serve
    asked = [(one.forecaster or forecaster, one.policy_name or policy) for one in serve] or [
        (forecaster, policy)
    ] * models
    named = (own or LEARNING.get(of_policy) for own, of_policy in asked)
    return sum(name is not None and may_train_elsewhere(name) for name in named)


def trains_in_function(settings: Settings) -> bool:
    """True where the service has a function that trains."""
    return models_trained_in_function(settings) > 0
