"""Settings of the run: those of a trial, on spot with standbys, and with an end that is close. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from mark.config.capacity import CapacitySettings
from mark.config.service import BackendSettings
from mark.config.settings import Settings
from mark.deployment.trial import RPS, trial_settings
from mark.domain.offerings.offering import Market

MOST_USD_A_DAY = 1.0
"""Then instances end until the next day. Two days, 48 hours of the node (1.70) and FIS (0.60) stay below 5 USD."""
DAYS = 2
"""Node and instances end by themselves with the second night, whatever became of whoever runs this."""


POLICY, FORECASTER = "mark", "last-value"
"""They keep standbys for spot at any load, and plan without training; `hedged` keeps standbys where they pay."""
STANDBY_SHARE = 1.0
"""So that each interruption wakes one."""


def run_settings(settings: Settings, *, fits: Callable[[BackendSettings], bool], today: date) -> Settings:
    """The settings. fits: whether a Lambda function can answer for a model."""
    tried, _ = trial_settings(settings, fits=fits, today=today)
    budget = tried.budget.model_copy(update={"daily_usd": MOST_USD_A_DAY, "monthly_usd": None})
    rollout = tried.rollout.model_copy(update={"ends_on": today + timedelta(days=DAYS)})
    return on_spot(tried).model_copy(update={"budget": budget, "rollout": rollout})


def on_spot(settings: Settings) -> Settings:
    """A service of one model, on spot with standbys."""
    [served] = settings.service.serve
    offerings = served.offerings or settings.offerings
    standbys = {"standby_share": STANDBY_SHARE, "standby_type": next(iter(offerings.types or ()), None)}
    update = {
        "market": Market.SPOT,
        "offerings": offerings.model_copy(update=standbys),
        "policy_name": POLICY,
        "forecaster": FORECASTER,
        "capacity": (CapacitySettings(min_rps=served.expected_rps or RPS),),
    }
    service = settings.service.model_copy(update={"serve": (served.model_copy(update=update),)})
    return settings.model_copy(update={"service": service})
