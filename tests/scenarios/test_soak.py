"""Days of a service, each of its ticks: what it keeps stays within its limits, and its bill is AWS's.

Beside the load of each day: spot instances are taken back, a controller follows another each day and a half, the
system's clock is set by an hour, prices move, deploys renew what instances run, the forecaster is trained anew
each day, in a child process, and secrets are rotated. Certificates are not in it: processes make those of their
ports when they start, and here none starts (`tests/serving/test_peers.py`). Segments of the journal are so
short that a day fills some, as it does in a week. A day has 1,440 ticks and takes some 45 s of a core:
`MARK_SOAK_DAYS=30` for a month. Memory and files must be flat from day 2 on, in a month from day 10.
"""

from __future__ import annotations

import gc
import logging
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mark.aws.client_tokens import READ_EACH_S, agents_password, valid_passwords, valid_tokens
from mark.aws.functions.probe import clients_token
from mark.aws.names import name_of
from mark.deployment import rotate as rotating
from mark.domain.fleet.orders import ForecastFailed
from mark.emulator import moto_app
from mark.live.background import housekeeping
from mark.live.clock import ServiceClock
from mark.live.control.drivers import driver
from mark.live.control.drivers.driver import SIZE_EACH_TICKS
from mark.live.control.leadership.leader_election import make_forecasters
from mark.live.forecasting import retraining
from mark.live.forecasting.forecaster_training import Training
from mark.live.forecasting.retraining import Retraining
from mark.live.local.running import Running
from mark.report.cost.read import read_cost_report
from mark.steady_time import WALL
from mark.store.connect import Link, connect
from mark.store.embedded import EmbeddedRedis
from mark.store.journal import KEEP_SEGMENTS
from tests.scenarios.service_world import (
    MODEL,
    START_AT,
    ServiceWorld,
    live_model,
    service_world,
    settings,
)

DAYS = int(os.environ.get("MARK_SOAK_DAYS", "3"))
MEASURED = (1, 2, 10, 20)
DAY_S, HOUR_S = 86400.0, 3600.0
LIFE_S = 1.5 * DAY_S
DEPLOY_EACH_S = 7 * DAY_S
STRESS = 20_000.0
"""Spot instances are taken back so many times as often as on average: some 50 new ones a day."""
ROTATIONS_ON = (1, 11, 21)
FORECASTER = "holt-winters"
"""It learns from the history, forecasts in 4 ms, and trains in less than a second."""
LIMIT_S = 120.0
"""Real seconds in which a training must be done."""
SHORT_BYTES = 2**20
"""Of a segment of the journal, in the place of the driver's 16 MiB."""
FOLDED = 50
"""Transitions at which a ledger is folded, in the place of 500: in three days, too."""
BESIDE_S = 600.0
CENT = 0.01
FLAT = 1.05
"""Most of its memory of that day that it may have later."""
LEARNED_BY, LEARNS_MIB = 10, 12
"""Until that day a training takes more memory each day: its history grows (334 MiB for a day, 433 for a week)."""
HOURLY_BYTES = 1500
"""Of marks, load and folded ledger, which are kept for 40 days (docs/live.md: 1.6 MB)."""


TRAINED_BYTES = 2**18
"""Of what the forecaster was trained on: two weeks of minutes."""
SECRETS = ("token", "store-agent")


@dataclass(frozen=True)
class Kept:
    """What there is at the end of a day."""

    day: int
    #: Without what lies in the emulated bucket.
    rss_mib: float
    bucket_mib: float
    files: int
    keys: int
    lines: int
    journal_bytes: int
    other_bytes: int
    log_bytes: int
    instances: int
    largest: tuple[tuple[str, int], ...]


class Waited(Training):
    """A training that is over at the instant at which it began: virtual time does not wait for its process."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        assert self.wait(LIMIT_S)


class Trained:
    """Forecasters as a controller makes them: one that is trained again, and who answers when it fails."""

    def __init__(self, world: ServiceWorld, cache: Path) -> None:
        self.world, model = world, live_model()
        bundle, setup = replace(model.bundle, forecaster=FORECASTER), replace(model.setup, cache_dir=cache)
        self.model = replace(model, bundle=bundle, setup=setup)
        self.last: Retraining | None = None

    def __call__(self) -> Any:
        if self.last is not None:
            self.last._current.close()  # its thread ends with its process
        running = Running(name="shop", pid=0)
        pair = make_forecasters([self.model], settings(), running, self.world.store).by_model[MODEL]
        self.last = pair[0]
        return pair


class Secrets:
    """The service's secrets: who accepts them reads them as often as in the service, who sends them each time."""

    def __init__(self, world: ServiceWorld) -> None:
        moto_app._follow_moved_stages()
        self.world, self.aws = world, world.aws()
        self.known = {name: set[str]() for name in SECRETS}
        for name in SECRETS:
            self.aws.secrets.create_secret(Name=name_of("shop", name), SecretString="first")
        self.accepted: dict[str, tuple[str, ...]] = {}
        self.due_at = 0.0

    def rotate(self) -> None:
        """As `mark rotate` does, which waits while the service goes on."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rotating, "service_aws", lambda *_: self.world.aws())
            rotating.rotate(
                settings(),
                (),
                keep_old_s=HOUR_S,
                plan_only=False,
                sleep=self.sleep,
                time_of=lambda _: self.world.wall.at,
            )

    def sleep(self, wait_s: float) -> None:
        until = self.world.wall.at + wait_s
        while self.world.wall.at < until:
            self.world.run(min(until, self.world.wall.at + 60.0), 60.0)
            self.send()

    def send(self) -> None:
        """Clients and agents send what they read now; it is accepted."""
        if self.world.wall.at >= self.due_at:
            self.due_at = self.world.wall.at + READ_EACH_S
            self.accepted = {
                "token": valid_tokens(self.aws, "shop"),
                "store-agent": valid_passwords(self.aws, "shop"),
            }
        now = {"token": clients_token(self.aws, "shop"), "store-agent": agents_password(self.aws, "shop")}
        for name, sent in now.items():
            assert sent in self.accepted[name], f"{name} is refused"
            self.known[name].add(sent)


class CountedLog(logging.Handler):
    """Bytes that a process's log would have."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.bytes = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.bytes += len(record.getMessage()) + 120


@pytest.fixture
def link(redis: EmbeddedRedis) -> Iterator[Link]:
    made = connect(redis.url)
    yield made
    made.close()


@pytest.fixture
def log() -> Iterator[CountedLog]:
    counted, ours = CountedLog(), logging.getLogger("mark")
    before = ours.level
    ours.addHandler(counted)
    ours.setLevel(logging.INFO)
    yield counted
    ours.removeHandler(counted)
    ours.setLevel(before)


@pytest.mark.slow
def test_days_of_a_service(
    link: Link,
    log: CountedLog,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    kept: list[Kept] = []
    monkeypatch.setattr(retraining, "Training", Waited)
    monkeypatch.setattr(driver, "SEGMENT_BYTES", SHORT_BYTES)
    monkeypatch.setattr(driver, "WAITING_BYTES", 4 * SHORT_BYTES)
    monkeypatch.setattr(housekeeping, "LEAST", FOLDED)
    with service_world(link, daily_rate, seed=30, stress=STRESS) as world:
        world.beside_s = BESIDE_S
        world.make_forecasters = trained = Trained(world, tmp_path)
        secrets = Secrets(world)
        world.dies_at = [START_AT + LIFE_S * number for number in range(1, math.ceil(DAYS * DAY_S / LIFE_S))]
        for day in range(DAYS):
            begin_day(world, day)
            if day in ROTATIONS_ON:
                secrets.rotate()
            world.run(START_AT + (day + 1) * DAY_S, 60.0)
            clock = ServiceClock(world.store).now()
            assert clock == pytest.approx(world.wall.at), "the service's clock follows the system's"
            if day + 1 in MEASURED or day + 1 == DAYS:
                kept.append(measured(world, link, log, day + 1))
                with capsys.disabled():
                    print(f"\n{kept[-1]}")  # noqa: T201
        with capsys.disabled():
            print(check_bill(world), len(world.said))  # noqa: T201
        check_requests(world)
        check_renewed(world, trained, secrets)
    check_flat(kept)


def daily_rate(at: float) -> float:
    """Requests/s: a day's wave."""
    return 8.0 + 6.0 * math.sin(2.0 * math.pi * (at - START_AT) / DAY_S)


def begin_day(world: ServiceWorld, day: int) -> None:
    """What people and machines do each day: the system's clock is set, and a deploy each week."""
    jump_s = (0.0, HOUR_S, -HOUR_S)[day % 3]
    WALL._wall = lambda: world.wall.at + jump_s
    if day and day * DAY_S % DEPLOY_EACH_S == 0.0:
        world.put_resources(str(day))
        world.dies_at.insert(0, world.wall.at)


def measured(world: ServiceWorld, link: Link, log: CountedLog, day: int) -> Kept:
    gc.collect()
    sizes = {key.decode(): int(link.call("MEMORY", "USAGE", key, "SAMPLES", 0)) for key in link.call("KEYS", "*")}
    segments = [name for name in sizes if ":journal:inception-v3:" in name]
    journal = sum(sizes[name] for name in segments)
    bucket = sum(map(len, world.account.objects.values()))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Kept(
        day=day,
        rss_mib=round((pages * os.sysconf("SC_PAGE_SIZE") - bucket) / 2**20, 1),
        bucket_mib=round(bucket / 2**20, 1),
        files=len(os.listdir("/proc/self/fd")),
        keys=len(sizes),
        lines=sum(int(link.call("XLEN", name)) for name in segments),
        journal_bytes=journal,
        other_bytes=sum(sizes.values()) - journal,
        log_bytes=log.bytes,
        instances=len(world.account.ever),
        largest=tuple(sorted(sizes.items(), key=lambda item: -item[1])[:6]),
    )


def check_flat(kept: list[Kept]) -> None:
    by_day = {one.day: one for one in kept}
    last = kept[-1]
    line_bytes = last.journal_bytes / last.lines
    assert last.journal_bytes < KEEP_SEGMENTS * (SHORT_BYTES * 1.3 + SIZE_EACH_TICKS * line_bytes)
    assert last.other_bytes < 2**20 + TRAINED_BYTES + HOURLY_BYTES * 24 * last.day
    before = by_day.get(LEARNED_BY) or by_day.get(2) or last
    assert last.keys <= before.keys + KEEP_SEGMENTS
    assert last.files <= before.files
    learns_mib = LEARNS_MIB * (min(LEARNED_BY, last.day) - before.day)
    assert last.rss_mib <= FLAT * before.rss_mib + learns_mib


def check_requests(world: ServiceWorld) -> None:
    traffic, sent = world.store.traffic(MODEL), world.sent
    assert (world.store.arrived(MODEL), traffic.instance) == (sent["arrived"], sent["instance"])


def check_renewed(world: ServiceWorld, trained: Trained, secrets: Secrets) -> None:
    """Each day trained the forecaster, which answers; each rotation made a secret, and none was refused."""
    told = trained.last and trained.last.told()
    assert told
    assert told.failed is None, told.failed
    assert told.why in ("schedule", "drift"), told
    assert world.wall.at - told.at < 1.1 * DAY_S
    degraded = [
        tick for tick in world.journal() if any(isinstance(one, ForecastFailed) for one in tick.seen.facts)
    ]
    assert not degraded, degraded[0].seen.facts
    rotations = sum(day < DAYS for day in ROTATIONS_ON)
    assert {name: len(known) for name, known in secrets.known.items()} == dict.fromkeys(SECRETS, 1 + rotations)


def check_bill(world: ServiceWorld) -> dict[str, tuple[float, float]]:
    """The report is the account's meter, time to the second and rent to the cent; what each says, by offering.

    At the price of each start, and with spot instances that EC2 took within their first hour, as MArk bills them.
    """
    now, account = world.wall.at, world.account
    report = read_cost_report(world.store, period_s=DAYS * DAY_S, wall_at=now)
    said_h: defaultdict[str, float] = defaultdict(float)
    said_usd: defaultdict[str, float] = defaultdict(float)
    metered_s: Counter[str] = Counter()
    metered_usd: defaultdict[str, float] = defaultdict(float)
    for item in report.lines:
        line = item.line
        if line.component in ("instances", "standby") and line.unit == "instance-hours":
            said_h[line.item] += line.quantity
            said_usd[line.item] += line.usd
    for one in account.meter.stretches:
        billed_s = one.billed_s(now)
        metered_s[one.machine.offering] += billed_s
        at_start = account.machines.mean_usd_per_hour(one.machine, one.since, one.since)
        metered_usd[one.machine.offering] += billed_s / HOUR_S * at_start
    assert {name: round(HOUR_S * hours) for name, hours in said_h.items()} == dict(metered_s)
    for name, usd in metered_usd.items():
        assert said_usd[name] == pytest.approx(usd, abs=CENT), name
    return {name: (said_usd[name], metered_usd[name]) for name in metered_usd}
