"""From a grid to the cells of a sweep, each a replay under a key of its own; everything is checked here.

What makes no difference is not run twice: rivals take nothing from the section `policy`, and most of them buy on
demand, so they have one row however many settings of it, and markets, are swept; and reference and floor belong to
a load, not to a policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mark.config.policies import check_binds_early, chosen_model, chosen_overrides, chosen_slo
from mark.config.settings import FaultSettings, PolicySettings, Settings
from mark.domain.documents import json_text
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.offering import Market
from mark.offline.experiments import line_up, make_experiment
from mark.offline.sweep.grid import Combination, refusal_of
from mark.offline.sweep.job import SweepJob
from mark.offline.sweep.keys import code_digest, job_key, portable, trace_digest
from mark.offline.trace_source import TraceReading, read_place
from mark.offline.workloads import workload_on
from mark.policies.bundles import MANAGED
from mark.report.sweep.pareto import Value, format_value, short_names
from mark.report.terminal import Report
from mark.simulator.experiment import Experiment
from mark.simulator.traces.bursts import NONE
from mark.simulator.traces.trace import Trace

BASELINES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(MANAGED, ("policy.managed.",)),
    "reactive": (),
    "autoscaler": (),
    "predictive": (),
    "managed-instances": (),
    "autoscaler-spill": ("policy.overflow_limits.",),
    "static-peak": (),
    "serverless": ("policy.overflow_limits.",),
    "lambda-only": ("policy.overflow_limits.",),
}
"""Policies that take nothing from the section `policy` but these keys."""
EITHER_MARKET = ("autoscaler", "autoscaler-spill", "predictive")
"""Those of them that buy in the market that is asked; the others buy on demand in any."""
INPUT_PREFIXES = ("trace.", "faults.", "simulate.", "policy.managed.", "objective.latency_ms")
INPUT_KEYS = ("model", "models", "prices", "service_prices", "profiles")
"""What is asked of a fleet or happens to it, not how it is met: each value has a front of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One replay: its job, the job of its load's yardsticks, and where its figures belong."""

    job: SweepJob
    yardsticks: SweepJob
    group: str
    settings: tuple[tuple[str, Value], ...]
    seed: int
    target: float
    uses_truth: bool


@dataclass(slots=True)
class SweepLayout:
    """All cells of a grid, the loads that they replay by digest, and what a user should know."""

    cells: list[Cell] = field(default_factory=list)
    traces: dict[str, Trace] = field(default_factory=dict)
    seeds: set[int] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    experiment: Experiment | None = None

    @property
    def jobs(self) -> tuple[SweepJob, ...]:
        """Each job once, the yardsticks of a load before its first replay."""
        return tuple({job.key: job for cell in self.cells for job in (cell.yardsticks, cell.job)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Able:
    """A policy that can run, and what forecasts; `fixed`: no setting of the forecaster changes that."""

    policy: str
    forecaster: str
    uses_truth: bool
    fixed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """A trace, its digest, and what it is called in this sweep."""

    trace: Trace
    digest: str
    name: str


def lay_out(points: Sequence[Combination], report: Report) -> SweepLayout:
    """The cells of the combinations. Misconfigured, with its combination, for the first that cannot run."""
    loads, code = _read_loads(points), code_digest()
    layout = SweepLayout(traces={load.digest: load.trace for load in loads.values()})
    able: dict[str, tuple[_Able, ...]] = {}
    found: dict[str, Cell] = {}
    for number, point in enumerate(points):
        report("checking the grid", number / len(points))
        load = loads[_place_of(point.settings)]
        alike = json_text({**portable(point.settings), "seed": 0}, sort_keys=True, allow_nan=True)
        try:
            if alike not in able:  # seeds change nothing that is checked
                able[alike] = tuple(_able(point.settings, load.trace, layout))
            for one in able[alike]:
                cell = _cell(point, one, load, code=code)
                found.setdefault(cell.job.key, cell)
        except MarkError as error:
            raise refusal_of(point, error) from error
        layout.seeds.add(point.settings.seed)
    layout.cells = list(found.values())
    return layout


_Place = tuple[str, TraceReading]


def _place_of(settings: Settings) -> _Place:
    """Identity of a load: its place and how it is read. Bursts are drawn later, by each seed."""
    if settings.trace.file is None:
        raise Misconfigured("name a trace with --trace; `mark trace generate` writes one")
    return settings.trace.file, replace(TraceReading.of(settings), bursts=NONE)


def _read_loads(points: Sequence[Combination]) -> dict[_Place, _Load]:
    """Every load once; two traces of one name are told apart by their paths."""
    places = list(dict.fromkeys(_place_of(point.settings) for point in points))
    files = {file for file, _ in places}
    loads: dict[_Place, _Load] = {}
    for place in places:
        file, reading = place
        trace = read_place(file, reading)
        alike = sum(Path(other).name == Path(file).name for other in files) > 1
        loads[place] = _Load(trace=trace, digest=trace_digest(trace), name=file if alike else trace.name)
    return loads


def _able(settings: Settings, trace: Trace, layout: SweepLayout) -> Iterator[_Able]:
    """The policies that can run."""
    check_binds_early(settings)
    experiment = make_experiment(settings, workload=workload_on(settings, trace))
    layout.experiment = layout.experiment or experiment
    lineup = line_up(settings, experiment)
    layout.left_out += [text for text in lineup.left_out if text not in layout.left_out]
    changed = chosen_overrides(settings)
    for policy in lineup.policies:
        bundle, fixed = experiment.bundle(policy, changed), experiment.bundle(policy).uses_truth
        yield _Able(policy=policy, forecaster=bundle.forecaster, uses_truth=bundle.uses_truth, fixed=fixed)


def _cell(point: Combination, able: _Able, load: _Load, *, code: str) -> Cell:
    settings, policy = _effective(point, able), able.policy
    shown = {key: _plain(value) for key, value in point.swept.items() if key not in ("seed", "trace.file")}
    inputs = {key: value for key, value in shown.items() if key.startswith(INPUT_PREFIXES) or key in INPUT_KEYS}
    names = short_names(list(inputs))
    group = ", ".join([load.name, *(f"{names[key]} {format_value(value)}" for key, value in inputs.items())])
    own = tuple((key, value) for key, value in shown.items() if key not in inputs and _counts(key, able))
    parts = (f"{key}={format_value(value)}" for key, value in (*inputs.items(), *own))
    tree, load_tree = portable(settings), portable(_of_load(settings))
    return Cell(
        job=SweepJob(
            key=job_key(tree, trace=load.digest, code=code, forecaster=able.forecaster),
            trace=load.digest,
            code=code,
            settings=tree,
            policy=policy,
            label=" ".join([load.name, policy, *parts, f"seed={settings.seed}"]),
        ),
        yardsticks=SweepJob(
            key=job_key(load_tree, trace=load.digest, code=code, forecaster=None),
            trace=load.digest,
            code=code,
            settings=load_tree,
            policy=None,
            label=f"yardsticks of {group} seed={settings.seed}",
        ),
        group=group,
        settings=own,
        seed=settings.seed,
        target=chosen_slo(settings, chosen_model(settings)).target,
        uses_truth=able.uses_truth,
    )


def _counts(key: str, able: _Able) -> bool:
    """True where a setting makes a difference to a policy."""
    policy = able.policy
    if key == "forecaster":
        return not able.fixed
    if key == "market":
        return policy not in BASELINES or policy in EITHER_MARKET
    return policy not in BASELINES or not key.startswith("policy.") or key.startswith(BASELINES[policy])


def _effective(point: Combination, able: _Able) -> Settings:
    """The settings with what makes no difference to the policy at its usual value."""
    settings, policy = point.settings, able.policy
    changed: dict[str, Any] = {"policies": (policy,)}
    if able.fixed:
        changed["forecaster"] = None
    if policy in BASELINES and policy not in EITHER_MARKET and "market" in point.swept:
        changed["market"] = Market.ON_DEMAND
    if policy in BASELINES:
        defaults, kept = PolicySettings(), settings.policy
        keeps = {key.split(".")[1] for key in BASELINES[policy]}
        changed["policy"] = defaults.model_copy(update={name: getattr(kept, name) for name in keeps})
    return settings.model_copy(update=changed)


def _of_load(settings: Settings) -> Settings:
    """Settings that reference and floor depend on; the policy is not among them."""
    limits = PolicySettings(overflow_limits=settings.policy.overflow_limits)
    changed = {"policies": ("mark",), "forecaster": None, "dispatch": None, "faults": FaultSettings()}
    return settings.model_copy(update={**changed, "policy": limits})


def _plain(value: Any) -> Value:
    """A value that a row can be known by: lists and objects as text."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return json_text(value, allow_nan=True) if isinstance(value, (list, Mapping)) else value
