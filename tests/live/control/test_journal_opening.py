"""Lives of a service on one store: other settings, broken lines and older journals stop no controller."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.controller.journal import Tick, read_journal
from mark.controller.replay_check import mismatches
from mark.controller.runner import Controller
from mark.domain.clock import ClockAnchor
from mark.domain.demand import DemandUnit
from mark.domain.fleet.instances import InstanceState
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import Quotas, VcpuQuota
from mark.live.commands import explain_live
from mark.live.control.journal_opening import OpenedJournal, open_journal
from mark.live.control.observe_mode import ShadowCloud
from mark.live.control.status_writer import ModelStatusWriter
from mark.live.control.watches.budget_watch import BudgetWatch
from mark.live.models import LiveModel, make_live_models, service_spec
from mark.live.status.view import LiveView
from mark.report.cost.read import read_cost_report
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.journal import KEEP_SEGMENTS
from mark.store.keys import Keys
from mark.store.published_status import ARCHIVE, BUDGET, RESOURCES, ArchiveStatus, PublishedResources
from mark.store.service import ServiceStore
from tests.controller.state_rules import check_state
from tests.controller.test_runner import World

NOON = 20_000 * 86400.0 + 43_200.0
RPS = 30.0
FIRST: dict[str, Any] = {"model": "inception-v3", "market": "spot", "offerings": {"types": ["c5.large"]}}
CHANGES: dict[str, dict[str, Any]] = {
    "another type": {"offerings": {"types": ["c5.xlarge"]}},
    "no Lambda": {"offerings": {"types": ["c5.large"], "overflow": False}},
    "another policy": {"policy_name": "reactive"},
}


class Plane(World):
    """A steady load; what a minute brought is told once it is over."""

    def next_unit(self) -> DemandUnit | None:
        return DemandUnit(start_at=self.at - 60.0, count=round(60 * RPS), mean_rps=RPS, max_rps=RPS)

    def recent_rps(self) -> tuple[float, ...]:
        return (RPS,) * 12


@dataclass(kw_only=True)
class Life:
    """One life of a service with one model, on a fleet that outlives it."""

    opened: OpenedJournal
    controller: Controller
    plane: Plane
    publisher: ModelStatusWriter
    watch: BudgetWatch

    def run(self, minutes: int) -> None:
        for _ in range(minutes):
            self.plane.at += 60.0
            decision = self.controller.tick()
            check_state(decision.state)
            self.publisher.publish(self.controller, decision)
            self.watch.poll()

    def ready(self) -> set[str]:
        return {one.offering for one in self.controller.fleet if one.state is InstanceState.READY}


@pytest.fixture
def store(redis: EmbeddedRedis) -> ServiceStore:
    link = connect(redis.url)
    link.call("FLUSHALL")
    return ServiceStore(link, "shop")


def begin(store: ServiceStore, at: float, *, quotas: Quotas | None = (), **changes: Any) -> Life:
    """A controller takes the lease and goes on from the store, with settings that may have changed."""
    settings = Settings.model_validate({"service": {"name": "shop", "serve": [FIRST | changes]}})
    (model,) = make_live_models(settings)
    store.put_spec(service_spec(settings, [model]))
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=at, speed=0.0))
    lease = store.leases.acquire(f"controller-{at}", 0.001)
    while lease is None:  # the one before held it for a millisecond
        lease = store.leases.acquire(f"controller-{at}", 0.001)
    opened = open_journal(
        model, settings, store=store, lease=replace(lease, ttl_s=60.0), now=at, read=iter, quotas=lambda: quotas
    )
    plane = Plane(at=at, rate=RPS)
    return Life(
        opened=opened,
        controller=controller_of(model, opened, plane, store),
        plane=plane,
        publisher=ModelStatusWriter(
            model,
            store=store,
            clock=SimpleNamespace(now=plane.now, anchor=ClockAnchor()),  # type: ignore[arg-type]
            began_at=opened.began_at,
            trained=lambda: None,
        ),
        watch=BudgetWatch(
            settings.budget,
            [model.served],
            footprint=None,
            store=store,
            clock=plane,  # type: ignore[arg-type]
            outside=lambda: None,
            wake=lambda: None,
        ),
    )


def controller_of(model: LiveModel, opened: OpenedJournal, plane: Plane, store: ServiceStore) -> Controller:
    return Controller(
        policy=replace(model.bundle.controller, quotas=opened.header.policy.quotas),
        clock=plane,
        cloud=ShadowCloud(model.served, store=store, clock=plane),
        data_plane=plane,
        forecaster=plane,
        fallback=plane,
        journal=opened.journal,
        history=opened.history,
        recovered=opened.recovered,
    )


def deviating(store: ServiceStore, model: str = "inception-v3") -> list[object]:
    """Differences between any kept segment and its replay."""
    numbers = store.journal_segments(model)
    return [one for number in numbers for one in mismatches(*read_journal(store.journal_lines(model, number)))]


def ticks(store: ServiceStore, segment: int) -> list[Tick]:
    return list(read_journal(store.journal_lines("inception-v3", segment))[1])


def spent(store: ServiceStore) -> float:
    told = BUDGET.read(store)
    assert told is not None
    return told.month_usd


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_store_with_history_serves_other_settings_and_the_old_ones_again(
    store: ServiceStore, changes: dict[str, Any]
) -> None:
    first = begin(store, NOON)
    first.run(10)
    assert first.ready() == {"c5.large:spot"}
    before = spent(store)

    second = begin(store, NOON + 3600.0, **changes)
    second.run(10)
    offered = {offering.name for offering in second.controller.policy.known_offerings}
    assert second.ready() <= offered
    assert second.ready()
    assert spent(store) > before
    assert second.opened.began_at == first.plane.at - 9 * 60.0
    assert second.opened.history.end_at == NOON + 10 * 60.0
    assert len(store.journal_segments("inception-v3")) == 2
    assert deviating(store) == []
    [told] = LiveView(store, "shop").status().models
    assert told.notes == ()
    assert read_cost_report(store, period_s=86400.0, wall_at=0.0).notes is not None

    third = begin(store, NOON + 7200.0)
    third.run(10)
    assert third.ready() == {"c5.large:spot"}
    assert deviating(store) == []
    tokens = [order.token for n in (1, 2, 3) for tick in ticks(store, n) for order in tick.orders]
    assert len(tokens) == len(set(tokens))  # one run: none is used twice


def test_quotas_that_cannot_be_read_stay_as_they_were_known(store: ServiceStore) -> None:
    known = (VcpuQuota(family="standard", market=Market.SPOT, vcpus=64.0),)
    begin(store, NOON, quotas=known).run(1)
    changed = begin(store, NOON + 600.0, quotas=None, objective={"latency_ms": 700})
    assert changed.opened.header.policy.quotas == known


def test_changed_settings_drop_no_segment_that_the_bucket_has_not(store: ServiceStore) -> None:
    RESOURCES.write(store, PublishedResources(bucket="away"))
    for number in range(2 * KEEP_SEGMENTS):
        begin(store, NOON + 600.0 * number, objective={"latency_ms": 600 + number}).run(1)
    assert list(store.journal_segments("inception-v3")) == list(range(1, 2 * KEEP_SEGMENTS + 1))

    ARCHIVE.write(store, ArchiveStatus(copied={"inception-v3": 2 * KEEP_SEGMENTS - 1}))
    begin(store, NOON + 7200.0).run(1)
    assert list(store.journal_segments("inception-v3")) == list(range(KEEP_SEGMENTS + 2, 2 * KEEP_SEGMENTS + 2))


def test_what_was_on_its_way_when_its_type_was_taken_away_is_not_awaited(store: ServiceStore) -> None:
    """Each life ends before its launch is seen, and its instances with it."""
    changes: dict[str, Any]
    for number, changes in enumerate(({}, {"offerings": {"types": ["c5.xlarge"]}}, {})):
        life = begin(store, NOON + 300.0 * number, **changes)
        life.run(1)
        kind = "c5.xlarge:spot" if changes else "c5.large:spot"
        awaited = [item for item in life.controller.state.requested if item.offering.endswith(":spot")]
        assert [item.offering for item in awaited] == [kind]
        orders = [order for order in ticks(store, number + 1)[0].orders if isinstance(order, Launch)]
        assert kind in {order.offering for order in orders}
        store.put_status("shadow:inception-v3", {"fleet": []})


def test_the_same_settings_go_on_in_the_same_segment(store: ServiceStore) -> None:
    begin(store, NOON).run(10)
    again = begin(store, NOON + 3600.0)
    assert again.controller.state.tick == 10
    again.run(5)
    assert list(store.journal_segments("inception-v3")) == [1]
    assert deviating(store) == []


def test_a_model_replaced_by_another_begins_a_journal_of_its_own(store: ServiceStore) -> None:
    begin(store, NOON).run(10)
    other = begin(store, NOON + 3600.0, model="nasnet", offerings={"types": ["c5.xlarge"]})
    other.run(10)
    assert list(store.journal_segments(other.opened.header.model)) == [1]
    assert begin(store, NOON + 7200.0).controller.state.tick == 10  # what was kept of the first one is there


def with_header(redis: EmbeddedRedis, head: bytes, lines: list[bytes]) -> None:
    """Put another header before the lines of the first segment."""
    link, key = connect(redis.url), Keys("shop").of("journal", "inception-v3", 1)
    link.call("DEL", key)
    for line in (head, *lines[1:]):
        link.call("XADD", key, "*", "line", line)


BROKEN = {
    "no JSON": b'{"broken": tru',
    "no tick": b'{"seen": {}}',
    "another version's": b'{"seen": {"now": "soon"}, "changed": [], "gone": [], "orders": [], "notes": []}',
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
def test_a_broken_line_begins_a_journal_anew_with_the_fleet_that_is_there(
    store: ServiceStore, redis: EmbeddedRedis, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    first = begin(store, NOON)
    first.run(20)
    there = first.controller.fleet
    connect(redis.url).call("XADD", Keys("shop").of("journal", "inception-v3", 1), "*", "line", line)

    second = begin(store, NOON + 1260.0)
    [left_out] = [
        record.__dict__
        for record in caplog.records
        if record.message == "an unreadable part of the journal is left out"
    ]
    assert (left_out["segment"], "line 22 of the journal" in left_out["why"]) == (1, True)
    second.run(20)
    assert {one.id for one in second.controller.fleet} >= {one.id for one in there}
    assert not [order for tick in ticks(store, 2) for order in tick.orders if isinstance(order, Launch)]
    assert second.opened.began_at == NOON + 60.0
    assert second.opened.history.end_at == NOON + 1200.0
    assert second.opened.header.run != first.opened.header.run
    assert list(mismatches(*read_journal(store.journal_lines("inception-v3")))) == []

    third = begin(store, NOON + 7200.0)
    assert third.controller.state.tick == 20
    report = read_cost_report(store, period_s=86400.0, wall_at=0.0)
    assert any("line 22 of segment 1 cannot be read" in note for note in report.notes)


@pytest.mark.parametrize("head", [b"{}", b'{"version": 99}', None])
def test_a_header_that_cannot_be_read_begins_a_journal_anew(
    store: ServiceStore, redis: EmbeddedRedis, head: bytes | None
) -> None:
    begin(store, NOON).run(20)
    lines = list(store.journal_lines("inception-v3", 1))
    if head is None:
        head = json.dumps(json.loads(lines[0]) | {"version": 99}).encode()
    with_header(redis, head, lines)

    second = begin(store, NOON + 1260.0)
    second.run(5)
    assert second.ready() == {"c5.large:spot"}
    assert second.opened.began_at == NOON  # as status told it
    assert list(store.journal_segments("inception-v3")) == [1, 2]
    report = read_cost_report(store, period_s=86400.0, wall_at=0.0)
    assert any("segment 1 is left out" in note for note in report.notes)


def test_explain_says_that_lines_are_missing(
    store: ServiceStore, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(store, NOON).run(10)
    running = SimpleNamespace(store=redis.url, models=[{"name": "inception-v3"}], step="")
    monkeypatch.setattr(explain_live, "find_known", lambda _: running)
    monkeypatch.setattr(explain_live, "chosen", lambda *_: {"name": "inception-v3"})

    def explained(*, as_json: bool = False) -> str:
        explain_live.explain_live("shop", model=None, minute=None, as_json=as_json)
        said = capsys.readouterr()
        return " ".join((said.out + said.err).split())

    assert "missing:" not in explained()
    connect(redis.url).call("XADD", Keys("shop").of("journal", "inception-v3", 1), "*", "line", b"{")
    said = explained()
    assert "1 line is missing: line 12 of the journal cannot be read" in said
    assert "gives the same plans and orders at every tick" in said
    assert json.loads(explained(as_json=True))["missing"][0]["line"] == 12

    begin(store, NOON + 660.0).run(3)
    assert "the journal begins anew with segment 2: segment 1 has lines that cannot be read" in explained()


def test_a_journal_kept_as_a_file_is_explained_with_its_gaps(
    store: ServiceStore, tmp_path: Path, mark: Any
) -> None:
    begin(store, NOON).run(10)
    lines = [bytes(line) for line in store.journal_lines("inception-v3", 1)]
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "journal.jsonl").write_bytes(b"\n".join([*lines[:4], lines[4][:40], *lines[5:]]) + b"\n")
    told = mark("explain", "kept")
    assert told.status == 0, told.err
    assert "1 line is missing: line 5 of the journal cannot be read" in " ".join(told.out.split())
