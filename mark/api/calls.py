"""`mark.simulate`, `mark.plan` and the other calls, each on the road of the command of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, SupportsFloat, cast, overload

from mark.api.keyword_errors import names_keywords
from mark.api.model import Model
from mark.api.runs import Run, Runs, ServiceRuns
from mark.config.served import settings_of_one
from mark.config.service import ServedSettings
from mark.config.settings import Settings
from mark.config.short_names import settings_named
from mark.domain.errors import Misconfigured
from mark.extras import require_extra
from mark.offline.advice.advise import AdviceDocument, AdviceOptions, advice_on
from mark.offline.bound import BoundDocument, bound_of
from mark.offline.experiments import make_experiment
from mark.offline.forecast.forecasters import check_predictor
from mark.offline.forecast.show import ShownForecast, forecast_at
from mark.offline.plan import forecast_of_rate, forecast_of_trace, plan_document, plan_for
from mark.offline.simulate import Replays
from mark.offline.simulate_service import ServiceReplays
from mark.offline.trace_source import TraceReading, read_place
from mark.offline.workloads import workload_on
from mark.report.terminal import note
from mark.report.terminal import progress as shown_progress
from mark.simulator.traces.frames import Frame, trace_of_frame
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload

Report = Callable[[str, float], None]
"""Told what is being done and the share of it that is done, in [0, 1]."""
Load = str | Path | Frame | Trace
"""A trace, or what `read_trace` takes."""
_OF_THE_COMMAND = {"out", "policy", "trace"}
"""Settings of `mark simulate` that Python gives in another way."""


@names_keywords
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
@names_keywords
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


@names_keywords
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


@names_keywords
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


@names_keywords
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


@names_keywords
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
