"""The run: deploy, load, interrupt, measure, remove; and the table of what was assumed and measured.

Each step that is done is written to the folder, so that the same command goes on where it ended. Whatever ends it
early, it says how to go on and how to remove the service. After `MEASURE_S` nothing more is measured.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

from pydantic import BaseModel, Field

from mark.aws.costs import usd_by_usage
from mark.aws.ec2.tags import SERVICE
from mark.aws.session import Aws
from mark.config.footprint import footprint_of
from mark.config.policies import named_world
from mark.config.settings import Settings, load_settings, settings_anywhere
from mark.controller.journal import Header, Tick, read_journal
from mark.deployment.bundles import fits_function
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.fleet.instances import FleetView, InstanceState
from mark.domain.offerings.offering import LambdaOffering
from mark.live.commands.try_service import Route, route_to_account
from mark.live.models import make_live_models
from mark.live.service_session import service_aws
from scripts.real_account import account
from scripts.real_account.journal import Measured, expected_usd, measured
from scripts.real_account.settings import run_settings
from scripts.real_account.table import Part, Quantity, bill_table, by_part, snippet, table

MEASURE_S = 40 * 60.0
"""From the start; removing the service may take the rest of the hour."""
ANSWER_S, REPLACE_S, POLL_S = 20 * 60.0, 10 * 60.0, 5.0
LOAD_S, WORKERS, WORKER_RPS = 120.0, 4, 2.0
"""A new account runs ten calls of Lambda at once, and each request from within the network is one."""
COLD_CALLS, ROUNDS = 5, 3
NOTICE_S = 2.0
"""Until controllers know of a spot notice (docs/account.md)."""
DEPLOY_S, DESTROY_S = 20 * 60.0, 40 * 60.0
"""Upper ends of what docs/deploy.md says."""
MARK = (sys.executable, "-P", "-c", "from mark.cli.main import main; main()")
INSTANCES = ("instance", "standby")
Command = Callable[[Path], None]


def mark(*words: str) -> Command:
    """A command of `mark` on the run's settings, in this terminal. CalledProcessError where it fails."""

    def call(config: Path) -> None:
        subprocess.run([*MARK, *words, "--config", str(config)], check=True)  # noqa: S603 - our own command

    return call


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Way of the service into the account and out of it, and its settings from those that are given."""

    check: Command = field(default_factory=lambda: mark("doctor"))
    deploy: Command = field(default_factory=lambda: mark("deploy"))
    destroy: Command = field(default_factory=lambda: mark("destroy", "--all", "--yes"))
    settings: Callable[[Settings], Settings] = lambda settings: run_settings(
        settings, fits=lambda backend: fits_function(settings, backend), today=datetime.now(UTC).date()
    )


class Found(BaseModel):
    """Measurements of the steps."""

    #: Answers of instances under load, and of a function that started anew, seconds.
    instance_s: list[float] = []
    cold_s: list[float] = []
    #: What calls of the function cost, USD.
    lambda_usd: float = 0.0
    #: Requests under load by step, and by who answered.
    answers: dict[str, dict[str, int]] = {}


class RunState(BaseModel):
    """The file of a run."""

    #: By this machine's clock.
    began_at: float = Field(default_factory=time.time)
    #: Steps that are done: when each began and ended.
    done: dict[str, tuple[float, float]] = {}
    found: Found = Found()


class Run:
    """A run in a folder, with what it did so far."""

    def __init__(self, folder: Path, way: Way, *, address: str | None = None) -> None:
        self.folder, self._way, self._address = folder, way, address
        self.config, self._file = folder / "settings.json", folder / "state.json"
        self.state = self._known()

    def _known(self) -> RunState:
        if not self._file.is_file():
            return RunState()
        try:
            return RunState.model_validate_json(self._file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Misconfigured(f"{self._file} cannot be read ({error}): take another folder") from error

    # The steps.

    def go(self, given: Settings | None) -> None:
        """Do what is not done yet. given: the person's settings, of a run that begins."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if given is not None and not self.config.is_file():
            self.config.write_text(settings_anywhere(self._way.settings(given)), encoding="utf-8")
        settings = load_settings(self.config, {})
        self._step("check", lambda: self._way.check(self.config))
        self._step("deploy", lambda: self._way.deploy(self.config))
        with closing(service_aws(settings, "")) as aws:
            route = route_to_account(settings, aws, None, self._address)
            self._step("answer", lambda: self._answer(route))
            self._measure("load", lambda: self._load(route))
            self._measure("cold starts", lambda: self._cold_starts(aws, settings))
            for name in (f"interruption {number + 1}" for number in range(ROUNDS)):
                self._measure(name, partial(self._interrupt, name, aws, route))
            self._step("pause", lambda: mark("pause", "--aws")(self.config))
            self._step("journal", lambda: self._keep_journal(aws, route))
            account.remove_fault_role(aws, route.service)
        self._step("destroy", lambda: self._way.destroy(self.config))

    def _step(self, name: str, do: Callable[[], object]) -> None:
        if name in self.state.done:
            return
        print(f"{name} ...", flush=True)
        began = time.time()
        do()
        self.state.done[name] = began, time.time()
        self._write()

    def _measure(self, name: str, do: Callable[[], object]) -> None:
        """A step that is left out when its time is over."""
        if time.time() < self.state.began_at + MEASURE_S:
            self._step(name, do)
        elif name not in self.state.done:
            print(f"{name}: left out, {MEASURE_S / 60:.0f} minutes are over")

    def _write(self) -> None:
        self._file.write_text(self.state.model_dump_json(indent=1), encoding="utf-8")

    def _answer(self, route: Route) -> None:
        until = time.time() + ANSWER_S
        while (reply := route.ask())["served_by"] not in INSTANCES:
            if time.time() > until:
                raise RetryLater(f"no instance answers after {ANSWER_S / 60:.0f} minutes: {reply['body'][:300]}")
            time.sleep(POLL_S)

    def _load(self, route: Route) -> None:
        with _load(route) as found:
            time.sleep(LOAD_S)
        self.state.found.instance_s = [ms / 1000 for by, ms in found if by in INSTANCES]
        self._count("load", found)

    def _count(self, name: str, found: list[tuple[str, float]]) -> None:
        """Keep who answered, and say so."""
        by = self.state.found.answers[name] = dict(Counter(by for by, _ in found))
        print(f"  answered by: {', '.join(f'{who} {count}' for who, count in by.items()) or 'nobody'}")

    def _cold_starts(self, aws: Aws, settings: Settings) -> None:
        [served] = [one.served for one in make_live_models(settings)]
        if served.overflow is None:
            print(f"  left out: {served.name} has no function (docs/deploy.md, A model on Lambda)")
            return
        cold = account.cold_starts(aws, served.function, COLD_CALLS)
        self.state.found.cold_s = list(cold.later_s)
        self.state.found.lambda_usd = (
            cold.calls * served.overflow.usd_per_request + cold.gib_s * served.overflow.usd_per_gib_s
        )

    def _interrupt(self, name: str, aws: Aws, route: Route) -> None:
        """Take the spot instances away under load, and wait until others serve."""
        self._settle(aws, route)
        with _load(route) as found:
            self._take_spot(aws, route)
        self._count(name, found)

    def _settle(self, aws: Aws, route: Route, warned: int = 0) -> None:
        """Wait for so many notices, and until nothing boots or is about to be taken, and something serves."""
        until = time.time() + REPLACE_S
        while time.time() < until:
            ticks = _ticks(self._lines(aws, route))
            if _warned(ticks) >= warned and _is_settled(ticks[-1].seen.fleet):
                return
            time.sleep(POLL_S)
        print(f"  the fleet did not come to rest within {REPLACE_S / 60:.0f} minutes")

    def _take_spot(self, aws: Aws, route: Route) -> None:
        warned = _warned(_ticks(self._lines(aws, route)))
        fis = account.client("fis", aws.settings.region)
        with account.fault_role(aws, route.service) as role:
            failure = account.interrupt(fis, role, route.service)
        if failure:
            print(f"  FIS interrupted nothing: {failure}")
        else:
            self._settle(aws, route, warned + 1)

    def _keep_journal(self, aws: Aws, route: Route) -> None:
        """Copy the journal, once the fleet is gone."""
        until = time.time() + REPLACE_S
        while (
            (lines := self._lines(aws, route)) and _ticks(lines)[-1].seen.fleet.instances and time.time() < until
        ):
            time.sleep(POLL_S)
        (self.folder / "journal.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    @staticmethod
    def _lines(aws: Aws, route: Route) -> list[bytes]:
        return account.journal_lines(aws, route.service, route.model)

    # What came of it.

    def measured(self) -> tuple[Header, Measured]:
        """The journal, read."""
        header, ticks = read_journal((self.folder / "journal.jsonl").read_bytes().splitlines())
        return header, measured(header, list(ticks))

    def quantities(self) -> list[Quantity]:
        """All that was measured beside what was assumed."""
        settings = load_settings(self.config, {})
        times, (header, found) = named_world(settings).times, self.measured()
        cold_s = LambdaOffering.__dataclass_fields__["cold_start_s"].default
        used = Counter({name: len(some) for (name, _), some in found.boots.found.items()}).most_common(1)
        answers = [one for one in header.policy.offerings if used and one.name == used[0][0]]
        return [
            Quantity(
                name="launch to serving",
                assumed=f"{times.launch.median_s:g} s, 95 %: {times.launch.p95_s:g} s",
                where="simulate.launch",
                measured_s=found.times_s("launch"),
                spread=times.launch,
                setting="launch",
            ),
            Quantity(
                name="wake of a standby",
                assumed=f"{times.wake.median_s:g} s, 95 %: {times.wake.p95_s:g} s",
                where="simulate.wake",
                measured_s=found.times_s("wake"),
                spread=times.wake,
                setting="wake",
            ),
            Quantity(
                name="cold start of Lambda",
                assumed=f"{cold_s:g} s",
                where="LambdaOffering.cold_start_s",
                measured_s=tuple(self.state.found.cold_s),
            ),
            Quantity(
                name="spot notice to decision",
                assumed=f"{NOTICE_S:g} s",
                where="docs/account.md",
                measured_s=found.notices_s,
            ),
            Quantity(
                name=f"answer of {answers[0].name if answers else 'an instance'}",
                assumed=f"{answers[0].profile.latency_s(1):.3g} s" if answers else "",
                where="its profile (`mark profile --on`)",
                measured_s=tuple(self.state.found.instance_s),
            ),
            *(
                Quantity(name=f"mark {name}", assumed=f"{most:g} s", where="docs/deploy.md", measured_s=took)
                for name, most in (("deploy", DEPLOY_S), ("destroy", DESTROY_S))
                if (took := self._took(name))
            ),
        ]

    def _took(self, name: str) -> tuple[float, ...]:
        return (self.state.done[name][1] - self.state.done[name][0],) if name in self.state.done else ()

    def report(self) -> str:
        """The table, and settings to paste; also written to the folder."""
        quantities = self.quantities()
        text = "\n\n".join(filter(None, (table(quantities), _fenced(snippet(quantities)))))
        (self.folder / "table.md").write_text(f"{text}\n", encoding="utf-8")
        return text

    def bill(self) -> str:
        """Expected beside billed. RetryLater while Cost Explorer does not know the run's days.

        Misconfigured where no run has come to its end here.
        """
        if "destroy" not in self.state.done:
            raise Misconfigured(f"{self.folder} holds no run that has ended: python -m scripts.real_account run")
        settings = load_settings(self.config, {})
        _, found = self.measured()
        stood_s = self.state.done["destroy"][1] - self.state.done["deploy"][0]
        expected = expected_usd(found.usage, footprint_of(settings), stood_s)
        expected[Part.LAMBDA] = self.state.found.lambda_usd
        since = _day(found.began_at - sum(self._took("deploy")))
        until = _day(found.ended_at) + timedelta(days=1)
        unknown = f"Cost Explorer does not know {since} yet: it takes one to two days, ask again then"
        with closing(service_aws(settings, "")) as aws:
            try:
                whose, tags = f"what bears the tag {SERVICE}", {SERVICE: settings.service.name}
                billed, estimated = usd_by_usage(aws, since, until, tags)
                if not sum(billed.values()):
                    whose = f"the whole account, for nothing bears {SERVICE} as an active cost allocation tag"
                    billed, estimated = usd_by_usage(aws, since, until, {})
            except RetryLater as error:
                raise RetryLater(f"{unknown} ({error})") from error
        if not sum(billed.values()):
            raise RetryLater(unknown)
        notes = [f"Billed: {whose}, {since} to {until - timedelta(days=1)}."]
        notes += ["AWS may still change it."] if estimated else []
        text = f"{bill_table(expected, by_part(billed))}\n\n{' '.join(notes)}"
        (self.folder / "bill.md").write_text(f"{text}\n", encoding="utf-8")
        return text


@contextmanager
def _load(route: Route) -> Iterator[list[tuple[str, float]]]:
    """Send requests meanwhile; who answered each, or with what status, and within how many milliseconds."""
    stop, found = threading.Event(), list[tuple[str, float]]()

    def send() -> None:
        while not stop.is_set():
            due = time.time() + 1 / WORKER_RPS
            reply = route.ask()
            by = reply["served_by"] if reply["status"] == 200 else f"status {reply['status']}"
            found.append((by, reply["ms"]))
            stop.wait(max(0.0, due - time.time()))

    with ThreadPoolExecutor(WORKERS) as pool:
        sending = [pool.submit(send) for _ in range(WORKERS)]
        try:
            yield found
        finally:
            stop.set()
    for one in sending:
        one.result()


def _ticks(lines: list[bytes]) -> list[Tick]:
    return list(read_journal(lines)[1]) if lines else []


def _is_settled(fleet: FleetView) -> bool:
    calm = all(one.terminates_at is None and one.state is not InstanceState.PENDING for one in fleet)
    return calm and any(one.state is InstanceState.READY for one in fleet)


def _warned(ticks: list[Tick]) -> int:
    """Spot notices so far."""
    return sum(fact.kind == "spot-warned" for tick in ticks for fact in tick.seen.facts)


def _day(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def _fenced(text: str) -> str:
    return f"```yaml\n{text}\n```" if text else ""


@contextmanager
def telling_how_to_end(run: Run) -> Iterator[None]:
    """Whatever ends the run while the service may stand: say how to go on, and how to remove it."""
    try:
        yield
    except BaseException:
        if run.config.is_file() and "destroy" not in run.state.done:
            print("\nthe run has ended early", file=sys.stderr)
            print(f"go on:      python -m scripts.real_account run {run.folder}", file=sys.stderr)
            print(f"remove all: mark destroy --all --yes --config {run.config}", file=sys.stderr)
        raise
