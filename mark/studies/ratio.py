"""Why MArk saves less here than in the paper: table 5 on demand, with one thing changed at a time.

Each case belongs to a part: the load, the prices, the rival's setting, or MArk's own mechanism where ours is
another one. A case that changes the load or the rival has its rate solved anew, because the rate follows from
SageMaker's published cost.

The paper's central request queue is stood in for by `least-finish`: each request goes to the instance that
finishes it first. Where instances are alike and serve one at a time, requests are served as by one queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mark.dispatch.policy import Routing
from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.studies.published import ONDEMAND, TEXT_RATIO
from mark.studies.setups import GPU_TYPE, SETUPS, Setup, assumptions, of_system, run_notes, run_system
from mark.studies.study import Row, Study, StudyContext, View
from mark.studies.table5 import ShapedLoad, Table5Parameters, load_said, solve_sagemaker

SMOOTHED_S = 3600.0
"""Window that leaves the daily cycle, and no flood."""
PREMIUM_2026 = 1.2
"""SageMaker's hosting price over EC2's on CPU types in the list of 2026."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A case. mark, rival: what it makes of a model's setup; load: of the load."""

    part: str
    name: str
    mark: Callable[[Setup], Setup] = lambda setup: setup
    rival: Callable[[Setup], Setup] = lambda setup: setup
    load: Callable[[ShapedLoad], ShapedLoad] = lambda load: load
    #: True where the rate has to be solved anew.
    is_solved: bool = False


def _central(setup: Setup) -> Setup:
    return replace(setup, routing=Routing.LEAST_FINISH)


def _whole_objective(setup: Setup) -> Setup:
    return replace(setup, mean_latency_s=setup.slo.latency_s)


def _smooth(load: ShapedLoad) -> ShapedLoad:
    return load.smoothed(SMOOTHED_S)


BASE = Change(part="", name="as in table 5")
CHANGES = (
    Change(part="load", name="without floods: mean of an hour", load=_smooth, is_solved=True),
    Change(part="load", name="perfect forecast", mark=lambda setup: replace(setup, oracle=True)),
    Change(
        part="prices",
        name="SageMaker's premium of 2026",
        rival=lambda setup: replace(setup, premium=PREMIUM_2026),
        is_solved=True,
    ),
    Change(
        part="rival",
        name=f"SageMaker on {GPU_TYPE}",
        rival=lambda setup: replace(setup, types=(GPU_TYPE,)),
        is_solved=True,
    ),
    Change(
        part="rival",
        name="SageMaker on c5.xlarge",
        rival=lambda setup: replace(setup, types=("c5.xlarge",)),
        is_solved=True,
    ),
    Change(part="mechanism", name="central queue (least-finish)", mark=_central),
    Change(
        part="mechanism",
        name="batches of 16 (assumed curve)",
        mark=lambda setup: replace(setup, profile_sets=(*setup.profile_sets, "assumed-batch-curve")),
    ),
    Change(part="mechanism", name="mean latency up to the objective", mark=_whole_objective),
    Change(part="mechanism", name="cool-down 1 min", mark=lambda setup: replace(setup, cooldown_min=1.0)),
    Change(
        part="together",
        name="without floods, central queue, whole objective, cool-down 1 min",
        mark=lambda setup: replace(_whole_objective(_central(setup)), cooldown_min=1.0),
        load=_smooth,
        is_solved=True,
    ),
)

_VIEW = View(
    title="SageMaker / MArk on demand, ours (published), and over the ratio as in table 5",
    index=("model", "part", "case"),
    quantities=("ratio", "over_base", "total_usd", "lambda_usd", "attained", "mean_rps"),
)


def mark_ratio(context: StudyContext, parameters: Table5Parameters | None = None) -> Study:
    """Run it."""
    asked = parameters or Table5Parameters()
    load = ShapedLoad.of(context, asked)
    rows: list[Row] = []
    for place, name in enumerate(asked.models):
        base: float | None = None
        for step, (change, ratio, given, result, rate) in enumerate(_cases(context, asked, name, load)):
            context.progress(f"{name}: {change.name}", (place + step / (1 + len(CHANGES))) / len(asked.models))
            base = ratio if base is None else base
            rows.extend(_rows(name, change, ratio / base, ratio, given, result, rate))
    return Study(
        name="mark-ratio",
        title="MArk, section 5.2: what the ratio of SageMaker's cost to MArk's hangs on",
        rows=tuple(rows),
        assumptions=(
            *load_said(load, asked),
            *assumptions(tuple(SETUPS[name] for name in asked.models)),
            "Prices on demand of the types used are those of 2019, so the price year changes no ratio on demand.",
            f"Without floods: every second has the mean of the {SMOOTHED_S:g} s around it.",
            (
                "Central queue: each request to the instance that finishes it first. The paper's Batch Manager "
                "waits W_batch for a batch in one queue; ours waits as long in each instance's queue."
            ),
        ),
        views=(_VIEW,),
    )


def _cases(
    context: StudyContext, asked: Table5Parameters, name: str, load: ShapedLoad
) -> Iterator[tuple[Change, float, Experiment, RunResult, float]]:
    """Each case that the model can be served in: the ratio, MArk's run, and the rate."""
    solved, _, _ = solve_sagemaker(context, SETUPS[name], load, asked)
    near = replace(asked, first_rps=solved.mean_rps)
    for change in (BASE, *CHANGES):
        shaped, rival = change.load(load), change.rival(SETUPS[name])
        try:
            here = solve_sagemaker(context, rival, shaped, near)[0] if change.is_solved else solved
            setup = change.mark(SETUPS[name])
            given = of_system(context, setup, ONDEMAND, shaped.at(here.mean_rps))
            result = run_system(given, setup, ONDEMAND)
        except (Misconfigured, PlanInfeasible):
            continue  # the model has no profile there, or no fleet that meets its objective
        yield change, here.usd / result.cost.total, given, result, here.mean_rps


def _rows(
    name: str, change: Change, over_base: float, ratio: float, given: Experiment, result: RunResult, rate: float
) -> Iterator[Row]:
    where = (("model", name), ("part", change.part), ("case", change.name))
    yield Row(where, "ratio", ratio, published=TEXT_RATIO[name, ONDEMAND])
    yield Row(where, "over_base", over_base)
    yield Row(where, "total_usd", result.cost.total, notes=run_notes(given, result))
    yield Row(where, "lambda_usd", result.cost.lambda_)
    yield Row(where, "attained", result.attained)
    yield Row(where, "mean_rps", rate)
