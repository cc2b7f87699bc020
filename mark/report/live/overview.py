"""The models of a running service at a glance: which rows, in which order, in which state. Pure.

`mark status`, the status page and the JSON document print what is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mark.report.live.service_status import (
    ModelRow,
    ModelState,
    ModelStatus,
    OverheadStatus,
    Overview,
    SharedStatus,
)

BROKEN = "broken"
"""State of an instance whose model no longer answers."""


LEAST_MEAN_S = 60.0
"""A mean over less says nothing of an hour: a cold start, or a minute's minimum charge, would be all of it."""


def says_mean(over_s: float) -> bool:
    """True where a mean over so many seconds says what an hour costs."""
    return over_s >= LEAST_MEAN_S


def make_overview(
    models: Sequence[ModelStatus], overhead: OverheadStatus, shared: SharedStatus | None = None
) -> Overview:
    """One row a model, the most expensive first, with its part of shared instances.

    The sum has their idle time, and the service's overhead, once.
    """
    rows = [
        ModelRow(
            model=model.name,
            rps=model.rates.last_minute_rps,
            attained=model.objective.attained,
            usd_per_hour=None if model.usd_per_hour is None else model.usd_per_hour + model.shared_usd_per_hour,
            state=model_state(model),
        )
        for model in models
    ]
    rows.sort(key=lambda row: (-(row.usd_per_hour or 0.0), row.model))
    parts = [overhead.usd_per_hour, *(row.usd_per_hour for row in rows)]
    parts += [] if shared is None else [shared.idle_usd_per_hour]
    hourly = [usd for usd in parts if usd is not None]
    return Overview(rows=tuple(rows), usd_per_hour=sum(hourly) if len(hourly) == len(parts) else None)


def model_state(model: ModelStatus) -> ModelState:
    """What a reader must know first of a model: trouble, then change, then rest."""
    observed = model.fleet.observed
    states = {*(one.state for one in observed), *(one.state for one in model.shared)}
    found = (
        (model.objective.is_missed, ModelState.MISSES),
        (BROKEN in states, ModelState.BROKEN),
        (any(one.gone_in_s is not None for one in observed), ModelState.LOSING_SPOT),
        (model.policy is None, ModelState.STARTING),
        (_lacks_planned(model) or "pending" in states, ModelState.SCALING_UP),
        (model.rates.max_rps > 0, ModelState.SERVING),
        (model.objective.attained is None, ModelState.UNASKED),
    )
    return next((state for holds, state in found if holds), ModelState.IDLE)


def _lacks_planned(model: ModelStatus) -> bool:
    """True where fewer instances are ready than the plan wants; orders may be filled since the last tick."""
    ready = Counter(one.offering for one in model.fleet.observed if one.state == "ready")
    return any(ready[offering] < count for offering, count in model.fleet.planned.items())
