"""`mark scaler`: the plan for deployments of a Kubernetes cluster, from a query of Prometheus, told to KEDA.

Each minute the query is read on, the policy plans, and the answer is written to one small file before it is told:
whoever starts next goes on with it. The forecaster is made beside that; until it is, the last minute counts.
"""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from mark.adapters import adapter_of
from mark.config.policies import (
    chosen_overrides,
    chosen_policies,
    chosen_variants,
    sized_model,
    usable_cache,
)
from mark.config.served import settings_of_one
from mark.config.settings import Settings
from mark.controller.event_forecasts import without_events
from mark.controller.outside_pods import Outlook, decide_pods, demand_of_rates
from mark.controller.policy import ControllerPolicy
from mark.domain.demand import Demand
from mark.domain.errors import MarkError, Misconfigured, PlanInfeasible, failure_words, file_errors
from mark.domain.figures import plural
from mark.domain.plans.pod_plan import PodPlan
from mark.offline.forecast.forecasters import Built, ask
from mark.offline.metrics.minute_rates import MinuteRates, until_next_s
from mark.offline.metrics.prometheus import Prometheus
from mark.offline.trace_source import TraceReading
from mark.plugins.load import build_forecaster, load_forecaster
from mark.policies.assemble import Assembly
from mark.ports import ForecasterSetup
from mark.report.terminal import note, show
from mark.serving.grpc.external_scaler import ScalerServer
from mark.serving.grpc.grpc_server import GrpcConfig
from mark.simulator.traces.formats.times import moment

POLICY = "hedged"
TRAIN_EACH_S = 86_400.0
TRAIN_AGAIN_S = 3600.0
"""After a training that failed, of too short a history, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerOptions:
    """Where demand comes from, where answers go, and where the last one is kept."""

    prometheus: str
    query: str
    days: float
    host: str
    #: 0 takes a free one.
    port: int
    state: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the file holds."""

    model: str
    plan: PodPlan


@dataclass(frozen=True, slots=True)
class PlanFile:
    """The last answer for a model, on disk."""

    path: Path
    model: str

    def read(self) -> PodPlan | None:
        """The answer; None where there is none yet. Misconfigured for a file of something else."""
        try:
            kept = adapter_of(Kept).validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Misconfigured(f"cannot read --state {self.path}: {error.strerror}") from error
        except ValidationError as error:
            raise Misconfigured(
                f"--state {self.path} holds no answers of `mark scaler`; name another file, or remove it"
            ) from error
        if kept.model != self.model:
            raise Misconfigured(f"--state {self.path} is of the model {kept.model}; each model needs its own")
        return kept.plan

    def write(self, plan: PodPlan) -> None:
        """Replace the answer as a whole. Misconfigured where that cannot be."""
        draft = self.path.with_name(f".{self.path.name}.draft")
        with file_errors(f"write --state {self.path}"):
            draft.write_bytes(adapter_of(Kept).dump_json(Kept(model=self.model, plan=plan), indent=1))
            draft.replace(self.path)


class PodPlanner:
    """Reads demand and decides, minute by minute. It blocks: its driver calls it in a thread."""

    def __init__(
        self,
        policy: ControllerPolicy,
        rates: MinuteRates,
        file: PlanFile,
        make: Callable[[Demand], Built],
        now: Callable[[], float] = time.time,
    ) -> None:
        """make: the forecaster, of a history. Misconfigured as of `PlanFile.read`."""
        self.policy, self.plan = policy, file.read()
        #: Why there is no newer demand, or no answer; empty where nothing is wrong.
        self.trouble = ""
        #: Demand as the last tick knew it.
        self.history = Demand(end_at=0.0, mean_rps=(), max_rps=())
        self._rates, self._file, self._make, self._now = rates, file, make, now
        self._built: Built | None = None
        self._failure = "the forecaster is being made"
        self._train_at = -math.inf

    def tick(self) -> None:
        """Read what is new, decide, and write it down. Misconfigured where a first answer is out of reach."""
        self.trouble, before = self._read(), self.plan
        self.history = demand_of_rates(self._rates.rates)
        seen = Outlook(now=self._now(), history=self.history, trouble=self.trouble)
        try:
            self.plan = decide_pods(self.policy, self._with_forecast(seen), before)
        except PlanInfeasible as error:
            self.trouble = str(error)
            return
        try:
            self._file.write(self.plan)
        except Misconfigured as error:
            if before is None:
                raise
            self.trouble = str(error)

    def wants_training(self) -> bool:
        """True where a forecaster should be made of what came: at first, and once a day."""
        return len(self.history) > 0 and self._now() >= self._train_at

    def train(self) -> None:
        """Make the forecaster anew, beside ticks; where that fails, the one before goes on."""
        self._train_at = self._now() + TRAIN_EACH_S
        history = without_events(self.history, self.policy.events)
        try:
            self._built = self._make(history)
        except MarkError as error:
            self._failure = str(error)
            self._train_at = self._now() + TRAIN_AGAIN_S
            note(f"no new forecaster of {plural(len(history), 'minute')}: {error}")

    def _read(self) -> str:
        try:
            self._rates.read(self._now())
        except Misconfigured as error:
            if self.plan is None and not self._rates.rates:
                raise
            return str(error)
        except MarkError as error:
            return str(error)
        return ""

    def _with_forecast(self, seen: Outlook) -> Outlook:
        if self._built is None or seen.staleness:
            return replace(seen, failure=self._failure)
        try:
            forecast, _ = ask(self._built, without_events(seen.history, self.policy.events))
        except Misconfigured as error:
            return replace(seen, failure=str(error))
        return replace(seen, forecast=forecast)


def scale(settings: Settings, options: ScalerOptions, environment: Mapping[str, str]) -> None:
    """Plan and answer until SIGTERM or Ctrl-C. Misconfigured where that cannot begin."""
    settings = settings_of_one(settings)
    policy, forecaster = scaler_policy(settings)
    reading = TraceReading.of(settings).options
    source = Prometheus.at(options.prometheus, environment)
    rates = MinuteRates(source, options.query, reading, options.days)
    for text in rates.notes:
        note(text)
    cache = usable_cache()

    def make(history: Demand) -> Built:
        began = time.perf_counter()
        made = build_forecaster(forecaster, ForecasterSetup(history=history, seed=settings.seed, cache_dir=cache))
        return Built(name=forecaster, forecaster=made, train_s=time.perf_counter() - began, card=None)

    file = PlanFile(options.state, str(settings.model))
    asyncio.run(_serve(PodPlanner(policy, rates, file, make), GrpcConfig(host=options.host, port=options.port)))


def scaler_policy(settings: Settings) -> tuple[ControllerPolicy, str]:
    """The policy of our own, without the Lambda and the standbys that a cluster does not have, and its forecaster.

    Misconfigured where no types are named: a plan may only count on what a deployment runs on.
    """
    if not settings.offerings.types:
        raise Misconfigured("name the instance types that your deployments run on: --types c5.large,c5.xlarge")
    asked = chosen_policies(settings)
    spec = replace(
        asked,
        model=sized_model(settings),
        variants=chosen_variants(settings),
        overflow=False,
        standby_share=0.0,
        overhead=False,
    )
    assembly = Assembly(spec)
    given = assembly.ingredients(Demand(end_at=0.0, mean_rps=(), max_rps=()))
    bundle = assembly.bundle(POLICY, given, chosen_overrides(settings))
    load_forecaster(bundle.forecaster)
    return bundle.controller, bundle.forecaster


async def _serve(planner: PodPlanner, config: GrpcConfig) -> None:
    """Tick each minute, and once a forecaster is made."""
    server = ScalerServer(config, [item.name for item in planner.policy.offerings])
    server.tell(planner.plan)
    stop, made = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    show(f"KEDA's external scaler listens on {config.host}:{server.port}.")
    training: threading.Thread | None = None
    said = ("", "")
    try:
        while not stop.is_set():
            made.clear()
            await _tick_or_stop(planner, stop)
            server.tell(planner.plan, planner.trouble)
            said = _say(planner, said)
            if (training is None or not training.is_alive()) and planner.wants_training():
                training = _trained(planner, made)
            await _first_of(stop, made, timeout_s=until_next_s(time.time()))
    finally:
        await server.stop()


async def _tick_or_stop(planner: PodPlanner, stop: asyncio.Event) -> None:
    """Tick in a thread that nobody waits for at the end: Prometheus may not answer for minutes."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def end(error: MarkError | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def work() -> None:
        failed = None
        try:
            _tick(planner)
        except MarkError as error:
            failed = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(end, failed)

    threading.Thread(target=work, daemon=True).start()
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((done, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if done.done():
        done.result()
    else:
        done.cancel()


def _tick(planner: PodPlanner) -> None:
    try:
        planner.tick()
    except MarkError:
        raise
    except Exception as error:  # noqa: BLE001 - nobody is above: the last answer stays, and the next minute tries
        planner.trouble = f"internal error: {failure_words(error)}"


def _trained(planner: PodPlanner, made: asyncio.Event) -> threading.Thread:
    """The thread that makes the forecaster: nobody waits for it at the end."""
    loop = asyncio.get_running_loop()

    def work() -> None:
        planner.train()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(made.set)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


async def _first_of(*events: asyncio.Event, timeout_s: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for one in waits:
        one.cancel()


def _say(planner: PodPlanner, said: tuple[str, str]) -> tuple[str, str]:
    """Print answers and troubles that changed; returns what was said."""
    if planner.trouble and planner.trouble != said[1]:
        note(planner.trouble)
    elif said[1] and not planner.trouble:
        note("demand is read again")
    plan = planner.plan
    if plan is None:
        return "", planner.trouble
    counts = ", ".join(f"{one.count} {one.offering}" for one in plan.pods)
    if counts != said[0]:
        reason = next((one.reason for one in plan.pods if one.count), plan.pods[0].reason)
        show(f"{moment(plan.at)}: {counts}; {reason}")
    return counts, planner.trouble
