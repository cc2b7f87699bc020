"""MArk's table 5, and figures 7 and 8 on the same runs: cost and latency of 8 h on MArk and on SageMaker.

The paper does not state the rate. It is solved per model from SageMaker's published cost alone: SageMaker is
replayed at a guess, and the guess is scaled by published / simulated cost until they agree. MArk is replayed
after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.errors import Misconfigured
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import DEMO_DAYS, diurnal_floods
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from mark.studies.measures import Where, ccdf_plot, cut_rows, latency_rows
from mark.studies.plot import Plot
from mark.studies.published import (
    BATCHING,
    LATENCY_CUT_PERCENT,
    MODELS,
    ONDEMAND,
    SAGEMAKER,
    SLO_CLAIM,
    SPOT,
    TABLE5,
    TEXT_RATIO,
    table_ratio,
)
from mark.studies.setups import GPU_TYPE, SETUPS, Setup, assumptions, of_system, run_notes, run_system
from mark.studies.study import Row, Study, StudyContext, View

DAY_S = 86400.0
PUBLISHED_S = 8 * 3600.0
"""Table 5's runs took more than 8 h each (section 5.2)."""
SERVING_FAMILIES = ("c5", "p2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table5Parameters:
    """The window of the given trace (the last one where it is shorter), and how the rate is solved.

    `days` is the length of the generated load that stands in where no trace is given; its last day is replayed.
    """

    models: tuple[str, ...] = MODELS
    start_s: float = 5 * DAY_S
    duration_s: float = PUBLISHED_S
    days: int = DEMO_DAYS
    tolerance: float = 0.01
    tries: int = 8
    first_rps: float = 20.0


def mark_table5(context: StudyContext, parameters: Table5Parameters | None = None) -> Study:
    """Run it."""
    asked = parameters or Table5Parameters()
    run = _Table5(context, asked)
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, name in enumerate(asked.models):
        solved, results = run.replayed(place)
        rows.extend(run.rows(name, solved, results))
        shown = {system: result for system, (_, result) in results.items()}
        plots.append(ccdf_plot(f"mark-fig7-{name}", f"{name}, the load of table 5", shown))
    return Study(
        name="mark-table5",
        title="MArk, table 5: cost of 8 h",
        rows=tuple(rows),
        assumptions=run.assumptions(),
        views=(
            View(
                title="Cost in USD and times cheaper than SageMaker, ours (published)",
                index=("model", "system"),
                quantities=("ec2_usd", "lambda_usd", "total_usd", "ratio"),
            ),
            View(
                title="Latency, its cut against SageMaker, share within the objective (figures 7 and 8)",
                index=("model", "system"),
                quantities=(
                    *("mean_ms", "p50_ms", "p98_ms", "p99_ms", "attained"),
                    *("mean_cut_percent", "p50_cut_percent", "p99_cut_percent"),
                ),
            ),
            View(
                title="Rate solved from SageMaker's cost", index=("model",), quantities=("mean_rps", "gap_percent")
            ),
            View(
                title="Batching by our tuner (published)",
                index=("model", "instance_type"),
                quantities=("n_batch", "w_batch_ms"),
            ),
        ),
        series=tuple(plots),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedRate:
    """The rate at which simulated SageMaker costs `usd`, as near to the published as the tries allowed."""

    mean_rps: float
    usd: float


def solve_rate(
    cost_at: Callable[[float], float], published_usd: float, *, first_rps: float, tolerance: float, tries: int
) -> SolvedRate:
    """Scale the rate by published / simulated cost until they agree within `tolerance`; the nearest of all tries.

    SageMaker's fleet follows the load, so its cost is nearly proportional to the rate, but for whole instances.
    """
    rate = first_rps
    best = SolvedRate(mean_rps=rate, usd=cost_at(rate))
    last = best
    for _ in range(tries - 1):
        if abs(best.usd / published_usd - 1) <= tolerance:
            break
        rate = last.mean_rps * published_usd / last.usd
        last = SolvedRate(mean_rps=rate, usd=cost_at(rate))
        if abs(last.usd - published_usd) < abs(best.usd - published_usd):
            best = last
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedLoad:
    """A load that has a shape, and whose scale is to be solved. `said` tells where it comes from."""

    trace: Trace
    start_s: float
    duration_s: float
    seed: int
    said: str

    @classmethod
    def of(cls, context: StudyContext, asked: Table5Parameters) -> ShapedLoad:
        """The given trace, else generated days. Misconfigured where it is too short."""
        trace = context.trace
        if trace is None:
            trace, start_s = diurnal_floods(context.seed, asked.days), (asked.days - 1) * DAY_S
            said = "generated, diurnal with floods fitted to the Twitter stream of August 2021; none was given"
        else:
            if trace.duration_s < asked.duration_s:
                raise Misconfigured(
                    f"trace {trace.name} lasts {trace.duration_s / 3600:.3g} h; table 5 replays "
                    f"{asked.duration_s / 3600:g} h: give a longer one"
                )
            start_s = max(0.0, min(asked.start_s, trace.duration_s - asked.duration_s))
            said = f"the given trace {trace.name}"
        return cls(trace=trace, start_s=start_s, duration_s=asked.duration_s, seed=context.seed, said=said)

    def at(self, mean_rps: float) -> Workload:
        """The load with this mean over the replay."""
        trace = self.trace.scaled(mean_rps, self.start_s, self.duration_s)
        return Workload(trace=trace, seed=self.seed, start_s=self.start_s, duration_s=self.duration_s)

    def smoothed(self, window_s: float) -> ShapedLoad:
        """The same without what is over in less than that: each bin has the mean of the bins around it."""
        bins = max(1, round(window_s / self.trace.bin_s))
        padded = np.pad(self.trace.rates_rps, (bins // 2, bins - 1 - bins // 2), mode="edge")
        summed = np.concatenate([[0.0], np.cumsum(padded)])
        rates = np.maximum(0.0, (summed[bins:] - summed[:-bins]) / bins)
        name = f"{self.trace.name}-smoothed"
        smooth = replace(self.trace, name=name, rates_rps=rates, whole_counts=False, arrivals_s=None)
        return replace(self, trace=smooth)


def solve_sagemaker(
    context: StudyContext,
    setup: Setup,
    load: ShapedLoad,
    asked: Table5Parameters,
    tell: Callable[[int], None] = lambda _: None,
) -> tuple[SolvedRate, Experiment, RunResult]:
    """The rate at which SageMaker costs what it did in the paper, and its run at that rate."""
    replayed: dict[float, tuple[Experiment, RunResult]] = {}

    def usd(rate: float) -> float:
        tell(len(replayed))
        given = of_system(context, setup, SAGEMAKER, load.at(rate))
        replayed[rate] = given, run_system(given, setup, SAGEMAKER)
        return replayed[rate][1].cost.total

    solved = solve_rate(
        usd,
        TABLE5[setup.model, SAGEMAKER].total_usd * asked.duration_s / PUBLISHED_S,
        first_rps=asked.first_rps,
        tolerance=asked.tolerance,
        tries=asked.tries,
    )
    return solved, *replayed[solved.mean_rps]


class _Table5:
    """One run of the study."""

    def __init__(self, context: StudyContext, asked: Table5Parameters) -> None:
        self._context, self._asked = context, asked
        self._assumed: dict[str, None] = {}
        self._load = ShapedLoad.of(context, asked)

    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the table; the profiles are known once the models ran."""
        setups = tuple(SETUPS[name] for name in self._asked.models)
        return (
            *load_said(self._load, self._asked),
            *assumptions(setups),
            *(f"Assumed profile: {formula}" for formula in self._assumed),
        )

    def replayed(self, place: int) -> tuple[SolvedRate, dict[str, tuple[Experiment, RunResult]]]:
        """The solved rate of the model at that place of the list, and the three systems at it."""
        name, models = self._asked.models[place], len(self._asked.models)
        setup = SETUPS[name]

        def tell(label: str, share: float) -> None:
            self._context.progress(f"{name}: {label}", (place + share) / models)

        solved, given, result = solve_sagemaker(
            self._context,
            setup,
            self._load,
            self._asked,
            lambda tries: tell("solving the rate from SageMaker's cost", 0.5 * tries / self._asked.tries),
        )
        runs = {}
        for step, system in enumerate((ONDEMAND, SPOT)):
            tell(system, 0.5 + 0.25 * step)
            asked = of_system(self._context, setup, system, self._load.at(solved.mean_rps))
            runs[system] = asked, run_system(asked, setup, system)
        runs[SAGEMAKER] = given, result
        self._assumed |= dict.fromkeys(formula for one, _ in runs.values() for formula in one.supply.assumed)
        return solved, runs

    def rows(self, name: str, solved: SolvedRate, runs: dict[str, tuple[Experiment, RunResult]]) -> Iterator[Row]:
        """All rows of a model."""
        rival = runs[SAGEMAKER][1]
        yield from _rate_rows(name, solved, rival)
        for system, (given, result) in runs.items():
            yield from self._system_rows(given, result, system, solved.usd)
            where: Where = (("model", name), ("system", system))
            if system != SAGEMAKER:
                yield from cut_rows(where, result, rival, _cut_claim(system))
        yield from _batching_rows(name, runs[ONDEMAND][0])

    def _system_rows(self, given: Experiment, result: RunResult, system: str, rival_usd: float) -> Iterator[Row]:
        name = result.model
        where: Where = (("model", name), ("system", system))
        # A shorter window has the published cost per hour, but no published cost of its own.
        whole = self._asked.duration_s == PUBLISHED_S
        published = TABLE5[name, system] if whole else None
        cost = result.cost
        yield Row(
            where, "ec2_usd", cost.instances + cost.standby, published=published.ec2_usd if published else None
        )
        if system != SAGEMAKER:
            yield Row(where, "lambda_usd", cost.lambda_, published=published.lambda_usd if published else None)
        yield Row(
            where,
            "total_usd",
            cost.total,
            published=published.total_usd if published else None,
            notes=run_notes(given, result),
        )
        text = TEXT_RATIO.get((name, system))
        yield Row(
            where,
            "ratio",
            rival_usd / cost.total,
            published=round(table_ratio(name, system), 2),
            claim=f"section 5.2: {text:g} times cheaper than SageMaker" if text else None,
            notes=_text_notes(name, system),
        )
        yield from latency_rows(where, result, SLO_CLAIM[system])


def load_said(load: ShapedLoad, asked: Table5Parameters) -> tuple[str, ...]:
    """Assumptions of the load and its rate."""
    return (
        (
            f"Load: {load.said}; {asked.duration_s / 3600:g} h from {load.start_s:.0f} s on, what is before is "
            "history. The paper's own Twitter trace is not published."
        ),
        (
            "Rate: unstated in the paper; solved per model from SageMaker's published cost alone, within "
            f"{asked.tolerance:.0%} where {asked.tries} tries allow it."
        ),
    )


def _cut_claim(system: str) -> str:
    return f"section 5.2, figure 7: latency reduced by up to {LATENCY_CUT_PERCENT[system]:g} % against SageMaker"


def _text_notes(name: str, system: str) -> tuple[str, ...]:
    text = TEXT_RATIO.get((name, system))
    table = table_ratio(name, system)
    # The paper cuts its ratios where it does not round them: a difference below 0.01 is none.
    if text is None or abs(text - table) < 0.01:
        return ()
    return (f"the paper's text says {text:.2f}, its table gives {table:.2f}",)


def _rate_rows(name: str, solved: SolvedRate, result: RunResult) -> Iterator[Row]:
    where: Where = (("model", name),)
    seconds = result.duration_s
    yield Row(where, "mean_rps", solved.mean_rps)
    yield Row(where, "drawn_rps", result.requests / seconds)
    target = TABLE5[name, SAGEMAKER].total_usd * seconds / PUBLISHED_S
    yield Row(where, "gap_percent", 100 * (solved.usd / target - 1))


def _batching_rows(name: str, given: Experiment) -> Iterator[Row]:
    """Our tuner's N_batch and W_batch beside table 4's. A type that is left out says why."""
    published = BATCHING[name]
    left_out = {excuse.offering.partition(":")[0]: excuse.reason for excuse in given.supply.excuses}
    tuned = {offering.instance_type.name: offering.batch for offering in given.supply.offerings}
    for kind in sorted(tuned | {k: None for k in left_out if k.startswith(SERVING_FAMILIES)}):
        batch = tuned.get(kind)
        gpu = kind == GPU_TYPE
        size = published.gpu_batch if gpu else published.cpu_batch
        where: Where = (("model", name), ("instance_type", kind))
        notes = [f"left out: {left_out[kind]}"] if kind in left_out else []
        if gpu and size != (batch.max_batch if batch else None):
            notes.append(f"published N {size}, but only a batch of 8 has a published latency")
        yield Row(
            where,
            "n_batch",
            float(batch.max_batch) if batch else None,
            published=float(size) if size is not None else None,
            notes=tuple(notes),
        )
        yield Row(
            where,
            "w_batch_ms",
            batch.max_wait_s * 1000 if batch else None,
            published=published.gpu_wait_ms if gpu else None,
        )
