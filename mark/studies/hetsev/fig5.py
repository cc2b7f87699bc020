"""HetSev's figure 5: a production load from closed loops of clients, on shared GPUs and on GPUs of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mark.planner.hetsev.scaling import ScalerPolicy
from mark.simulator.fixed.shared_gpus import SharedLoad, SharedRun
from mark.studies.hetsev.cases import (
    AS_FIGURE_1,
    AS_MEASURED,
    BATCH,
    HETSEV,
    KUBERNETES,
    Floats,
    Scope,
    assumptions,
    production,
    run,
)
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

DURATION_S = 6000.0
SPIKE = 3500 / 6000
"""Where the spike begins, as part of the length."""
SHARES = {"resnet-50": 0.6, "inception-v3": 0.4}
VALLEY_QPS, PEAK_QPS = 200.0, 1000.0
WINDOW_S = 120.0
"""Gains are of windows as long as those of the paper's rates."""
REQUESTS, ITEMS = "requests", "items"
CASES = ((REQUESTS, AS_FIGURE_1), (ITEMS, AS_FIGURE_1), (REQUESTS, AS_MEASURED))
PUBLISHED = {"throughput_gain": 2.21, "utilisation_gain": 2.56, "response_gain": 2.3}
"""Section 6.1: "up to"."""
CLAIM = "section 6.1: at most, after the spike"
BEFORE_CLAIM = "section 6.1: the curves are close before 3,500 s"

_GAINS = View(
    title="HetSev over Kubernetes: the most in any 120 s after the spike, and the mean before it",
    index=("QPS counts", "serving"),
    quantities=(*PUBLISHED, "throughput_before", "utilisation_before"),
)
_SYSTEMS = View(
    title="Each system",
    index=("QPS counts", "serving", "system"),
    quantities=("peak_items_rps", "mean_ms", "attained", "most_instances", "cost", "rented_usd"),
)


def hetsev_fig5(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope()
    duration_s = DURATION_S * asked.length
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, (counts, serving) in enumerate(CASES):
        where = (("QPS counts", counts), ("serving", serving))
        qps = production(duration_s, VALLEY_QPS, PEAK_QPS, context.trace)
        loads = {
            model: SharedLoad(rates_rps=qps * share * (BATCH[model] if counts == REQUESTS else 1), closed=True)
            for model, share in SHARES.items()
        }
        found: dict[str, SharedRun] = {}
        for turn, system in enumerate((HETSEV, KUBERNETES)):
            context.progress(f"{counts}, {serving}: {system}", (place + turn / 2) / len(CASES))
            found[system] = run(system, loads, context, serving=serving)
            rows.extend(_system_rows((*where, ("system", system)), found[system], duration_s))
        rows.extend(_gain_rows(where, found, duration_s))
        plots.append(_plot(f"{counts}-{serving.replace(' ', '-').lower()}", found, duration_s))
    return Study(
        name="hetsev-fig5",
        title="HetSev, figure 5: production load",
        rows=tuple(rows),
        assumptions=(
            *assumptions(),
            (
                "The paper does not say whether QPS counts batches or items; only as many batches fill 16 GPUs. "
                "It draws the load: ours is low until 3,500 s, then at the peak; --trace gives it another shape."
            ),
        ),
        views=(_GAINS, _SYSTEMS),
        series=tuple(plots),
    )


def _windows(found: SharedRun, duration_s: float) -> tuple[Floats, Floats, Floats]:
    """Items/s answered, GPU time that computed and mean response in s, each by window."""
    edges = np.arange(0.0, duration_s + 1e-9, max(ScalerPolicy().interval_s, min(WINDOW_S, duration_s / 20)))
    items, requests, total_s = np.zeros((3, len(edges) - 1))
    for model, outcome in found.models.items():
        answered = np.isfinite(outcome.response_s)
        done_s = outcome.arrived_s[answered] + outcome.response_s[answered]
        items += np.histogram(done_s, edges)[0] * BATCH[model] / np.diff(edges)
        requests += np.histogram(done_s, edges)[0]
        total_s += np.histogram(done_s, edges, weights=outcome.response_s[answered])[0]
    at = (np.arange(len(found.busy)) + 0.5) * duration_s / len(found.busy)
    busy = np.histogram(at, edges, weights=found.busy)[0] / np.maximum(1, np.histogram(at, edges)[0])
    return items, busy, total_s / np.maximum(1, requests)


def _gain_rows(
    where: tuple[tuple[str, str], ...], found: dict[str, SharedRun], duration_s: float
) -> Iterator[Row]:
    ours, theirs = (_windows(found[system], duration_s) for system in (HETSEV, KUBERNETES))
    spike = (np.arange(len(ours[0])) + 1) / len(ours[0]) > SPIKE
    after = spike & (ours[0] > 0) & (theirs[0] > 0)
    for i, quantity in enumerate(PUBLISHED):
        more, less = (theirs[i], ours[i]) if quantity == "response_gain" else (ours[i], theirs[i])
        ratio = more[after] / less[after]
        yield Row(where, quantity, float(ratio.max()), unit="x", published=PUBLISHED[quantity], claim=CLAIM)
    for i, quantity in enumerate(("throughput_before", "utilisation_before")):
        before = float(ours[i][~spike].mean() / theirs[i][~spike].mean())
        yield Row(where, quantity, before, unit="x", claim=BEFORE_CLAIM)


def _system_rows(where: tuple[tuple[str, str], ...], found: SharedRun, duration_s: float) -> Iterator[Row]:
    response_s = np.concatenate([outcome.response_s for outcome in found.models.values()])
    in_time = sum(outcome.attained * outcome.response_s.size for outcome in found.models.values())
    instances = np.sum([outcome.instances for outcome in found.models.values()], axis=0)
    yield Row(where, "peak_items_rps", float(_windows(found, duration_s)[0].max()), unit="rps")
    yield Row(where, "mean_ms", 1000 * float(response_s[np.isfinite(response_s)].mean()))
    yield Row(where, "attained", in_time / response_s.size)
    yield Row(where, "most_instances", float(instances.max()), unit="count")
    yield Row(where, "cost", sum(outcome.cost for outcome in found.models.values()), unit="normalised")
    yield Row(where, "rented_usd", found.rented_usd, unit="USD")


def _plot(name: str, found: dict[str, SharedRun], duration_s: float) -> Plot:
    curves = []
    for system, outcome in found.items():
        items = _windows(outcome, duration_s)[0]
        x = tuple((i + 0.5) * duration_s / len(items) for i in range(len(items)))
        curves.append(Curve(label=system, x=x, y=tuple(items.tolist())))
    return Plot(
        name=f"hetsev-fig5-{name}",
        title="Throughput under the production load",
        x_label="s",
        y_label="items/s",
        curves=tuple(curves),
        marks=((SPIKE * duration_s, "spike"),),
    )
