"""A service on the emulated account, in virtual time: its controllers, one after another, its agents and its load.

The controller is the live one, from its term on: lease, journals and membership in a real Redis, boto3 to its
wire. What it does on threads is done here in turn, so that a seed lives the same life each time. A controller that
is killed takes with it what it only had in memory; what it had claimed of the queue comes again later.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import botocore.handlers
import pytest
from botocore.retries.bucket import TokenBucket
from botocore.retries.standard import ExponentialBackoff

from mark.aws.errors import REPORTED_AT
from mark.aws.inbox import EventInbox
from mark.aws.outside_pause import read_pause
from mark.aws.session import Aws, AwsSettings, Credentials
from mark.config.settings import Settings
from mark.controller.journal import Tick, read_journal
from mark.controller.runner import Controller
from mark.controller.state import Observation
from mark.domain.demand import WINDOW_S, Demand, Forecast, point_forecast
from mark.domain.errors import MarkError, RetryLater
from mark.domain.fleet.instances import Role
from mark.domain.fleet.lease import Lease, LeaseLost
from mark.domain.fleet.member import Member, MemberState
from mark.domain.load.traffic import GatewayReport, ModelTraffic
from mark.domain.models.versions import VersionCounts
from mark.domain.offerings.offering import InstanceType
from mark.live.background.failures import BackgroundFailures
from mark.live.background.worker import PeriodicTask, all_tasks
from mark.live.clock import adopt_wall
from mark.live.control.drivers.driver_factory import DriverFactory
from mark.live.control.entry import LiveFront
from mark.live.control.leadership.term import Term
from mark.live.control.watches.outside_pause_watch import OutsidePauseWatch
from mark.live.local.running import Running
from mark.live.models import LiveModel, make_live_models, service_spec
from mark.steady_time import WALL
from mark.store.codec import MEMBER
from mark.store.connect import Link
from mark.store.keys import Keys
from mark.store.published_status import RESOURCES, PublishedResources
from mark.store.scripts import ANNOUNCE, LEAVE
from mark.store.service import ServiceStore
from tests.scenarios.emulated_account import BUCKET, EVENTS_URL, Account, Killed, subnets

START_AT = 20_000 * 86400.0 + 43_200.0
PERIOD_S = 60.0
STEP_S = 15.0
BESIDE_S = 120.0
"""Between two turns of what has threads beside the ticks."""
OFFSET_S = 0.1
"""Of each step from the period's end: gateways have reported by then."""
DRAIN_S = 20.0
LEAVES_S = 1.0
"""Seconds in which a process ends that is told to."""
FOR_EVER_S = 1e7
"""For how long agents and leases last that are not said to end: virtual time is not Redis' own."""
MODEL = "inception-v3"
STABLE, CANDIDATE = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
LATENCY_US = 250_000
KEYS = Keys("shop")
FOREVER_MS = round(1000 * FOR_EVER_S)
MOST_PASSES = 20
TIMED = (
    "mark.aws.inbox",
    "mark.live.control.rollouts",
    "mark.live.clock",
    "mark.live.forecasting.retraining",
    "mark.emulator.moto_app",
    "moto.secretsmanager.models",
)
"""Modules that read a clock of the process."""


class Wall:
    """Virtual time, epoch seconds: what every clock of the process shows."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


@cache
def settings() -> Settings:
    """One model on spot instances of one type, with standbys and Lambda."""
    served = {"model": MODEL, "market": "spot", "offerings": {"types": ["c5.large"]}}
    return Settings.model_validate({"service": {"name": "shop", "serve": [served]}})


@cache
def live_model() -> LiveModel:
    (made,) = make_live_models(settings())
    return replace(made, served=replace(made.served, version=STABLE))


def types() -> dict[str, InstanceType]:
    return {one.instance_type.name: one.instance_type for one in live_model().served.offerings}


@contextmanager
def virtual_time(wall: Wall, account: Callable[..., Any]) -> Iterator[None]:
    """All clocks show the wall's time, AWS is the account, and what had a thread is done by who waits for it."""
    clock = SimpleNamespace(**{**vars(time), "monotonic": wall.now, "time": wall.now})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_wall", wall.now), ("_monotonic", wall.now), ("offset_s", 0.0)):
            patch.setattr(WALL, name, value)
        for module in TIMED:
            patch.setattr(f"{module}.time", clock)
        for module in ("mark.aws.ec2.fleet", "mark.aws.functions.warmup"):
            patch.setattr(f"{module}.ThreadPoolExecutor", Inline)
        handlers = [*botocore.handlers.BUILTIN_HANDLERS, ("before-send", account)]
        patch.setattr(botocore.handlers, "BUILTIN_HANDLERS", handlers)
        patch.setattr(ExponentialBackoff, "delay_amount", lambda _self, _context: 0.0)
        patch.setattr(TokenBucket, "acquire", lambda _self, amount=1, block=True: True)
        REPORTED_AT.clear()
        yield


class Inline:
    """An executor that does at once what it is given."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, do: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(do(*given))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done

    def map(self, do: Callable[..., Any], *given: Iterable[Any]) -> list[Any]:
        return [do(*one) for one in zip(*given, strict=False)]

    def shutdown(self, **_: object) -> None: ...


class SteadyForecaster:
    """In the place of a forecaster with its training: the highest of the last three minutes goes on."""

    name = "steady"

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def begin(self, *_: object) -> None: ...

    def read(self, ticks: Iterable[Tick]) -> Iterator[Tick]:
        return iter(ticks)

    def follow(self, _seen: Observation, _history: Demand, _store: ServiceStore) -> None: ...

    def told(self) -> None:
        return None

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        rates = (max(history.max_rps[-3:]),) * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="test")


def steady_forecasters() -> tuple[SteadyForecaster, SteadyForecaster]:
    """A model's forecaster, and the one that answers where it fails."""
    return SteadyForecaster(), SteadyForecaster()


@dataclass(slots=True)
class Agent:
    """One instance's process. `leaves_at`: when its drain or its end is done."""

    id: str
    serving: bool = False
    draining_since: float | None = None
    ends_at: float | None = None
    told: Member | None = None


class Agents:
    """The processes of the account's instances (the emulated AWS's Power)."""

    def __init__(self, link: Link, wall: Wall) -> None:
        self._link, self._wall = link, wall
        self.account: Account
        self.running: dict[str, Agent] = {}

    def power_on(self, name: str, _environment: Mapping[str, str]) -> None:
        self.running[name] = Agent(name)

    def power_off(self, name: str) -> None:
        agent = self.running[name]
        agent.ends_at = min(agent.ends_at or 1e18, self._wall.at + LEAVES_S)
        self.account.clock.at(self._wall.at + LEAVES_S, lambda _: self._gone(name))

    def runs(self, name: str) -> bool:
        return name in self.running

    def act(self) -> None:
        """What each does by itself: boots, drains, and leaves."""
        drains = {name.decode() for name in self._link.call("SMEMBERS", KEYS.drains[0])}
        now = self._wall.at
        for agent in list(self.running.values()):
            machine = self.account.machines.find(agent.id)
            assert machine is not None
            if agent.ends_at is not None:
                continue
            agent.serving = now >= machine.life.ready_at
            if agent.id in drains and agent.draining_since is None:
                agent.draining_since = now
            if agent.id not in drains:
                agent.draining_since = None
            if agent.draining_since is not None and now >= agent.draining_since + DRAIN_S:
                self._gone(agent.id)
                continue
            self._announce(agent)

    def serving(self) -> list[Agent]:
        """Those that take requests."""
        return [
            one
            for one in self.running.values()
            if one.serving and one.draining_since is None and one.ends_at is None
        ]

    def _announce(self, agent: Agent) -> None:
        machine = self.account.machines.find(agent.id)
        assert machine is not None
        state = MemberState.READY if agent.serving else MemberState.STARTING
        if agent.draining_since is not None and agent.serving:
            state = MemberState.DRAINING
        offering = next(one for one in live_model().served.offerings if one.name == machine.offering)
        member = Member(
            instance=agent.id,
            model=machine.tags["mark:model"],
            offering=machine.offering,
            role=Role(machine.tags["mark:role"]),
            host=machine.address,
            port=8001,
            state=state,
            max_batch=offering.batch.max_batch,
            batch_s=(0.211268,),
            capacity_rps=offering.capacity_rps,
            terminates_at=machine.life.terminates_at,
            version=machine.tags.get("mark:model-version", ""),
            zone=machine.spec.zone,
        )
        if member != agent.told:
            number = hash(member) & 0xFFFFFFFFFFFF
            self._link.run(ANNOUNCE, KEYS.announced, (FOREVER_MS, agent.id, MEMBER.encode(member), number))
            agent.told = member

    def _gone(self, name: str) -> None:
        if self.running.pop(name, None) is not None:
            self._link.run(LEAVE, KEYS.members, (FOREVER_MS, name))
            self.account.machines.powered_off(name)


class Inboxes(list[EventInbox]):
    """The inboxes that terms make; they are polled in turn."""

    def made(self, *given: Any, **more: Any) -> EventInbox:
        inbox = EventInbox(*given, **more)
        inbox.start = lambda: None  # type: ignore[method-assign]
        self.append(inbox)
        return inbox


class Process:
    """One controller's process, from its lease to its end."""

    def __init__(self, world: ServiceWorld, lease: Lease) -> None:
        self.world, self.lease = world, lease
        WALL.reset()  # a process reads the system's clock, and then counts as the others of its host do
        adopt_wall(world.store)
        self.aws = world.aws()
        self.failures = BackgroundFailures(world.store, lease.holder)
        self.outside = OutsidePauseWatch(
            lambda: read_pause(self.aws, "shop"), record=lambda why: self.failures.record("pause", why)
        )
        self.forecasters = world.make_forecasters()
        self.tasks: Sequence[PeriodicTask] = ()
        self._opened: ExitStack | None = None
        self._polls: list[Callable[[], None]] = []
        self._drivers: Sequence[Any] = ()
        self._due_at = 0.0

    @property
    def controller(self) -> Controller | None:
        """Of its term; None between two."""
        return cast("Controller", self._drivers[0]._controller) if self._drivers else None

    @property
    def controller_troubles(self) -> Sequence[str]:
        """What it says that a person has to mend."""
        return [text for one in self._drivers for text in one._cloud.troubles]

    def turn(self) -> None:
        """What its threads do until nothing is due. Raises Killed, LeaseLost."""
        now = self.world.wall.at
        try:
            self.world.store.leases.renew(self.lease)
            is_time = now >= self._due_at
            if is_time:
                self._due_at = now + self.world.beside_s - OFFSET_S
                self.outside.poll()
            if self._opened is None:
                self._begin()
            if is_time:
                self._poll_tasks()
                for poll in self._polls:
                    poll()
            for inbox in self.world.inboxes:
                self._receive(inbox)
            self._act()
        except RetryLater as error:
            self.world.said.append((now, f"term ends: {error}"))
            self._end_term()

    def _receive(self, inbox: EventInbox) -> None:
        for _ in range(MOST_PASSES):
            before = len(inbox._waiting)
            if inbox._failure() is not None or len(inbox._waiting) == before:
                return

    def _act(self) -> None:
        for _ in range(MOST_PASSES):
            due = [one for one in self._drivers if one.is_due()]
            if not due:
                return
            for driver in due:
                driver.act()
        raise AssertionError(f"a controller ticks {MOST_PASSES} times at one instant")

    def _poll_tasks(self) -> None:
        self.tasks = self.tasks or all_tasks(self.world.store, self.aws)
        for task in self.tasks:
            try:
                task.poll()
            except MarkError as error:
                self.world.said.append((self.world.wall.at, f"{type(task).__name__}: {error}"))

    def _begin(self) -> None:
        """As `Leader` begins a term."""
        world = self.world
        world.store.take_over(self.lease, [MODEL])
        factory = DriverFactory(
            settings(),
            Running(name="shop", pid=0),
            store=world.store,
            aws=self.aws,
            lease=self.lease,
            front=LiveFront(world.store, {MODEL: 0.0}, is_steered=False, monotonic=world.wall.now),
        )
        term = Term(
            settings(),
            store=world.store,
            aws=self.aws,
            lease=self.lease,
            failures=self.failures,
            outside=self.outside.latest,
            make_driver=factory.make,
        )
        world.inboxes.clear()
        self._opened = ExitStack()
        runs = term._drivers([live_model()], {MODEL: self.forecasters}, self._opened)
        watches, acting = [run.func.__self__ for run in runs[:-1]], runs[-1].func.__self__  # type: ignore[attr-defined]
        self._polls = [watch.poll for watch in watches]
        self._drivers = acting._models

    def _end_term(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened, self._polls, self._drivers = None, [], ()

    def close(self) -> None:
        """End in order."""
        self._end_term()
        self.aws.close()


class ServiceWorld:
    """The service, the account, and time. `rate`: requests/s at an instant."""

    def __init__(
        self, link: Link, wall: Wall, account: Account, agents: Agents, rate: Callable[[float], float]
    ) -> None:
        self.wall, self.account, self.agents, self._rate, self.link = wall, account, agents, rate, link
        self.store = ServiceStore(link, "shop", member_ttl_s=FOR_EVER_S)
        self.inboxes = Inboxes()
        self.said: list[tuple[float, str]] = []
        self.process: Process | None = None
        self.lives = 0
        self.sent = Counter[str]()
        self._reported_at = START_AT
        self._reports = 0
        self._next_at = 0.0
        self.dies_at: list[float] = []
        self.beside_s = BESIDE_S
        self.make_forecasters: Callable[[], Any] = steady_forecasters
        #: Of the fleet: (when, stable version, serving instances that stay, those planned).
        self.fleets: deque[tuple[float, str, Counter[str], Counter[str]]] = deque(maxlen=1000)
        model = live_model()
        self.store.put_spec(service_spec(settings(), [model]))
        self.store.begin_versions([model.served])
        self.put_resources("1")

    def put_resources(self, version: str) -> None:
        """As a deploy does: what new instances run is of this version."""
        resources = PublishedResources(
            events_url=EVENTS_URL,
            bucket=BUCKET,
            templates={f"{role}/amd64": f"mark-shop-{role}" for role in ("serving", "standby")},
            subnets=subnets(),
            version=version,
        )
        RESOURCES.write(self.store, resources)

    def aws(self) -> Aws:
        """Clients of a process of the service."""
        keys = Credentials(access_key_id="a", secret_access_key="s")
        return Aws(AwsSettings(region="us-east-1", credentials=keys, role="controller"))

    def run(self, until: float, step_s: float = STEP_S) -> None:
        """Let time pass to `until`, step by step."""
        while self.wall.at < until:
            self.step(min(self.wall.at + step_s, until))

    def step(self, at: float) -> None:
        """Let time pass to an instant, and everybody do what he has to."""
        self.wall.at = at
        self.account.pass_time()
        self.agents.act()
        self._serve(at)
        if self.dies_at and self.dies_at[0] <= at:
            self.dies_at.pop(0)
            self.kill("killed")
        self._control(at)
        self._note_fleet(at)
        self.account.pass_time()

    def _note_fleet(self, at: float) -> None:
        controller = self.process.controller if self.process else None
        if controller is None or controller.state.plan is None:
            return
        versions = self.store.versions(MODEL)
        staying = Counter(
            one.offering
            for one in self.account.alive()
            for agent in (self.agents.running.get(one.id),)
            if one.tags["mark:role"] == Role.SERVING.value
            and one.life.terminates_at is None
            and (versions is None or versions.is_stable(one.tags.get("mark:model-version", "")))
            and (agent is None or agent.draining_since is None)
        )
        planned = Counter({item.offering: item.count for item in controller.state.plan.counts})
        self.fleets.append((at, "" if versions is None else versions.stable, staying, planned))

    def kill(self, why: str) -> None:
        """End the controller's process as a machine's failure does; another has the lease when it has run out."""
        self.said.append((self.wall.at, why))
        self.process, self._next_at = None, self.wall.at + 10.0
        self.inboxes.clear()

    def _control(self, at: float) -> None:
        if self.process is None:
            if at < self._next_at:
                return
            self.link.call("DEL", KEYS.of("lease"))
            self.lives += 1
            lease = self.store.leases.acquire(f"controller-{self.lives}", FOR_EVER_S)
            assert lease is not None
            self.process = Process(self, lease)
        try:
            self.process.turn()
        except Killed:
            self.kill("killed in a call")
        except LeaseLost as error:
            self.kill(str(error))

    def _serve(self, at: float) -> None:
        """The gateway: instances take what they can, Lambda the rest; all of it is counted."""
        first, last = int(self._reported_at // WINDOW_S), int(at // WINDOW_S)
        if last <= first:
            return
        self._reported_at = last * WINDOW_S
        arrivals = [(window, round(WINDOW_S * self._rate(window * WINDOW_S))) for window in range(first, last)]
        total = sum(count for _, count in arrivals)
        by_version = Counter[str]()
        room = (last - first) * WINDOW_S
        for agent in self.agents.serving():
            assert agent.told is not None
            by_version[agent.told.version] += round(room * agent.told.capacity_rps)
        versions = self.store.versions(MODEL)
        shares = Counter({STABLE: total})
        if versions is not None:
            of_candidate = round(total * versions.weight)
            shares = Counter({versions.stable: total - of_candidate})
            if versions.candidate:
                shares[versions.candidate] += of_candidate
        taken = {name: min(asked, by_version[name]) for name, asked in shares.items()}
        taken = {name: count for name, count in taken.items() if count}
        instance = sum(taken.values())
        self.sent.update(arrived=total, instance=instance, lambda_=total - instance)
        counts = tuple(
            VersionCounts(version=name, answered=count, latency_us=count * LATENCY_US)
            for name, count in sorted(taken.items())
        )
        self._reports += 1
        traffic = ModelTraffic(
            model=MODEL,
            arrivals=tuple(arrivals),
            instance=instance,
            lambda_=total - instance,
            versions=counts,
        )
        self.store.report(GatewayReport(gateway="g", sequence=self._reports, models=(traffic,)))

    def journal(self) -> list[Tick]:
        """The ticks of all segments that are kept."""
        return [
            tick
            for number in self.store.journal_segments(MODEL)
            for tick in read_journal(self.store.journal_lines(MODEL, number))[1]
        ]


@contextmanager
def service_world(
    link: Link, rate: Callable[[float], float], *, seed: int, **account: Any
) -> Iterator[ServiceWorld]:
    """A service that is about to start, on an empty account and an empty store."""
    link.call("FLUSHALL")
    wall = Wall(START_AT + OFFSET_S)
    agents = Agents(link, wall)
    made = Account(now=wall.now, types=types(), power=agents, seed=seed, **account)
    agents.account = made
    with virtual_time(wall, made), pytest.MonkeyPatch.context() as patch:
        world = ServiceWorld(link, wall, made, agents, rate)
        patch.setattr("mark.live.control.leadership.term.EventInbox", world.inboxes.made)
        try:
            yield world
        finally:
            if world.process is not None:
                world.process.close()
            made.machines.close()
