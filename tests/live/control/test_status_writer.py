"""What a controller tells of a model: only what came, and what the controller before it had told of."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mark.accounting.hourly_totals import load_marks, marks_key
from mark.config.settings import Settings
from mark.controller.state import Decision, Requested, State
from mark.domain.clock import ClockAnchor
from mark.domain.demand import Demand
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Launch
from mark.domain.load.announced_events import AnnouncedEvent
from mark.domain.load.size_window import SizeWindow
from mark.domain.load.traffic import GatewayReport, ModelTraffic, Warmed
from mark.domain.models.variants import ServedAccuracy
from mark.domain.models.versions import ModelVersions, Rollout, RolloutPhase
from mark.domain.plans.capacity_schedule import CapacityWindow
from mark.live.clock import ServiceClock
from mark.live.control.data_plane import LiveDataPlane
from mark.live.control.lambda_warmup import Warmer
from mark.live.control.status_writer import ModelStatusWriter, announced_notes, bounds_notes, pool_status
from mark.live.models import make_live_models
from mark.live.status.view import LiveView
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import MODEL, AssumedLoad, PublishedModel
from mark.store.service import ServiceStore
from tests.lambda_handlers.stored import store_service

BEGAN = 500_000 * 3600.0 + 600.0
ASSUMED_RPS, CAME_RPS = 40.0, 3.0


class Store:
    """Documents only."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}

    def status(self, name: str) -> dict[str, Any] | None:
        return self.documents.get(name)

    def put_status(self, name: str, document: dict[str, Any]) -> None:
        self.documents[name] = document

    def traffic(self, model: str) -> ModelTraffic:
        return ModelTraffic(model=model)


def published(store: Any, first: int, last: int, *, lambda_warm: int = 19) -> PublishedModel:
    """What was published after one controller's ticks at the ends of these minutes; one instance is ready."""
    serve = {"model": "inception-v3", "expected_rps": ASSUMED_RPS}
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": [serve]}}))
    offering = model.served.offerings[0].name
    clock: Any = SimpleNamespace(anchor=SimpleNamespace(speed_at=lambda _wall: 1.0))
    made = ModelStatusWriter(model, store=store, clock=clock, began_at=BEGAN, trained=lambda: None)
    for minute in range(first, last + 1):
        rates = (ASSUMED_RPS,) * 60 + (CAME_RPS,) * minute
        clock.now = lambda at=BEGAN + 60.0 * minute: at
        controller: Any = SimpleNamespace(
            history=Demand(end_at=clock.now(), mean_rps=rates, max_rps=rates),
            fleet=FleetView(instances=(Instance(
                id="i-1", offering=offering, role=Role.SERVING, state=InstanceState.READY, launched_at=BEGAN,
            ),)),
            forecast=None, forecast_failed=None, events=(),
            policy=model.bundle.controller, lambda_warm=lambda_warm,
        )  # fmt: skip
        launch = Launch(token=f"t{minute}", reason=f"minute {minute}", offering=offering, count=1)
        made.publish(controller, Decision(state=State(), orders=(launch,)))
    told = MODEL.read(store, "inception-v3")
    assert told is not None
    return told


def test_load_that_was_assumed_is_no_load_that_came() -> None:
    store = Store()
    at_once = published(store, 0, 0)
    assert at_once.series is not None
    assert at_once.series.mean_rps == at_once.series.max_rps == ()
    assert at_once.assumed == AssumedLoad(rps=ASSUMED_RPS, until=BEGAN)
    assert at_once.requests == 0

    later = published(store, 1, 2)
    assert later.series is not None
    assert later.series.start_at == BEGAN
    assert later.series.mean_rps == (CAME_RPS,) * 2
    assert later.requests == 2 * 60 * CAME_RPS


def test_a_pool_is_told_beside_its_budget_with_the_sizes_that_it_is_chosen_for() -> None:
    pool = {"model": "rm2", "policy_name": "kairos", "offerings": {"types": ["c5n.2xlarge", "r5n.large"]}}
    tree = {
        "service": {"serve": [pool | {"objective": {"latency_ms": 370}}]},
        "policy": {"budget_usd_per_hour": 2.5, "size_window": 100},
        "trace": {"sizes": "constant:200"},
    }
    (model,) = make_live_models(Settings.model_validate(tree))
    policy = model.bundle.controller
    cheap = policy.offerings[-1]
    there = FleetView(
        instances=(Instance(id="i-1", offering=cheap.name, state=InstanceState.DRAINING, launched_at=BEGAN),)
    )
    ordered = (Requested(token="t1-1", offering=cheap.name, role=Role.SERVING, total=2, at=BEGAN),)
    told = pool_status(policy, there, State(requested=ordered))
    assert told is not None
    assert told.budget_usd_per_hour == 2.5
    assert told.usd_per_hour == pytest.approx(3 * cheap.usd_per_hour)
    assert (told.sizes, told.measured, told.mean_items) == ("constant:200", 0, 200)
    window = SizeWindow(newer=((4, 90), (100, 10)))
    told = pool_status(policy, there, State(sizes=window))
    assert told is not None
    assert (told.sizes, told.measured, told.target_items, told.largest_items) == ("measured", 100, 100, 100)
    assert told.mean_items == pytest.approx(13.6)
    unknown = FleetView(instances=(Instance(id="i-2", offering="gone", state=InstanceState.READY),))
    told = pool_status(policy, unknown, State())
    assert told is not None
    assert told.usd_per_hour is None
    assert pool_status(replace(policy, pool=None), there, State()) is None


def test_the_next_controller_still_tells_of_the_last_hour() -> None:
    store = Store()
    before = published(store, 0, 5)
    after = published(store, 6, 8)

    assert before.series is not None
    assert after.series is not None
    assert None not in before.series.capacity_rps
    assert after.series.capacity_rps == (before.series.capacity_rps[0],) * 8
    assert [row.reason for row in after.decisions] == [f"minute {n}" for n in range(8, -1, -1)]


def test_status_knows_what_is_warm_and_how_a_rollout_stands_between_two_ticks(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis")
    try:
        store = ServiceStore(connect(server.url), "shop")
        store_service(server.url, anchor=ClockAnchor())

        def warm() -> int:
            [model] = LiveView(store, "shop").status().models
            return model.lambda_.warm

        store.put_status("model:m", {})
        assert warm() == 0  # no tick has told of anything
        MODEL.write(store, PublishedModel(lambda_warm=published(Store(), 0, 0).lambda_warm), "m")
        assert warm() == 19  # no gateway has said anything for a while
        calls = ModelTraffic(model="m", lambda_warm=25)
        store.report(GatewayReport(gateway="gateway-1", sequence=1, models=(calls,)))
        assert warm() == 25

        lease = store.leases.acquire("controller-0", 60.0)
        assert lease is not None
        rollout = Rollout(id="r", before="old", candidate="new", began_at=BEGAN, since=BEGAN)
        for phase in (RolloutPhase.DWELLING, RolloutPhase.ABORTED):  # no tick comes in between
            now = replace(rollout, phase=phase, reason="as it is")
            store.put_versions(ModelVersions(model="m", stable="old", rollout=now), lease)
            [model] = LiveView(store, "shop").status().models
            assert f"version new in place of old, {phase}: as it is" in model.notes
    finally:
        server.stop()


def test_notes_name_the_events_to_come_and_the_next_bounds() -> None:
    def event(hour: int) -> AnnouncedEvent:
        return AnnouncedEvent(name=f"e{hour}", at=3600.0 * hour, until=3600.0 * hour + 1800.0, factor=3.0)

    window = CapacityWindow(start_s=8 * 3600, end_s=20 * 3600, min_rps=50.0, max_rps=400.0)
    controller: Any = SimpleNamespace(
        events=(event(3), event(0), event(1)),
        forecast=SimpleNamespace(events=(event(0), event(1))),
        policy=SimpleNamespace(capacity=(window,)),
    )
    assert announced_notes(controller, 1800.0) == (  # the first is over
        "announced: e1, 3x from 1970-01-01 01:00 to 1970-01-01 01:30 UTC; plans count it",
        "announced: e3, 3x from 1970-01-01 03:00 to 1970-01-01 03:30 UTC",
    )
    assert bounds_notes(controller, 0.0) == (
        "capacity: at least 50 and at most 400 requests/s from 1970-01-01 08:00 UTC on",
    )
    assert bounds_notes(controller, 9 * 3600.0) == ("capacity: no bounds from 1970-01-01 20:00 UTC on",)
    controller.events = tuple(map(event, range(1, 9)))
    controller.policy.capacity = ()
    assert announced_notes(controller, 0.0)[-1] == "announced: 4 more events; `mark event list` has all"
    assert bounds_notes(controller, 0.0) == ()


class Function:
    """A client of Lambda whose function is always there."""

    def invoke(self, **_: object) -> dict[str, Any]:
        return {"Payload": io.BytesIO(), "LogResult": ""}


def test_units_of_load_carry_the_accuracy_of_what_was_answered_since_the_unit_before(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        clock: Any = SimpleNamespace(now=lambda: BEGAN + 240.0)

        def answered(sequence: int, known: int, accuracy_sum: float) -> None:
            counts = ModelTraffic(model="m", instance=100, accuracy_known=known, accuracy_sum=accuracy_sum)
            store.report(GatewayReport(gateway="g", sequence=sequence, models=(counts,)))

        answered(1, 50, 40.0)
        plane = LiveDataPlane(store, "m", clock=clock, next_unit_at=BEGAN, monitor=None, target=0.98)
        answered(2, 40, 30.0)
        found = []
        for sequence in (3, 4, 5):
            unit = plane.next_unit()
            assert unit is not None
            found.append(unit.accuracy)
            answered(sequence, *((10, 8.0) if sequence == 3 else (0, 0.0)))
        assert found == [ServedAccuracy(40, 0.75), ServedAccuracy(10, 0.8), None]


def test_a_tick_after_a_warm_up_with_no_traffic_is_told(tmp_path: Path) -> None:
    """Gateways are silent, so what is believed warm is the controller's own pings alone."""
    serve = {"model": "inception-v3", "expected_rps": ASSUMED_RPS}
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": [serve]}}))
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        store_service(server.url, anchor=ClockAnchor())
        lease = store.leases.acquire("controller-0", 60.0)
        assert lease is not None
        clock = ServiceClock(store)
        aws: Any = SimpleNamespace(invoking=lambda **_: Function())
        warmer = Warmer(model.served, aws=aws, store=store, clock=clock, lease=lease, gateways=2)
        plane = LiveDataPlane(
            store, model.name, clock=clock, next_unit_at=BEGAN, monitor=None, target=0.98, warmed=warmer.believed
        )
        assert warmer.warm(7).answered == 7
        traffic = store.traffic(model.name)  # pings are billed, and are no requests that started cold
        assert (traffic.billed, traffic.invocations, traffic.cold) == (7.0, 0, 0)
        assert type(warmer.believed()) is int
        assert type(plane.lambda_warm()) is int
        assert published(store, 0, 1, lambda_warm=plane.lambda_warm()).lambda_warm == 7
        assert load_marks(store.status(marks_key(model.name)))
        now = clock.now()
        store.put_warmed(Warmed(model=model.name, at=now, share=0, anew_at=now))  # the account began anew
        assert warmer.believed() == 0
        assert warmer.warm(3).answered == 3
        told = store.warmed(model.name)
        assert told is not None
        assert (told.share, told.anew_at, warmer.believed()) == (2, now, 3)


def test_pings_are_billed_to_the_version_that_they_warm(tmp_path: Path) -> None:
    serve = {"model": "inception-v3", "expected_rps": ASSUMED_RPS}
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": [serve]}}))
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        store_service(server.url, anchor=ClockAnchor())
        lease = store.leases.acquire("controller-0", 60.0)
        assert lease is not None
        rollout = Rollout(id="r", before="old", candidate="new", weight=0.25, began_at=BEGAN, since=BEGAN)
        store.put_versions(ModelVersions(model=model.name, stable="old", rollout=rollout), lease)
        aws: Any = SimpleNamespace(invoking=lambda **_: Function())
        served = replace(model.served, function_versions=True)
        warmer = Warmer(served, aws=aws, store=store, clock=ServiceClock(store), lease=lease, gateways=2)
        warmer.warm(8)
        traffic = store.traffic(model.name)
        assert {one.version: one.lambda_calls for one in traffic.versions} == {"old": 8, "new": 2}
        assert traffic.billed == 10.0
        assert sum(one.lambda_gib_us for one in traffic.versions) == pytest.approx(1e6 * traffic.gib_s, abs=2)


def test_a_number_of_numpy_in_a_status_stops_no_tick(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        made: Any = np.int64(3)
        assert published(store, 0, 1, lambda_warm=made).lambda_warm == 3
