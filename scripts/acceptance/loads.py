"""The loads that figures are measured on, and experiments on them; MARK_DATA names the folder of the traces.

Days of the Twitter trace are counted from 0. Choices were made on its first week (planners on days 1 to 4,
forecasters on all of it, the judged day included) and on the second slice of the World Cup trace; the second week,
which is there by the minute only, and the other slices were not looked at for any.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from mark.catalog.load import model
from mark.catalog.type_sets import PAPER
from mark.cloudmodel.world import TYPICAL, World
from mark.config.footprint import footprint_of
from mark.config.settings import Settings, cache_dir
from mark.domain.demand import Demand, Forecast
from mark.domain.offerings.offering import Market
from mark.domain.offerings.times import CloudTimes, LognormalTime
from mark.plugins.load import build_forecaster
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.engine.compiled import compiled_kernel
from mark.simulator.experiment import BuildForecaster, Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript
from mark.simulator.traces.generators import mmpp
from mark.simulator.traces.trace import Trace, read_trace
from mark.simulator.workload import Workload
from mark.studies.setups import SETUPS

DAY_S, HOUR_S = 86_400.0, 3600.0
SEED = 1
SEEDS = (1, 2, 3)
"""Seeds of boots, interruptions, noise and the training of `mark`'s LSTM."""
TWITTER, WORLD_CUP = "twitter_2021_08_d01_07_1s.csv.gz", "worldcup98_1min.csv.gz"
TWITTER_TWO_WEEKS = "twitter_2021_08_d01_14_1min.csv.gz"
AZURE = {"chat": "azure_llm_2023_conv_1s.csv.gz", "code": "azure_llm_2023_code_1s.csv.gz"}
AZURE_RPS, AZURE_HISTORY_S = 100.0, 600.0
MMPP_RATES_RPS, MMPP_SOJOURNS_S = (20.0, 80.0), (600.0, 120.0)
"""The states that `mark trace generate mmpp` draws when nothing is said."""
MMPP_WARM_UP_S, MMPP_S = 18 * HOUR_S, 6 * HOUR_S
WEEK_LATER = 12
"""The judged day's weekday, in the second week."""
SLICE_ENDS = (33_270, 105_270, 123_990)
"""Rows at which slices of the World Cup trace end (its README): a small load, a large one, one that dies away.

Choices were made on the second slice, and the third is as large as the fourth.
"""
WAKE_S = 75.0
WAKE_SPREAD = 110.0 / 75.0
"""The 95 % point of a wake over its median."""


Question = tuple[float, int, int]
"""Of a forecaster: the end of the history, its units, and how many to forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceLoad:
    """A trace and the part of it that is replayed."""

    label: str
    trace: Trace
    start_s: float
    duration_s: float = DAY_S
    seed: int = SEED

    def workload(self) -> Workload:
        """Its arrivals."""
        return Workload(trace=self.trace, seed=self.seed, start_s=self.start_s, duration_s=self.duration_s)


def data_folder() -> Path:
    """The folder of the traces; ends the command where none is named."""
    folder = os.environ.get("MARK_DATA")
    if not folder:
        sys.exit("set MARK_DATA to the folder that holds traces/")
    return Path(folder) / "traces"


@cache
def trace_of(name: str) -> Trace:
    """A trace by its file's name."""
    return read_trace(data_folder() / name)


def twitter_day(day: int) -> AcceptanceLoad:
    """A day of the trace's first week, second by second."""
    return AcceptanceLoad(label=f"Twitter day {day}", trace=trace_of(TWITTER), start_s=day * DAY_S)


def twitter_second_week() -> AcceptanceLoad:
    """The same weekday as the judged one, a week later, minute by minute."""
    return AcceptanceLoad(
        label=f"Twitter day {WEEK_LATER}", trace=trace_of(TWITTER_TWO_WEEKS), start_s=WEEK_LATER * DAY_S
    )


def world_cup_day(row: int) -> AcceptanceLoad:
    """The day that ends at a row."""
    return AcceptanceLoad(label=f"World Cup to row {row}", trace=trace_of(WORLD_CUP), start_s=row * 60.0 - DAY_S)


def azure(kind: str) -> AcceptanceLoad:
    """An hour of requests to a language model, scaled up; its first minutes are the history."""
    trace = trace_of(AZURE[kind])
    duration_s = trace.duration_s - AZURE_HISTORY_S
    return AcceptanceLoad(
        label=f"Azure {kind}, {AZURE_RPS:g} requests/s",
        trace=trace.scaled(AZURE_RPS, AZURE_HISTORY_S, duration_s),
        start_s=AZURE_HISTORY_S,
        duration_s=duration_s,
    )


def markov() -> AcceptanceLoad:
    """Markov-modulated load."""
    trace = mmpp(MMPP_RATES_RPS, MMPP_SOJOURNS_S, duration_s=MMPP_WARM_UP_S + MMPP_S, seed=SEED)
    return AcceptanceLoad(label="MMPP, 6 h", trace=trace, start_s=MMPP_WARM_UP_S, duration_s=MMPP_S)


ELSEWHERE: dict[str, Callable[[], AcceptanceLoad]] = {
    "twitter": twitter_second_week,
    **{f"world-cup-{row}": partial(world_cup_day, row) for row in SLICE_ENDS},
    **{f"azure-{kind}": partial(azure, kind) for kind in AZURE},
    "mmpp": markov,
}
"""Loads beside the judged day, by a short name."""


def wake_times(median_s: float) -> CloudTimes:
    """The pinned times, but for how long a standby takes to serve."""
    if median_s == WAKE_S:
        return CloudTimes()
    return CloudTimes(wake=LognormalTime(median_s=median_s, p95_s=median_s * WAKE_SPREAD))


def spec_of(
    load: AcceptanceLoad,
    market: Market,
    model_name: str = "inception-v3",
    *,
    types: tuple[str, ...] = (),
    faults: FaultScript | None = None,
    world: World = TYPICAL,
) -> ExperimentSpec:
    """The model on that load at today's prices, with the overhead; where no types are named, on current ones.

    The mean latency of the paper's studies holds for the paper's types only, and they have no quotas: an account
    has no P instances until AWS raises that one.
    """
    setup = SETUPS[model_name]
    return ExperimentSpec(
        footprint=footprint_of(Settings()),
        model=model(model_name),
        slo=setup.slo if types == setup.types else model(model_name).slo,
        market=market,
        types=types,
        workload=load.workload(),
        profile_sets=setup.profile_sets,
        faults=faults or FaultScript(),
        world=replace(world, quotas=()) if PAPER in types else world,
        cache_dir=cache_dir(),
    )


def experiment_of(spec: ExperimentSpec, build: BuildForecaster = build_forecaster) -> Experiment:
    """The experiment of a spec."""
    return Experiment(spec, kernel=compiled_kernel(cache_dir()), build_forecaster=build)


def waking(spec: ExperimentSpec, median_s: float) -> ExperimentSpec:
    """The same with standbys that serve so long after they are woken."""
    return replace(spec, world=replace(spec.world, times=wake_times(median_s)))


class Foretold(AbstractContextManager["Foretold"]):
    """Builds each forecaster once and remembers its answers: all runs on one load ask it the same.

    As a context it leaves the answers to other tasks on the same load, in the folder of `keep_forecasts_in`.
    """

    def __init__(self, load: AcceptanceLoad | None = None) -> None:
        """Forecasts of this load; without one they are nobody else's."""
        self._load = load
        self._made: dict[str, tuple[Path | None, Remembering]] = {}

    def build(self, name: str, setup: ForecasterSetup) -> Forecaster:
        """The forecaster of that name, made from the first setup that was given: there is one a load."""
        if name not in self._made:
            file = self._file(name, setup)
            known = pickle.loads(file.read_bytes()) if file is not None and file.exists() else {}  # noqa: S301 - ours
            self._made[name] = file, Remembering(partial(build_forecaster, name, setup), known)
        return self._made[name][1]

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        for file, made in self._made.values():
            if failed is None and file is not None and made.has_new_answers:
                draft = file.with_suffix(f".{os.getpid()}")
                draft.write_bytes(pickle.dumps(made.answers))
                draft.replace(file)

    def _file(self, name: str, setup: ForecasterSetup) -> Path | None:
        """The answers of that forecaster to that load."""
        load = self._load
        if load is None or _kept_in is None:
            return None
        seed = None if load.trace.whole_counts else load.seed  # bins of whole counts are the same load with any
        asked = (name, setup.seed, setup.history, load.label, load.start_s, load.duration_s, seed)
        return _kept_in / f"{sha256(pickle.dumps(asked)).hexdigest()}.pickle"


_kept_in: Path | None = None


def keep_forecasts_in(folder: Path | None) -> None:
    """Let this process share forecasts with those that are given the same folder, which is of one commit."""
    global _kept_in  # noqa: PLW0603 - the state of a worker process, set once as it starts
    _kept_in = folder


class Remembering:
    """A forecaster that is asked each question once, and not made at all where the answers are known."""

    def __init__(self, make: Callable[[], Forecaster], known: Mapping[Question, Forecast] | None = None) -> None:
        """Make a forecaster for what is not known; `known` are answers of an equal one."""
        self.answers = dict(known or {})
        self.has_new_answers = False
        self._make = make
        self._forecaster = None if self.answers else make()

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """Its answer."""
        question = (history.end_at, len(history), horizon)
        if question not in self.answers:
            self._forecaster = self._forecaster or self._make()
            self.answers[question] = self._forecaster.forecast(history, horizon)
            self.has_new_answers = True
        return self.answers[question]
