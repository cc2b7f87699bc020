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

from mark.config.policies import check_binds_early, chosen_overrides
from mark.config.served import is_service
from mark.config.settings import FaultSettings, PolicySettings, Settings
from mark.domain.documents import json_text
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.offerings.offering import Market
from mark.offline.experiments import line_up_all
from mark.offline.sweep.grid import Combination, refusal_of
from mark.offline.sweep.job import SweepJob
from mark.offline.sweep.keys import code_digest, job_key, load_digest, portable
from mark.offline.sweep.served import Load, members_on, settings_by_model
from mark.offline.trace_source import TraceReading, read_place
from mark.policies.bundles import MANAGED
from mark.report.sweep.pareto import Value, format_value, short_names
from mark.report.terminal import Report
from mark.simulator.experiment import Experiment
from mark.simulator.traces.bursts import NONE

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
    loads: dict[str, Load] = field(default_factory=dict)
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
    forecasters: tuple[str, ...]
    uses_truth: bool
    fixed: bool
    #: Share that must be in time; of several models the strictest.
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """The traces of what is served, their digest, and what they are called in this sweep."""

    traces: Load
    digest: str
    name: str


def lay_out(points: Sequence[Combination], report: Report) -> SweepLayout:
    """The cells of the combinations. Misconfigured, with its combination, for the first that cannot run."""
    loads, code = _read_loads(points), code_digest()
    layout = SweepLayout(loads={load.digest: load.traces for load in loads.values()})
    able: dict[str, tuple[_Able, ...]] = {}
    found: dict[str, Cell] = {}
    for number, point in enumerate(points):
        report("checking the grid", number / len(points))
        load = loads[_places_of(point.settings)]
        alike = json_text({**portable(point.settings), "seed": 0}, sort_keys=True, allow_nan=True)
        try:
            if alike not in able:  # seeds change nothing that is checked
                able[alike] = tuple(_able(point.settings, load.traces, layout))
            for one in able[alike]:
                cell = _cell(point, one, load, code=code)
                found.setdefault(cell.job.key, cell)
        except MarkError as error:
            raise refusal_of(point, error) from error
        layout.seeds.add(point.settings.seed)
    layout.cells = list(found.values())
    return layout


_Places = tuple[tuple[str, TraceReading], ...]


def _places_of(settings: Settings) -> _Places:
    """Identity of a load: each model's place and how it is read. Bursts are drawn later, by each seed."""
    found = []
    for own in settings_by_model(settings):
        if own.trace.file is None:
            lacks = (
                f"{own.model} has no traffic: name service.serve[].trace, or" if is_service(settings) else "name"
            )
            raise Misconfigured(f"{lacks} a trace with --trace; `mark trace generate` writes one")
        found.append((own.trace.file, replace(TraceReading.of(own), bursts=NONE)))
    return tuple(found)


def _read_loads(points: Sequence[Combination]) -> dict[_Places, _Load]:
    """Every load once, and every trace; two traces of one name are told apart by their paths."""
    loads = list(dict.fromkeys(_places_of(point.settings) for point in points))
    places = dict.fromkeys(place for load in loads for place in load)
    traces = {place: read_place(*place) for place in places}
    files = {file for file, _ in places}
    found: dict[_Places, _Load] = {}
    for load in loads:
        names = []
        for file, reading in dict.fromkeys(load):
            alike = sum(Path(other).name == Path(file).name for other in files) > 1
            names.append(file if alike else traces[file, reading].name)
        together = f"{len(load)} models" + (f" on {names[0]}" if len(names) == 1 else "")
        read = tuple(traces[place] for place in load)
        found[load] = _Load(traces=read, digest=load_digest(read), name=names[0] if len(load) == 1 else together)
    return found


def _able(settings: Settings, load: Load, layout: SweepLayout) -> Iterator[_Able]:
    """The policies that can run."""
    check_binds_early(settings)
    models = [member.experiment for member in members_on(settings, load)]
    layout.experiment = layout.experiment or models[0]
    lineup = line_up_all(settings, models)
    layout.left_out += [text for text in lineup.left_out if text not in layout.left_out]
    changed = chosen_overrides(settings)
    for policy in lineup.policies:
        bundles = [model.bundle(policy, changed) for model in models]
        yield _Able(
            policy=policy,
            forecasters=tuple(dict.fromkeys(bundle.forecaster for bundle in bundles)),
            uses_truth=any(bundle.uses_truth for bundle in bundles),
            fixed=models[0].bundle(policy).uses_truth,
            target=max(model.spec.slo.target for model in models),
        )


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
            key=job_key(tree, trace=load.digest, code=code, forecasters=able.forecasters),
            trace=load.digest,
            code=code,
            settings=tree,
            policy=policy,
            label=" ".join([load.name, policy, *parts, f"seed={settings.seed}"]),
        ),
        yardsticks=SweepJob(
            key=job_key(load_tree, trace=load.digest, code=code),
            trace=load.digest,
            code=code,
            settings=load_tree,
            policy=None,
            label=f"yardsticks of {group} seed={settings.seed}",
        ),
        group=group,
        settings=own,
        seed=settings.seed,
        target=able.target,
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
    return _everywhere(settings, changed)


def _everywhere(settings: Settings, changed: dict[str, Any]) -> Settings:
    """The settings with these, which models of a service do not have otherwise."""
    serve = tuple(
        one.model_copy(
            update={key: value for key, value in changed.items() if getattr(one, key, None) is not None}
        )
        for one in settings.service.serve
    )
    service = settings.service.model_copy(update={"serve": serve})
    return settings.model_copy(update={**changed, "service": service})


def _of_load(settings: Settings) -> Settings:
    """Settings that reference and floor depend on; the policy is not among them."""
    limits = PolicySettings(overflow_limits=settings.policy.overflow_limits)
    changed = {"policies": ("mark",), "forecaster": None, "dispatch": None, "faults": FaultSettings()}
    return _everywhere(settings, {**changed, "policy": limits})


def _plain(value: Any) -> Value:
    """A value that a row can be known by: lists and objects as text."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return json_text(value, allow_nan=True) if isinstance(value, (list, Mapping)) else value
