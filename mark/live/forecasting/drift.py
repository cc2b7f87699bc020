"""Drift: the forecasts' losses in the last hours against those of the day before.

The forecast of the unit `lead_units` ahead, the one that plans look at, is kept until that unit has ended.
Its loss is the pinball loss of the unit's maximum, mean over the forecast's own levels: for a point, half of the
error. Losses are summed and divided by the load they were made on, so a load that grows is no drift by itself. A
fallback's forecasts are not the forecaster's and are left out.

All of it follows from what a journal holds: folding `update_drift` over its observations gives the same figure
after a restart. A day has hours that are harder to foresee than others, and a flood is an error of any forecaster:
a ratio above 1 is a reason to look, or to train, and no proof that training helps.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.controller.state import Observation
from mark.domain.demand import DemandUnit, Forecast
from mark.domain.fleet.orders import ForecastFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPolicy:
    """The spans that are compared, in units: the last `recent_units` with up to `reference_units` before them.

    Below `least_units` of reference there is no figure: the hours of a day differ.
    """

    lead_units: int = 5
    recent_units: int = 180
    reference_units: int = 1440
    least_units: int = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptForecast:
    """The forecast of one unit, kept until it has ended: the maximum's rate at each level, requests/s."""

    start_at: float
    levels: tuple[float, ...]
    max_rps: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLoss:
    """A unit that was forecast and has ended: its loss and its maximum, requests/s."""

    loss: float
    max_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The memory: forecasts of units to come, and losses of units that ended, both oldest first."""

    forecasts: tuple[KeptForecast, ...] = ()
    losses: tuple[UnitLoss, ...] = ()


def update_drift(drift: Drift, seen: Observation, policy: DriftPolicy) -> Drift:
    """Fold one more tick: the unit that ended becomes a loss, its forecast is kept."""
    if seen.demand is not None:
        drift = _with_loss(drift, seen.demand, policy)
    own = seen.forecast is not None and not any(isinstance(fact, ForecastFailed) for fact in seen.facts)
    if own and seen.forecast is not None and len(seen.forecast) >= policy.lead_units:
        drift = _with_forecast(drift, seen.forecast, policy)
    return drift


def worsening(drift: Drift, policy: DriftPolicy) -> float | None:
    """The ratio of recent to usual loss, each by its load; None where too few units have one, or no load came."""
    recent, before = drift.losses[-policy.recent_units :], drift.losses[: -policy.recent_units]
    if len(recent) < policy.recent_units or len(before) < policy.least_units:
        return None
    load, usual_load = (sum(unit.max_rps for unit in units) for units in (recent, before))
    loss, usual_loss = (sum(unit.loss for unit in units) for units in (recent, before))
    if not (load > 0 and usual_load > 0 and usual_loss > 0):
        return None
    return (loss / load) / (usual_loss / usual_load)


def pinball_loss(forecast: KeptForecast, max_rps: float) -> float:
    """The mean over the levels: a level q loses q for each request/s it is too low, 1 - q for each too high."""
    losses = (
        level * (max_rps - rate) if max_rps > rate else (1 - level) * (rate - max_rps)
        for level, rate in zip(forecast.levels, forecast.max_rps, strict=True)
    )
    return sum(losses) / len(forecast.levels)


def _with_loss(drift: Drift, unit: DemandUnit, policy: DriftPolicy) -> Drift:
    # a unit's start may be off by the rounding of a sum of seconds: half a second is none of the next unit
    about = next((kept for kept in drift.forecasts if abs(kept.start_at - unit.start_at) < 0.5), None)
    later = tuple(kept for kept in drift.forecasts if kept.start_at > unit.start_at + 0.5)
    if about is None:
        return Drift(forecasts=later, losses=drift.losses)
    judged = UnitLoss(loss=pinball_loss(about, unit.max_rps), max_rps=unit.max_rps)
    keep = policy.recent_units + policy.reference_units
    return Drift(forecasts=later, losses=(*drift.losses, judged)[-keep:])


def _with_forecast(drift: Drift, forecast: Forecast, policy: DriftPolicy) -> Drift:
    """A newer forecast of the same unit takes the place of the older."""
    start_at = forecast.start_at + (policy.lead_units - 1) * forecast.unit_s
    kept = KeptForecast(
        start_at=start_at, levels=forecast.quantiles, max_rps=forecast.max_rps[policy.lead_units - 1]
    )
    earlier = tuple(other for other in drift.forecasts if other.start_at < start_at - 0.5)
    return Drift(forecasts=(*earlier, kept), losses=drift.losses)
