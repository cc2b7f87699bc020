"""HetSev's figure 7: what four models cost, by the paper's accounting and in rent, and which part saves it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from mark.simulator.fixed.shared_gpus import SharedLoad, SharedRun
from mark.studies.hetsev.cases import (
    CLIENTS,
    HETSEV,
    KUBERNETES,
    MODELS,
    OPEN,
    SL_MIN,
    SYSTEMS,
    T4,
    V100,
    Scope,
    assumptions,
    intervals,
    production,
    run,
    shared_model,
)
from mark.studies.study import Row, Study, StudyContext, View

DURATION_S = 3000.0
PEAK_INSTANCES = 4
"""Instances on a T4 that a model's peak fills to 80 %: four models then fit 16 GPUs without sharing."""
PEAK_OVER_VALLEY = 4.0
SHIFT_S = 150.0
"""Between the loads of two models: the paper's are "distinct"."""
MOST_GAIN, MEAN_GAIN = 2.15, 1.79
CLAIM = "section 6.3: up to 2.15x, 1.79x on average, while both keep the objective"

_MODELS = View(
    title="Published accounting by model, of the dearest; how many times as much Kubernetes costs",
    index=("load", "model", "system"),
    quantities=("cost_of_dearest", "gain", "attained", "instance_hours"),
)
_SYSTEMS = View(
    title="All models: the parts of HetSev, and what the GPUs rent for",
    index=("load", "system"),
    quantities=("most_gain", "mean_gain", "rented_usd", "rented_gain", "t4_hours", "v100_hours", "least_attained"),
)


def hetsev_fig7(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    duration_s = DURATION_S * (scope or Scope()).length
    rows: list[Row] = []
    for place, load in enumerate((CLIENTS, OPEN)):
        found: dict[str, SharedRun] = {}
        for turn, system in enumerate(SYSTEMS):
            context.progress(f"{load}: {system}", (place + turn / len(SYSTEMS)) / 2)
            found[system] = run(system, _loads(load, duration_s, context), context)
        rows.extend(_model_rows(load, found, duration_s))
        rows.extend(_system_rows(load, found))
    return Study(
        name="hetsev-fig7",
        title="HetSev, figure 7: cost of four models",
        rows=tuple(rows),
        assumptions=(
            *assumptions(),
            (
                f"Rates: each model's peak fills {PEAK_INSTANCES} instances on a T4 to 80 %, its valley is a "
                "quarter, and the loads are 150 s apart; the paper gives none. All four run at once."
            ),
            (
                "Published accounting: 0.191 (V100) and 0.024 (T4) for a GB and second of used memory where GPUs "
                "are shared, of all memory where they are not. Rent: p3.2xlarge and g4dn.xlarge on demand for "
                "each GPU with an instance on it, used or not."
            ),
        ),
        views=(_MODELS, _SYSTEMS),
    )


def _loads(load: str, duration_s: float, context: StudyContext) -> dict[str, SharedLoad]:
    loads = {}
    for place, model in enumerate(MODELS):
        peak_rps = 0.8 * PEAK_INSTANCES * shared_model(model).capacity_rps(T4)
        rates = production(duration_s, peak_rps / PEAK_OVER_VALLEY, peak_rps, context.trace)
        shift = round(place * SHIFT_S / DURATION_S * intervals(duration_s))
        loads[model] = SharedLoad(rates_rps=np.roll(rates, shift), closed=load == CLIENTS)
    return loads


def _model_rows(load: str, found: dict[str, SharedRun], duration_s: float) -> Iterator[Row]:
    for model in MODELS:
        costs = {system: outcome.models[model].cost for system, outcome in found.items()}
        for system in (HETSEV, KUBERNETES):
            where = (("load", load), ("model", model), ("system", system))
            one = found[system].models[model]
            hours = sum(one.instances) * duration_s / len(one.instances) / 3600
            late = (f"misses {SL_MIN:.0%}",) if one.attained < SL_MIN else ()
            yield Row(where, "cost_of_dearest", costs[system] / max(costs.values()))
            yield Row(where, "gain", costs[KUBERNETES] / costs[system], unit="x", claim=CLAIM)
            yield Row(where, "attained", one.attained, notes=late)
            yield Row(where, "instance_hours", hours, unit="h")


def _system_rows(load: str, found: dict[str, SharedRun]) -> Iterator[Row]:
    base = found[KUBERNETES]
    for system, outcome in found.items():
        where = (("load", load), ("system", system))
        gains = [base.models[model].cost / one.cost for model, one in outcome.models.items()]
        published = (MOST_GAIN, MEAN_GAIN) if system == HETSEV else (None, None)
        yield Row(where, "most_gain", max(gains), unit="x", published=published[0], claim=CLAIM)
        yield Row(where, "mean_gain", fmean(gains), unit="x", published=published[1], claim=CLAIM)
        yield Row(where, "rented_usd", outcome.rented_usd, unit="USD")
        yield Row(where, "rented_gain", base.rented_usd / outcome.rented_usd, unit="x")
        yield Row(where, "t4_hours", outcome.gpu_hours[T4], unit="h")
        yield Row(where, "v100_hours", outcome.gpu_hours[V100], unit="h")
        yield Row(where, "least_attained", min(one.attained for one in outcome.models.values()))
