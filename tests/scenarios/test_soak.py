"""Days of a service, each of its ticks: what it keeps stays within its limits, and its bill is AWS's.

Beside the load of each day: spot instances are taken back, a controller follows another each day and a half, the
system's clock is set by an hour, prices move, deploys renew what instances run. Segments of the journal are so
short that a day fills some, as it does in a week. A day has 1,440 ticks and takes some 35 s of a core:
`MARK_SOAK_DAYS=30` for a month. Memory and files must be flat from day 2 on, in a month from day 10.
"""

from __future__ import annotations

import gc
import logging
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mark.live.background import housekeeping
from mark.live.clock import ServiceClock
from mark.live.control import driver
from mark.live.control.driver import SIZE_EACH_TICKS
from mark.report.cost.read import read_cost_report
from mark.steady_time import WALL
from mark.store.connect import Link, connect
from mark.store.embedded import EmbeddedRedis
from mark.store.journal import KEEP_SEGMENTS
from tests.scenarios.service_world import MODEL, START_AT, ServiceWorld, service_world

DAYS = int(os.environ.get("MARK_SOAK_DAYS", "3"))
MEASURED = (1, 2, 10, 20)
DAY_S, HOUR_S = 86400.0, 3600.0
LIFE_S = 1.5 * DAY_S
DEPLOY_EACH_S = 7 * DAY_S
STRESS = 20_000.0
"""Spot instances are taken back so many times as often as on average: some 50 new ones a day."""
SHORT_BYTES = 2**20
"""Of a segment of the journal, in the place of the driver's 16 MiB."""
FOLDED = 50
"""Transitions at which a ledger is folded, in the place of 500: in three days, too."""
BESIDE_S = 600.0
CENT = 0.01
FLAT = 1.05
"""Most of its memory of that day that it may have later."""
HOURLY_BYTES = 1500
"""Of marks, load and folded ledger, which are kept for 40 days (docs/live.md: 1.6 MB)."""


@dataclass(frozen=True)
class Kept:
    """What there is at the end of a day."""

    day: int
    rss_mib: float
    files: int
    keys: int
    journal_bytes: int
    other_bytes: int
    log_bytes: int
    instances: int
    largest: tuple[tuple[str, int], ...]


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
    link: Link, log: CountedLog, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Kept] = []
    monkeypatch.setattr(driver, "SEGMENT_BYTES", SHORT_BYTES)
    monkeypatch.setattr(driver, "WAITING_BYTES", 4 * SHORT_BYTES)
    monkeypatch.setattr(housekeeping, "LEAST", FOLDED)
    with service_world(link, daily_rate, seed=30, stress=STRESS) as world:
        world.beside_s = BESIDE_S
        world.dies_at = [START_AT + LIFE_S * number for number in range(1, math.ceil(DAYS * DAY_S / LIFE_S))]
        for day in range(DAYS):
            begin_day(world, day)
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
    journal = sum(size for name, size in sizes.items() if ":journal:" in name)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Kept(
        day=day,
        rss_mib=round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        files=len(os.listdir("/proc/self/fd")),
        keys=len(sizes),
        journal_bytes=journal,
        other_bytes=sum(sizes.values()) - journal,
        log_bytes=log.bytes,
        instances=len(world.account.ever),
        largest=tuple(sorted(sizes.items(), key=lambda item: -item[1])[:6]),
    )


def check_flat(kept: list[Kept]) -> None:
    by_day = {one.day: one for one in kept}
    last = kept[-1]
    line_bytes = last.journal_bytes / max(1, last.day * 1440)
    assert last.journal_bytes < KEEP_SEGMENTS * (SHORT_BYTES * 1.2 + SIZE_EACH_TICKS * line_bytes)
    assert last.other_bytes < 2**20 + HOURLY_BYTES * 24 * last.day
    before = by_day.get(10) or by_day.get(2) or last
    assert last.keys <= before.keys + KEEP_SEGMENTS
    assert last.files <= before.files
    assert last.rss_mib <= FLAT * before.rss_mib


def check_requests(world: ServiceWorld) -> None:
    traffic, sent = world.store.traffic(MODEL), world.sent
    assert (world.store.arrived(MODEL), traffic.instance) == (sent["arrived"], sent["instance"])


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
