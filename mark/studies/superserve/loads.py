"""Both rules beside five fixed models of the front: our trained supernets, days of traces, several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mark.catalog.load import load_variants, model
from mark.cloudmodel.world import TYPICAL
from mark.dispatch.variants.slackfit import VariantRule
from mark.domain.models.variants import VariantTable
from mark.simulator.fixed.fixed_workers import FixedWorkers, VariantRun
from mark.studies.study import Row, Study, StudyContext, View
from mark.studies.superserve.cases import FULL_PREFIX, NAMES, OURS, SLACKFIT, Scope, dominating
from mark.studies.superserve.fig10 import MEAN_RPS, PEAK_RPS, compressed_case

MODELS, WORKER = ("supernet", "supernet-text"), "c5.large"
SCOPE = Scope(duration_s=60.0, workers=2)
SEEDS, FIXED = 3, 5
RIVALS = {OURS: FULL_PREFIX, SLACKFIT: f"{VariantRule.FIXED}:"}
"""Fixed models beside each rule, which drop what it drops."""
PEAK_SHARE = 0.9
"""The load's busiest second over what the cheapest model carries in full batches: more than that nobody serves."""

_VIEW = View(
    title="Means over the seeds; `spread`: the greatest seed less the least",
    index=("model", "load", "policy"),
    quantities=("attained", "attained_spread", "accuracy", "accuracy_spread", "over_best_fixed", "dominated_by"),
    names=NAMES,
)


def superserve_loads(context: StudyContext, scope: Scope = SCOPE, seeds: int = SEEDS) -> Study:
    """Run it on the trace, or a generated load, and on the others."""
    rows: list[Row] = []
    assumed: dict[str, None] = {}
    for place, name in enumerate(MODELS):
        by_load: dict[str, list[Mapping[str, VariantRun]]] = {}
        for turn in range(seeds):
            context.progress(f"{name}, seed {turn + 1} of {seeds}", (place + turn / seeds) / len(MODELS))
            for load, said, runs in _serve(replace(context, seed=context.seed + turn), name, scope):
                by_load.setdefault(load, []).append(runs)
                assumed[f"{name}. {said}"] = None
        for load, of_seeds in by_load.items():
            rows += _rows((("model", name), ("load", load)), of_seeds)
    return Study(
        name="superserve-loads",
        title=f"SuperServe's rules and {FIXED} fixed models of two trained supernets",
        rows=tuple(rows),
        assumptions=(*assumed, *_assumptions(scope, seeds)),
        views=(_VIEW,),
    )


def front_models(table: VariantTable, instance_type: str, count: int = FIXED) -> tuple[str, ...]:
    """`count` models from the cheapest to the most accurate, evenly by rank, of those that none dominates.

    One dominates another if it is no slower in a full batch and no less accurate.
    """
    full_s = [row[-1] for row in table.rows(instance_type)]
    order = sorted(range(len(full_s)), key=lambda one: (full_s[one], -table.variants[one].accuracy))
    front: list[int] = []
    for one in order:
        if not front or table.variants[one].accuracy > table.variants[front[-1]].accuracy:
            front.append(one)
    places = np.unique(np.linspace(0, len(front) - 1, count).round().astype(int))
    return tuple(table.names[front[place]] for place in places)


def _serve(context: StudyContext, name: str, scope: Scope) -> Iterator[tuple[str, str, Mapping[str, VariantRun]]]:
    """Each load by name, what is to be said of it, and the runs of both rules and of each fixed model."""
    table = load_variants(name)
    assert table is not None, f"{name} has variants"
    workers = FixedWorkers(
        table,
        WORKER,
        workers=scope.workers,
        slo=model(name).slo,
        kernel=context.variant_kernel(),
        noise_cv=TYPICAL.service_cv,
        seed=context.seed,
    )
    fixed = front_models(table, WORKER)
    names = (*RIVALS, *(f"{prefix}{one}" for prefix in RIVALS.values() for one in fixed))
    most_rps = scope.workers * table.max_batch / table.rows(WORKER)[table.number(fixed[0])][-1]
    for trace in (context.trace, *context.others):
        given = replace(context, trace=trace)
        case, said = compressed_case(given, scope, PEAK_SHARE * most_rps * MEAN_RPS / PEAK_RPS)
        runs = {one: workers.run(one, case.arrived_s) for one in names}
        yield trace.name if trace else "generated", said, runs


def _rows(where: tuple[tuple[str, str | int], ...], runs: Sequence[Mapping[str, VariantRun]]) -> Iterator[Row]:
    """Means and spreads of every policy, and each rule beside the fixed models of the same seed."""
    for name in runs[0]:
        case = (*where, ("policy", name))
        attained = [one[name].attained for one in runs]
        accuracy = [100 * (one[name].accuracy or 0.0) for one in runs]
        for quantity, values in (("attained", attained), ("accuracy", accuracy)):
            yield Row(case, quantity, float(np.mean(values)))
            yield Row(case, f"{quantity}_spread", max(values) - min(values))
        if name in RIVALS:
            fixed = [one for one in runs[0] if one.startswith(RIVALS[name])]
            over = [_right(one[name]) - max(_right(one[rival]) for rival in fixed) for one in runs]
            yield Row(case, "over_best_fixed", 100 * float(np.mean(over)))
            yield Row(case, "dominated_by", float(np.mean([len(dominating(one, name, fixed)) for one in runs])))


def _right(run: VariantRun) -> float:
    """The share of all requests that are answered in time and right."""
    return run.attained * (run.accuracy or 0.0)


def _assumptions(scope: Scope, seeds: int) -> tuple[str, ...]:
    return (
        (
            f"{scope.workers} workers of {WORKER}, the objective that is shipped with the model, one queue by "
            f"deadline; batches vary by {TYPICAL.service_cv:.0%} (the typical world's). The profiles are "
            f"stand-ins, measured on a busy machine. {seeds} seeds, each with arrivals and noise of its own."
        ),
        (
            f"The load's busiest second is {PEAK_SHARE:.0%} of what the cheapest model carries in full batches, "
            "and its mean as far below as in figure 10. No rule was chosen by these runs."
        ),
        (
            f"`{FULL_PREFIX}V`, beside `{OURS}`, is one model alone. Both drop whoever has not the time for a "
            f"full batch, `{OURS}` of the fastest. `fixed:V`, beside `{SLACKFIT}`, drops only whoever cannot be "
            f"in time, as that does. The {FIXED} stand evenly by rank on the front of time and accuracy, from its "
            "cheapest model to its most accurate."
        ),
        (
            "`over_best_fixed`: points of requests that are answered right and in time, over the best of the "
            f"{FIXED}. `dominated_by`: how many of them are no worse in time and accuracy, and better in one."
        ),
    )
