"""Python's own way in: what `import mark` offers, each on the same road as the command of that name.

Errors that the user can do something about are MarkError, of which Misconfigured says in one line what to change.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, SupportsFloat, TypeVar, cast, overload

from mark.catalog.load import read_text
from mark.catalog.schema import parse_profiles
from mark.catalog.shipped_models import MODEL_FILE, PROFILE_FILE
from mark.config.served import settings_of_one
from mark.config.service import ServedSettings
from mark.config.settings import Settings
from mark.config.short_names import settings_named
from mark.domain.errors import MarkError, Misconfigured, unknown
from mark.extras import require_extra
from mark.live.local.running import Running
from mark.offline.advise import AdviceDocument, AdviceOptions, advice_on
from mark.offline.bound import BoundDocument, bound_of
from mark.offline.experiments import make_experiment
from mark.offline.forecast.forecasters import check_predictor
from mark.offline.forecast.show import ShownForecast, forecast_at
from mark.offline.own_model.init_from_target import InitOptions, measured_model
from mark.offline.plan import forecast_of_rate, forecast_of_trace, plan_document, plan_for
from mark.offline.simulate import Replays
from mark.offline.simulate_service import ServiceReplays
from mark.offline.trace_source import TraceReading, read_place
from mark.offline.workloads import workload_on
from mark.policies.present import Present
from mark.report.page import render_notebook
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_documents import SimulateDocument, simulate_document
from mark.report.runs.run_verdict import verdict_of
from mark.report.service.service_document import ServiceSimulateDocument, service_document
from mark.report.service.service_page import render_service_notebook
from mark.report.service.service_verdict import service_replay_verdict
from mark.report.terminal import note
from mark.report.terminal import progress as shown_progress
from mark.simulator.service_run import ServiceRun
from mark.simulator.traces.frames import Frame, trace_of_frame
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload

__all__ = [
    "MarkError",
    "Misconfigured",
    "Model",
    "Runs",
    "Service",
    "ServiceRuns",
    "Trace",
    "advise",
    "bound",
    "forecast",
    "plan",
    "read_trace",
    "simulate",
]

Report = Callable[[str, float], None]
"""Told what is being done and the share of it that is done, in [0, 1]."""
Load = str | Path | Frame | Trace
"""A trace, or what `read_trace` takes."""

_QUOTED_OR_FLAG = re.compile(r"`[^`]*`|(?<![\w-])--([a-z]+(?:-[a-z]+)*)")
_RENAMED = {"at": "at_s", "policy": "policies", "predictor": "forecaster", "rate": "load"}
"""Keywords of flags that have another name."""
_OF_THE_COMMAND = {"out", "policy", "trace"}
"""Settings of `mark simulate` that Python gives in another way."""

P = ParamSpec("P")
T = TypeVar("T")
Run = TypeVar("Run", ComparedRun, ServiceRun)


def _names_keywords(call: Callable[P, T]) -> Callable[P, T]:
    """The call, whose errors name keywords where the command's name flags; commands in them stay."""

    def keyword(found: re.Match[str]) -> str:
        flag = found[1]
        return found[0] if flag is None else _RENAMED.get(flag, flag.replace("-", "_"))

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except Misconfigured as error:
            error.args = (_QUOTED_OR_FLAG.sub(keyword, str(error)),)
            raise

    return told


@dataclass(frozen=True, slots=True)
class Model:
    """A model that brings its profiles along: `model=` takes it where it takes a name.

    name: the model's. profile: file of its profiles. models: file of its objective and needs; None for those of a
    shipped model of that name.

    >>> Model.from_profile("profile.json")
    Traceback (most recent call last):
    mark.domain.errors.Misconfigured: profile.json: cannot be read: No such file or directory
    """

    name: str
    profile: Path
    models: Path | None = None

    @classmethod
    @_names_keywords
    def from_profile(cls, path: str | Path, *, name: str | None = None, models: str | Path | None = None) -> Model:
        """The model of a profile file, such as `mark profile --out` writes.

        name: of one, where the file has several. models: file of its objective and needs, such as `mark init`
        writes; left out, model.json beside the profile, where there is one. Raises Misconfigured, one line.
        """
        profile = Path(path)
        names = dict.fromkeys(one.model for one in parse_profiles(read_text(profile), str(profile)))
        if name is not None and name not in names:
            raise unknown(f"model in {profile}", name, names)
        if name is None and len(names) != 1:
            raise Misconfigured(f"{profile} has {', '.join(names)}: give name, one of them")
        beside = profile.with_name(MODEL_FILE)
        needs = beside if models is None and beside.is_file() else models
        return cls(name or next(iter(names)), profile, None if needs is None else Path(needs))

    @classmethod
    @_names_keywords
    def measure(
        cls,
        target: str,
        *,
        out: str | Path | None = None,
        slo_ms: float | None = None,
        slo_target: float | None = None,
        memory_gib: float | None = None,
        seconds: float = 5.0,
        force: bool = False,
    ) -> Model:
        """Load, call and measure a model in this process, as `mark init TARGET` does; it needs its packages here.

        target: `path/file.py:Name` and what else the command takes. out: folder for model.json, profile.json and
        mark.yaml; left out, the target's. slo_ms: the objective, milliseconds; left out, ten times a call's time.
        slo_target: share that must keep it. memory_gib: left out, as measured. seconds: to measure at most. force:
        overwrite existing files. Raises Misconfigured, one line.
        """
        if not seconds > 0:
            raise Misconfigured(f"seconds must be above 0, not {seconds:g}")
        options = InitOptions(
            target=target,
            out=None if out is None else Path(out),
            model=None,
            latency_ms=slo_ms,
            share=slo_target,
            memory_gib=memory_gib,
            rps=None,
            settings=Settings(),
            seconds=seconds,
            ask=False,
            force=force,
        )
        with ThreadPoolExecutor(
            1
        ) as aside:  # a notebook has an event loop in this thread, measuring needs its own
            folder, found = aside.submit(measured_model, options).result()
        return cls(found.needs.name, folder / PROFILE_FILE, folder / MODEL_FILE)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure in the colours of the reader's theme."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Finished(Sequence[Run]):
    """Finished runs, one a policy, in their order. A notebook shows the verdict and the table."""

    runs: tuple[Run, ...]
    #: What runs now, which the verdict compares with.
    now: Present
    #: Policies that were left out, and why.
    left_out: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Run | Self:
        """A run, or some of them."""
        return replace(self, runs=self.runs[index]) if isinstance(index, slice) else self.runs[index]

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.runs)

    def __repr__(self) -> str:
        """The verdict: what a terminal shows."""
        return f"<{type(self).__name__}, {len(self)}: {self.verdict}>"

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What to run, in a sentence or two."""

    def _frame(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        # pandas takes half a second to import, and only this needs it
        from pandas import json_normalize  # noqa: PLC0415

        return json_normalize([dict(row) for row in rows]).set_index("policy")


class Runs(_Finished[ComparedRun]):
    """Replays of one trace, one run a policy, in their order. A notebook shows the verdict and the table.

    left_out: policies that could not run, and why.

    >>> runs = simulate("load.csv.gz", model="inception-v3", policies=["hedged"], duration_s=60, reference=False)
    >>> runs.to_frame().shape[0], round(runs.document["runs"][0]["cost_usd"]["total"], 2) > 0
    (1, True)
    """

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """What to run, what it costs a month in USD and what it saves, in a sentence or two."""
        return verdict_of(self.runs, self.now).sentence

    @property
    def document(self) -> SimulateDocument:
        """The document that `mark simulate --json` prints (docs/json.md)."""
        return simulate_document(self.runs, self.now)

    def to_frame(self) -> Any:
        """A pandas.DataFrame of the document's runs, shape (runs, keys), its index the policies.

        Keys of keys have a dot between them, such as `cost_usd.total`, USD, and `latency_ms.p99`.
        """
        return self._frame(self.document["runs"])

    def plot(self, what: Literal["cost", "load"] = "cost") -> Drawing:
        """A figure that a notebook shows.

        what: "cost", what each policy cost, by component, USD, with reference and floor; "load", for each policy
        arrivals, its forecast and the capacity that was ready, requests/s over time.
        """
        return Drawing(render_notebook(self.runs, self.now, drawn=what))

    def _repr_html_(self) -> str:
        return render_notebook(self.runs, self.now)


class ServiceRuns(_Finished[ServiceRun]):
    """Replays of several models together, one run a policy. A notebook shows the verdict and the table.

    left_out: policies that could not run, and why.

    >>> load = {"inception-v3": "load.csv.gz", "resnet-50": "load.csv.gz"}
    >>> runs = simulate(models=load, policies=["hedged"], duration_s=60)
    >>> [model["model"] for model in runs.document["runs"][0]["models"]]
    ['inception-v3', 'resnet-50']
    """

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """What to run for all models, what it costs a month in USD and what it saves, in a sentence or two."""
        return service_replay_verdict(self.runs, self.now).sentence

    @property
    def document(self) -> ServiceSimulateDocument:
        """The document that `mark simulate --json` prints of a service (docs/json.md)."""
        return service_document(self.runs, self.now)

    def to_frame(self) -> Any:
        """A pandas.DataFrame of the models under each policy, shape (runs x models, keys), indexed by policy."""
        rows = [{"policy": run["policy"], **model} for run in self.document["runs"] for model in run["models"]]
        return self._frame(rows)

    def plot(self) -> Drawing:
        """What each policy cost, by model, USD: a figure that a notebook shows."""
        return Drawing(render_service_notebook(self.runs, self.now, drawn=True))

    def _repr_html_(self) -> str:
        return render_service_notebook(self.runs, self.now)


@_names_keywords
def read_trace(
    source: str | Path | Frame,
    *,
    where: str | Sequence[str] = (),
    rows: str | None = None,
    time: str | None = None,
    value: str | None = None,
    tz: str | None = None,
    dates: str | None = None,
) -> Trace:
    """The load of a file, a folder, a pattern or an s3:// prefix of any format (docs/traces.md), or of pandas.

    A Series holds numbers by time; a DataFrame has a column of times, or times as its index. Each is read as the
    CSV that it writes: rows stand in any order, times without a zone are UTC's, and the header is line 1.
    where, rows, time, value, tz, dates: as the flags of `mark trace describe`.

    Returns the trace; its `rates_rps` has shape (bins,), requests/s in bins of `bin_s` seconds.

    Raises Misconfigured, one line: for a time that stands twice or names no zone where others do, a rate that is
    below 0 or no number, and whatever else is wrong.

    >>> trace = read_trace("load.csv.gz")
    >>> trace.rates_rps.shape, trace.bin_s
    ((900,), 1.0)
    """
    filters = [where] if isinstance(where, str) else [*where]
    reading = {"where": filters, "rows": rows, "time": time, "value": value, "tz": tz, "dates": dates}
    return _read(source, settings_named(reading))


@overload
def simulate(
    trace: Load,
    *,
    model: str | Model | None = None,
    policies: Sequence[str] | None = None,
    reference: bool = True,
    config: str | Path | None = None,
    progress: Report | None = None,
    **settings: Any,
) -> Runs: ...
@overload
def simulate(
    *,
    models: Mapping[str, Load],
    policies: Sequence[str] | None = None,
    config: str | Path | None = None,
    progress: Report | None = None,
    **settings: Any,
) -> ServiceRuns: ...
@_names_keywords
def simulate(
    trace: Load | None = None,
    *,
    models: Mapping[str, Load] | None = None,
    model: str | Model | None = None,
    policies: Sequence[str] | None = None,
    reference: bool = True,
    config: str | Path | None = None,
    progress: Report | None = None,
    **settings: Any,
) -> Runs | ServiceRuns:
    """Replay a trace under each policy, as `mark simulate` does: the same settings and seed give the same figures.

    models: of several models together, the trace of each by its name; what the file serves of them holds.
    model: its name, or a `Model` with its profiles. policies: names of `mark policies`, or all; left out, hedged
    and what a verdict compares it with. reference: compute reference and floor, too. config: a file, which
    the others override. progress: told what is being done and the share that is done; left out, a terminal shows a
    bar, and other output a line every 20 s. Ctrl-C keeps the policies that had finished; `left_out` says so.
    settings: by the names of flags, such as `start_s=300` (seconds), `slo_ms=200` (milliseconds), `market="spot"`,
    or by their dotted names in docs/settings.md.

    Raises Misconfigured, one line, for a setting, trace, model or policy that does not do, another MarkError where
    a run fails.

    >>> runs = simulate("load.csv.gz", model="inception-v3", policies=["hedged"], start_s=300, reference=False)
    >>> [run.result.policy for run in runs], runs[0].result.requests
    (['hedged'], 11882)
    """
    if isinstance(trace, str | Path):
        settings = {"trace.file": str(trace), **settings}  # what it is called, for remarks on a learned policy
    given = {"policies": policies, **settings}
    if models is not None and trace is None:
        if model is not None:
            raise Misconfigured("mark.simulate takes model= of one trace, or models= with a trace of each")
        return _simulate_service(models, _named("simulate", config, given), policies is None, progress)
    if trace is None or models is not None:
        raise Misconfigured("mark.simulate takes a trace, or models= with a trace of each")
    chosen = _chosen("simulate", config, {"model": model, **given})
    replays = Replays.of(chosen, workload=_load(trace, chosen), compare=policies is None)
    left_out: list[str] = []
    with _told(progress) as report:
        finishing = replays.run(report, tell=left_out.append, reference=reference)
        runs, stopped = _kept(finishing, len(replays.lineup.policies))
    return Runs(tuple(runs), replays.now, (*left_out, *stopped))


def _simulate_service(
    models: Mapping[str, Load], settings: Settings, compare: bool, progress: Report | None
) -> ServiceRuns:
    if not isinstance(models, Mapping) or not models or not all(isinstance(name, str) for name in models):
        raise Misconfigured(f"models= takes names of models with a trace of each, not {models!r:.60}")
    served = {one.model: one for one in settings.service.serve}
    serve = tuple(served.get(name) or ServedSettings(model=name) for name in models)
    service = settings.service.model_copy(update={"serve": serve})
    replays = ServiceReplays.of(
        settings.model_copy(update={"service": service, "model": None}),
        load_of=lambda own, entry: _load(models[entry.model], own),
        compare=compare,
    )
    with _told(progress) as report:
        runs, stopped = _kept(replays.run(report), len(replays.lineup.policies))
    return ServiceRuns(tuple(runs), replays.now, (*replays.lineup.left_out, *stopped))


def _kept(finishing: Iterator[list[Run]], policies: int) -> tuple[list[Run], list[str]]:
    """The runs; after Ctrl-C those that had finished, and a line about it. KeyboardInterrupt where none had."""
    runs: list[Run] = []
    try:
        for runs in finishing:  # noqa: B007 - they are kept as they come
            pass
    except KeyboardInterrupt:
        if not runs:
            raise
        note(text := f"interrupted: {len(runs)} of {policies} policies finished")
        return runs, [text]
    return runs, []


@_names_keywords
def forecast(
    trace: Load,
    *,
    forecaster: str | None = None,
    at_s: float | None = None,
    config: str | Path | None = None,
    progress: Report | None = None,
    **settings: Any,
) -> ShownForecast:
    """Forecast the hour from a moment of a trace, as `mark forecast show` does.

    forecaster: a name, `module:attribute` or `file.py:Name`. at_s: the moment, seconds on the trace's clock; left
    out, its end. config, progress, settings: as of `simulate`.

    Returns the document of `mark forecast show --json`: for each of 60 minutes `mean_rps` and `max_rps`, shape
    (quantiles,), requests/s, and what came. Raises Misconfigured, one line.

    >>> shown = forecast("load.csv.gz", forecaster="last-value")
    >>> len(shown["minutes"]), shown["quantiles"]
    (60, [0.5])
    """
    chosen = _chosen("forecast", config, {"forecaster": forecaster, **settings})
    name = check_predictor([], chosen)
    with _told(progress) as report:
        return forecast_at(_load(trace, chosen), name, at_s, report).document


@_names_keywords
def plan(
    load: float | Load,
    *,
    model: str | Model | None = None,
    running: Mapping[str, int] | None = None,
    config: str | Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Plan a fleet once, as `mark plan` does: what Algorithm 1 would rent now, and why not the others.

    load: a constant rate, requests/s, or the rates to come as a trace, its first minute the next one. running:
    instances that run, such as `{"c5.large": 3}`. config, settings: as of `simulate`.

    Returns the document of `mark plan --json`: `counts` of offerings, `usd_per_hour`, `scores`, `excuses`, and
    what a service costs around its fleet. Raises Misconfigured, one line.

    >>> found = plan(120, model="inception-v3")
    >>> found["capacity_rps"] >= found["required_rps"] >= 120
    True
    """
    chosen = _chosen("plan", config, {"model": model, **settings})
    if isinstance(load, SupportsFloat) and not hasattr(load, "to_csv"):  # numpy's numbers, too
        rates = forecast_of_rate(float(load))
    else:
        trace = _trace(cast("Load", load), chosen)
        rates = forecast_of_trace(trace, trace.name)
    names = [f"{name}={count}" for name, count in (running or {}).items()]
    return plan_document(plan_for(chosen, rates, names))


@_names_keywords
def bound(
    trace: Load,
    *,
    model: str | Model | None = None,
    config: str | Path | None = None,
    progress: Report | None = None,
    **settings: Any,
) -> BoundDocument:
    """Compute the least cost that perfect knowledge of a trace could reach, as `mark bound` does.

    config, progress, settings: as of `simulate`.

    Returns the document of `mark bound --json`: `reference_usd` serves every request in time, `floor_usd` the
    share that the objective asks for; None where no fleet can. Raises Misconfigured, one line.

    >>> found = bound("load.csv.gz", model="inception-v3", duration_s=300)
    >>> found["floor_usd"] <= found["reference_usd"]
    True
    """
    chosen = _chosen("bound", config, {"model": model, **settings})
    experiment = make_experiment(chosen, workload=_load(trace, chosen))
    with _told(progress) as report:
        return bound_of(experiment, report)


@_names_keywords
def advise(
    trace: Load,
    *,
    model: str | Model | None = None,
    days: float = 30.0,
    savings_plan: float | None = None,
    config: str | Path | None = None,
    progress: Report | None = None,
    **settings: Any,
) -> AdviceDocument:
    """Say what each change of the settings would have saved on a trace, as `mark advise` does.

    trace: a day at least. days: of its end are replayed. savings_plan: share by which one is cheaper than on
    demand; left out, an assumption. config, progress, settings: as of `simulate`.

    Returns the document of `mark advise --json`: `advice`, most saved first, each with `setting`,
    `saved_usd_per_month`, and the `command` of its replay, which names a trace of no file by its name. Raises
    Misconfigured, one line.

    >>> advise("load.csv.gz", model="inception-v3")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mark.domain.errors.Misconfigured: advice needs a day of load at least, and load has 0.25 h...
    """
    chosen = _chosen("advise", config, {"model": model, **settings})
    workload = _load(trace, chosen)
    place = trace if isinstance(trace, str | Path) else workload.trace.name
    words = {"trace": place, **_of_model({"model": model, **settings}), "config": config}
    given = tuple(
        word
        for name, values in words.items()
        for value in (values if isinstance(values, list | tuple) else [values])
        if value is not None
        for word in (("--set", f"{name}={value}") if "." in name else (f"--{name.replace('_', '-')}", f"{value}"))
    )
    options = AdviceOptions(days=days, savings_plan=savings_plan, given=given, file=str(config or "mark.yaml"))
    with _told(progress) as report:
        return advice_on(chosen, options, workload, report)


class Service:
    """A service on this machine with an emulated AWS, as `mark up` starts it: for tests of what asks it.

    config: a settings file, or the same document as a dict, whose paths count from the working directory; left
    out, the models that `mark up` serves. settings: override it, by names as of `simulate`. `service.port: 0` and
    `service.status_port: 0` take free ports; services of one name exclude each other. The extra local has what it
    needs.

    Raises Misconfigured, one line.

    >>> service = Service({"service": {"name": "shop-tests", "prot": 0}})
    Traceback (most recent call last):
    mark.domain.errors.Misconfigured: settings: unknown key in service 'prot'; did you mean 'port'?
    """

    @_names_keywords
    def __init__(self, config: str | Path | Mapping[str, Any] | None = None, **settings: Any) -> None:
        require_extra("local", "mark.Service")
        if not isinstance(config, str | Path | Mapping | None):
            raise Misconfigured(f"config= takes the path of a settings file or what it holds, not {config!r:.60}")
        self._settings = settings_named(settings, Path(config) if isinstance(config, str | Path) else config)

    @contextmanager
    def up(self) -> Iterator[Running]:
        """The service while a `with` block runs; afterwards it is down, after an exception, too.

        Ask it at `gateway`, a URL; `models` has `name` and `example`, a request's body, of each. `token` is None
        where none is needed, `status_page` a URL for people. Raises Misconfigured where it cannot start.

        >>> with Service("mark.yaml").up() as service:  # doctest: +SKIP
        ...     requests.post(f"{service.gateway}/v2/models/digits/infer", json=service.models[0]["example"])
        """
        # a service takes long to import, and only this needs it
        from mark.live.commands.up import service_up  # noqa: PLC0415

        with service_up(self._settings, yes=True) as running:
            yield running


def _chosen(caller: str, config: str | Path | None, given: dict[str, Any]) -> Settings:
    return settings_of_one(_named(caller, config, given))


def _named(caller: str, config: str | Path | None, given: dict[str, Any]) -> Settings:
    require_extra("replay", f"mark.{caller}")
    if odd := sorted(_OF_THE_COMMAND & given.keys()):
        raise Misconfigured(f"mark.{caller} takes no {odd[0]}: that is the command's")
    if not isinstance(config, str | Path | None):
        raise Misconfigured(f"config= takes the path of a settings file, not {config!r:.60}")
    return settings_named(_of_model(given), None if config is None else Path(config))


def _of_model(given: dict[str, Any]) -> dict[str, Any]:
    """Settings in which a model that brings its files along is its name and these."""
    match given.get("model"):
        case Model(name, profile, models):
            more = given.get("profiles") or ()
            if not isinstance(more, list | tuple):
                raise Misconfigured(f"profiles should be a list, not {more!r:.60}")
            profiles = [str(profile), *map(str, more)]
            return {"models": models, **given, "model": name, "profiles": profiles}
        case str() | None:
            return given
        case other:
            raise Misconfigured(f"model= takes a name or a mark.Model, not {other!r:.60}")


def _told(progress: Report | None) -> AbstractContextManager[Report]:
    return shown_progress() if progress is None else nullcontext(progress)


def _load(source: Load, settings: Settings) -> Workload:
    return workload_on(settings, _trace(source, settings))


def _trace(source: Load, settings: Settings) -> Trace:
    return source if isinstance(source, Trace) else _read(source, settings)


def _read(source: str | Path | Frame, settings: Settings) -> Trace:
    reading = TraceReading.of(settings)
    if isinstance(source, str | Path):
        return read_place(str(source), reading)
    if not hasattr(source, "to_csv"):
        raise Misconfigured(
            f"a trace is a path, a DataFrame, a Series or what read_trace gave, not {source!r:.60}"
        )
    return trace_of_frame(source, reading.options)
