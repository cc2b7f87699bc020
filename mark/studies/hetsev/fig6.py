"""HetSev's figure 6: whether the autoscaler follows a fluctuating load with at most 18 instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mark.planner.hetsev.scaling import ScalerPolicy
from mark.simulator.fixed.shared_gpus import ModelRun, SharedLoad, SharedRun
from mark.studies.hetsev.cases import (
    CLIENTS,
    HETSEV,
    KUBERNETES,
    OPEN,
    T4,
    Floats,
    Scope,
    assumptions,
    intervals,
    run,
    shared_model,
)
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

DURATION_S = 2500.0
SECOND_WAVE_S = 1200.0
MODELS = ("resnet-50", "inception-v3", "ssd-resnet50")
MOST_INSTANCES = 18
FIRST, SECOND = 3, 5
"""Instances on a T4 that a model's waves fill to 80 %: the paper gives no rates, and 18 are 6 a model."""
BASE = 0.6
"""The load between the waves, in instances on a T4."""
VIOLATED_PERCENT, MEAN_5S_PERCENT = 1.12, 4.0
CLAIM = "section 6.2: 1.12 % of all requests"
CLAIM_5S = "section 6.2: under 4 % on average, by 5 s"
QUICK = {"scaler": ScalerPolicy(over_s=15.0), "launch_s": 15.0}
VARIANTS: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
    (CLIENTS, HETSEV, HETSEV, {}),
    (CLIENTS, "HetSev, sized to W", HETSEV, {"scaler": ScalerPolicy(literal=True)}),
    (CLIENTS, "HetSev, lambda 0", HETSEV, {"scaler": ScalerPolicy(launch_weight=0.0)}),
    (CLIENTS, "HetSev, lambda 1/10", HETSEV, {"scaler": ScalerPolicy(launch_weight=0.1)}),
    (CLIENTS, KUBERNETES, KUBERNETES, {}),
    (OPEN, HETSEV, HETSEV, {}),
    (OPEN, "HetSev, 15 s", HETSEV, QUICK),
    (OPEN, KUBERNETES, KUBERNETES, {}),
    (OPEN, "Kubernetes, 15 s", KUBERNETES, QUICK),
)
"""Load, name, system and changed rules. "15 s" launches after 15 s over 80 %, ready 15 s later."""

_MODELS = View(
    title="HetSev by model",
    index=("load", "model"),
    quantities=("violated_percent", "violated_5s_percent", "most_instances"),
)
_SYSTEMS = View(
    title="All models",
    index=("load", "system"),
    quantities=("violated_percent", "violated_5s_percent", "most_instances", "cost", "rented_usd"),
)


def hetsev_fig6(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope()
    duration_s = DURATION_S * asked.length
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, (load, name, system, changes) in enumerate(VARIANTS):
        context.progress(f"{load}: {name}", place / len(VARIANTS))
        loads = {model: SharedLoad(rates_rps=waves(model, duration_s), closed=load == CLIENTS) for model in MODELS}
        found = run(system, loads, context, most_instances=MOST_INSTANCES, **changes)
        where = (("load", load), ("system", name))
        rows.extend(_rows(where, list(found.models.values()), duration_s, found))
        if name == HETSEV:
            for model, outcome in found.models.items():
                rows.extend(_rows((("load", load), ("model", model)), [outcome], duration_s))
            plots.append(_plot(load, found, duration_s))
    return Study(
        name="hetsev-fig6",
        title="HetSev, figure 6: fluctuating load",
        rows=tuple(rows),
        assumptions=(
            *assumptions(),
            (
                f"Rates: waves that fill {FIRST} and {SECOND} instances on a T4 to 80 %, the second from 1,200 s "
                f"on, above {BASE:g} of one. The paper gives none."
            ),
            "Launch latencies are equal on both types, so lambda scales all costs alike and changes nothing.",
        ),
        views=(_MODELS, _SYSTEMS),
        series=tuple(plots),
    )


def waves(model: str, duration_s: float) -> Floats:
    """Items/s by interval."""
    count = intervals(duration_s)
    at_s = (np.arange(count) + 0.5) * DURATION_S / count
    first = np.where(at_s < 1000, np.sin(np.pi * at_s / 1000) ** 2, 0.0)
    second = np.sin(np.pi * np.clip((at_s - SECOND_WAVE_S) / (DURATION_S - SECOND_WAVE_S), 0, 1)) ** 2
    one_rps = shared_model(model).capacity_rps(T4)
    return one_rps * (BASE + (0.8 * FIRST - BASE) * first + (0.8 * SECOND - BASE) * second)


def _rows(
    where: tuple[tuple[str, str], ...], runs: list[ModelRun], duration_s: float, found: SharedRun | None = None
) -> Iterator[Row]:
    arrived_s = np.concatenate([outcome.arrived_s for outcome in runs])
    share = sum((1 - outcome.attained) * outcome.arrived_s.size for outcome in runs) / max(1, arrived_s.size)
    by_5s = [_violated_5s(outcome, duration_s) for outcome in runs]
    mean_5s = float(np.mean(np.concatenate(by_5s)))
    instances = np.sum([outcome.instances for outcome in runs], axis=0)
    yield Row(where, "violated_percent", 100 * share, unit="%", published=VIOLATED_PERCENT, claim=CLAIM)
    yield Row(where, "violated_5s_percent", 100 * mean_5s, unit="%", published=MEAN_5S_PERCENT, claim=CLAIM_5S)
    yield Row(where, "most_instances", float(instances.max()), unit="count")
    if found is not None:
        yield Row(where, "cost", sum(outcome.cost for outcome in runs), unit="normalised")
        yield Row(where, "rented_usd", found.rented_usd, unit="USD")


def _violated_5s(outcome: ModelRun, duration_s: float) -> Floats:
    """Share of late requests in each 5 s in which any arrived."""
    edges = np.arange(0.0, duration_s + 5.0, 5.0)
    late = outcome.response_s > outcome.slo_s
    arrived = np.histogram(outcome.arrived_s, edges)[0]
    missed = np.histogram(outcome.arrived_s[late], edges)[0]
    shares: Floats = missed[arrived > 0] / arrived[arrived > 0]
    return shares


def _plot(load: str, found: SharedRun, duration_s: float) -> Plot:
    return Plot(
        name=f"hetsev-fig6-{load}",
        title="Instances of each model",
        x_label="s",
        y_label="instances",
        curves=tuple(
            Curve(
                label=model,
                x=tuple(i * duration_s / len(outcome.instances) for i in range(len(outcome.instances))),
                y=tuple(map(float, outcome.instances)),
            )
            for model, outcome in found.models.items()
        ),
    )
