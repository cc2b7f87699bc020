"""Whether forecasts have become worse of late: their losses in the last hours against those of the day before.

What a forecast says of the unit `lead_units` ahead, the one that plans look at, is kept until that unit has ended.
Its loss is the pinball loss of the unit's maximum, mean over the forecast's own levels: for a point, half of the
error. Losses are summed and divided by the load they were made on, so a load that grows is no drift by itself. A
fallback's forecasts are not the forecaster's and are left out.

All of it follows from what a journal holds: folding `followed` over its observations gives the same figure after a
restart. A day has hours that are harder to foresee than others, and a flood is an error of any forecaster: a ratio
above 1 is a reason to look, or to train, and no proof that training helps.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.controller.state import Observation
from mark.domain.demand import DemandUnit, Forecast
from mark.domain.orders import ForecastFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPolicy:
    """What is compared, in units: the last `recent_units` with up to `reference_units` before them.

    Below `least_units` of reference nothing is said: the hours of a day differ.
    """

    lead_units: int = 5
    recent_units: int = 180
    reference_units: int = 1440
    least_units: int = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was forecast for the unit from `start_at` on: the maximum's rate at each level, requests/s."""

    start_at: float
    levels: tuple[float, ...]
    max_rps: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A unit that was forecast and has ended: its loss and its maximum, requests/s."""

    loss: float
    max_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What is remembered: forecasts of units to come, and judged units, both oldest first."""

    said: tuple[Said, ...] = ()
    judged: tuple[Judged, ...] = ()


def followed(drift: Drift, seen: Observation, policy: DriftPolicy) -> Drift:
    """The memory after one more tick: the unit that ended is judged, what is forecast is kept."""
    if seen.demand is not None:
        drift = _judged(drift, seen.demand, policy)
    own = seen.forecast is not None and not any(isinstance(fact, ForecastFailed) for fact in seen.facts)
    if own and seen.forecast is not None and len(seen.forecast) >= policy.lead_units:
        drift = _said(drift, seen.forecast, policy)
    return drift


def worsening(drift: Drift, policy: DriftPolicy) -> float | None:
    """How many times their usual size losses are of late; None where too little was judged, or came."""
    recent, before = drift.judged[-policy.recent_units :], drift.judged[: -policy.recent_units]
    if len(recent) < policy.recent_units or len(before) < policy.least_units:
        return None
    load, usual_load = (sum(unit.max_rps for unit in units) for units in (recent, before))
    loss, usual_loss = (sum(unit.loss for unit in units) for units in (recent, before))
    if not (load > 0 and usual_load > 0 and usual_loss > 0):
        return None
    return (loss / load) / (usual_loss / usual_load)


def pinball_loss(said: Said, max_rps: float) -> float:
    """The mean over the levels: a level q loses q for each request/s it is too low, 1 - q for each too high."""
    losses = (
        level * (max_rps - rate) if max_rps > rate else (1 - level) * (rate - max_rps)
        for level, rate in zip(said.levels, said.max_rps, strict=True)
    )
    return sum(losses) / len(said.levels)


def _judged(drift: Drift, unit: DemandUnit, policy: DriftPolicy) -> Drift:
    # a unit's start may be off by the rounding of a sum of seconds: half a second is none of the next unit
    about = next((said for said in drift.said if abs(said.start_at - unit.start_at) < 0.5), None)
    later = tuple(said for said in drift.said if said.start_at > unit.start_at + 0.5)
    if about is None:
        return Drift(said=later, judged=drift.judged)
    judged = Judged(loss=pinball_loss(about, unit.max_rps), max_rps=unit.max_rps)
    keep = policy.recent_units + policy.reference_units
    return Drift(said=later, judged=(*drift.judged, judged)[-keep:])


def _said(drift: Drift, forecast: Forecast, policy: DriftPolicy) -> Drift:
    """A newer forecast of the same unit takes the place of the older."""
    start_at = forecast.start_at + (policy.lead_units - 1) * forecast.unit_s
    said = Said(start_at=start_at, levels=forecast.quantiles, max_rps=forecast.max_rps[policy.lead_units - 1])
    earlier = tuple(other for other in drift.said if other.start_at < start_at - 0.5)
    return Drift(said=(*earlier, said), judged=drift.judged)
