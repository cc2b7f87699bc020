"""MArk's table 5: what four models cost for 8 h on MArk on demand, MArk on spot, and SageMaker.

The paper does not state the rate. It is solved per model from SageMaker's published cost alone: SageMaker is
replayed at a guess, and the guess is scaled by published / simulated cost until they agree. MArk is replayed
after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mark.dispatch.policy import Routing
from mark.domain.errors import Misconfigured
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import DEMO_DAYS, diurnal_floods
from mark.simulator.workload import Workload
from mark.studies.measures import Where, latency_rows
from mark.studies.published import (
    BATCHING,
    MODELS,
    ONDEMAND,
    SAGEMAKER,
    SYSTEMS,
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
VARIANTS: dict[str, tuple[tuple[str, Setup], ...]] = {
    name: (("perfect forecast", replace(setup, oracle=True)),) for name, setup in SETUPS.items()
}
"""MArk on demand under other assumptions: which one decides its cost. Two models are near their objective."""
VARIANTS["nasnet"] += (
    ("mean 650 ms: p2.xlarge too", replace(SETUPS["nasnet"], mean_latency_s=0.65)),
    ("the same, least-finish", replace(SETUPS["nasnet"], mean_latency_s=0.65, routing=Routing.LEAST_FINISH)),
)
VARIANTS["opennmt-ende"] += (
    ("least-finish dispatch", replace(SETUPS["opennmt-ende"], routing=Routing.LEAST_FINISH)),
    ("assumed batch curve", replace(SETUPS["opennmt-ende"], profile_sets=("assumed-batch-curve",))),
)


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
    variants: bool = True


def mark_table5(context: StudyContext, parameters: Table5Parameters | None = None) -> Study:
    """Run it."""
    asked = parameters or Table5Parameters()
    run = _Table5(context, asked)
    rows = tuple(row for place in range(len(asked.models)) for row in run.model_rows(place))
    return Study(
        name="mark-table5",
        title="MArk, table 5: cost of 8 h",
        rows=rows,
        assumptions=run.assumptions(),
        views=(
            View(
                title="Cost in USD and times cheaper than SageMaker, ours (published)",
                index=("model", "system"),
                quantities=("ec2_usd", "lambda_usd", "total_usd", "ratio"),
            ),
            View(
                title="Latency and share within the objective (the paper only draws them)",
                index=("model", "system"),
                quantities=("mean_ms", "p50_ms", "p98_ms", "p99_ms", "attained"),
            ),
            View(
                title="Rate solved from SageMaker's cost", index=("model",), quantities=("mean_rps", "gap_percent")
            ),
            View(
                title="Batching by our tuner (published)",
                index=("model", "instance_type"),
                quantities=("n_batch", "w_batch_ms"),
            ),
            View(
                title="MArk on demand under other assumptions",
                index=("model", "system", "variant"),
                quantities=("total_usd", "lambda_usd", "ratio", "attained"),
            ),
        ),
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


class _Table5:
    """One run of the study. The load has a shape; its scale is solved per model."""

    def __init__(self, context: StudyContext, asked: Table5Parameters) -> None:
        self._context, self._asked = context, asked
        self._assumed: dict[str, None] = {}
        if context.trace is not None:
            self._trace = context.trace
            if self._trace.duration_s < asked.duration_s:
                raise Misconfigured(
                    f"trace {self._trace.name} lasts {self._trace.duration_s / 3600:.3g} h; table 5 replays "
                    f"{asked.duration_s / 3600:g} h: give a longer one"
                )
            self._start_s = max(0.0, min(asked.start_s, self._trace.duration_s - asked.duration_s))
            self._shape = f"the given trace {self._trace.name}"
        else:
            self._trace = diurnal_floods(context.seed, asked.days)
            self._start_s = (asked.days - 1) * DAY_S
            self._shape = (
                "generated, diurnal with floods fitted to the Twitter stream of August 2021; none was given"
            )

    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the table; the profiles are known once the models ran."""
        asked = self._asked
        return (
            (
                f"Load: {self._shape}; {asked.duration_s / 3600:g} h from {self._start_s:.0f} s on, what is "
                "before is history. The paper's own Twitter trace is not published."
            ),
            (
                "Rate: unstated in the paper; solved per model from SageMaker's published cost alone, within "
                f"{asked.tolerance:.0%} where {asked.tries} tries allow it."
            ),
            *assumptions(tuple(SETUPS[name] for name in asked.models)),
            *(f"Assumed profile: {formula}" for formula in self._assumed),
        )

    def model_rows(self, place: int) -> Iterator[Row]:
        """All rows of the model at that place of the list."""
        name, models = self._asked.models[place], len(self._asked.models)
        setup = SETUPS[name]
        replayed: dict[float, RunResult] = {}

        def tell(label: str, share: float) -> None:
            self._context.progress(f"{name}: {label}", (place + share) / models)

        def sagemaker_usd(rate: float) -> float:
            tell("solving the rate from SageMaker's cost", 0.4 * len(replayed) / self._asked.tries)
            given = of_system(self._context, setup, SAGEMAKER, self._load(rate))
            replayed[rate] = run_system(given, setup, SAGEMAKER)
            return replayed[rate].cost.total

        solved = solve_rate(
            sagemaker_usd,
            TABLE5[name, SAGEMAKER].total_usd * self._asked.duration_s / PUBLISHED_S,
            first_rps=self._asked.first_rps,
            tolerance=self._asked.tolerance,
            tries=self._asked.tries,
        )
        workload = self._load(solved.mean_rps)
        yield from _rate_rows(name, solved, replayed[solved.mean_rps])
        for step, system in enumerate(SYSTEMS):
            tell(system, 0.4 + 0.15 * step)
            given = of_system(self._context, setup, system, workload)
            self._assumed |= dict.fromkeys(given.supply.assumed)
            result = replayed[solved.mean_rps] if system == SAGEMAKER else run_system(given, setup, system)
            yield from self._system_rows(given, result, system, solved.usd)
        yield from _batching_rows(name, of_system(self._context, setup, ONDEMAND, workload))
        if self._asked.variants:
            tell("under other assumptions", 0.85)
            yield from self._variant_rows(name, workload, solved.usd)

    def _load(self, mean_rps: float) -> Workload:
        asked = self._asked
        trace = self._trace.scaled(mean_rps, self._start_s, asked.duration_s)
        return Workload(trace=trace, seed=self._context.seed, start_s=self._start_s, duration_s=asked.duration_s)

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
        yield from latency_rows(where, result)

    def _variant_rows(self, name: str, workload: Workload, rival_usd: float) -> Iterator[Row]:
        for variant, setup in VARIANTS.get(name, ()):
            where: Where = (("model", name), ("system", ONDEMAND), ("variant", variant))
            given = of_system(self._context, setup, ONDEMAND, workload)
            self._assumed |= dict.fromkeys(given.supply.assumed)
            result = run_system(given, setup, ONDEMAND)
            yield Row(where, "total_usd", result.cost.total)
            yield Row(where, "lambda_usd", result.cost.lambda_)
            yield Row(where, "ratio", rival_usd / result.cost.total)
            yield Row(where, "attained", result.attained)


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
