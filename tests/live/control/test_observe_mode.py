"""What would have been: a fleet that is ordered, stands and is billed without anybody being asked for it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mark.accounting.ledger import fleet_usage
from mark.catalog.billing import SECONDS_PER_HOUR
from mark.config.settings import Settings
from mark.controller.runner import Controller
from mark.dispatch.policy import DispatchPolicy
from mark.domain.clock import ClockAnchor
from mark.domain.demand import WINDOW_S, Demand, DemandUnit, point_forecast
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.orders import Drain, Launch, StartStandby, StopStandby, WarmLambda
from mark.domain.models.objective import ModelSpec
from mark.domain.offerings.offering import SpotPrice
from mark.domain.offerings.times import CloudTimes
from mark.live.commands import feed
from mark.live.control.drivers.driver_factory import DriverFactory
from mark.live.control.observe_mode import ShadowCloud
from mark.live.status.view import LiveView
from mark.report.cost.read import read_cost_report
from mark.report.mail.message import render
from mark.service_spec import BackendSpec, ServedModel, ServiceSpec
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.controller.builders import LARGE, POLICY, SLEEPER, SMALL
from tests.footprints import FOOTPRINT
from tests.planner.builders import SLO

TIMES = CloudTimes()
BEGAN = 1000 * 86400.0
SERVED = ServedModel(
    model=ModelSpec(name="m", slo=SLO),
    slo=SLO,
    dispatch=DispatchPolicy(),
    offerings=(LARGE, SLEEPER, SMALL),
    backend=BackendSpec(kind="emulated"),
)


class Clock:
    def __init__(self) -> None:
        self.at = BEGAN

    def now(self) -> float:
        return self.at


@pytest.fixture
def store(redis: EmbeddedRedis, request: pytest.FixtureRequest) -> Iterator[ServiceStore]:
    link = connect(redis.url)
    made = ServiceStore(link, f"s-{abs(hash(request.node.name))}")
    made.put_spec(
        ServiceSpec(name="vision", models=(SERVED,), footprint=FOOTPRINT, observed=True, existing_usd_per_hour=5.0)
    )
    yield made
    link.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def launch(count: int, offering: str = SMALL.name, *, token: str = "t1", role: Role = Role.SERVING) -> Launch:
    return Launch(token=token, reason="needed", offering=offering, count=count, role=role)


def states(cloud: ShadowCloud) -> list[InstanceState]:
    return [instance.state for instance in cloud.observe()]


def test_what_is_launched_boots_serves_and_is_billed_until_it_is_drained(
    store: ServiceStore, clock: Clock
) -> None:
    cloud = ShadowCloud(SERVED, store=store, clock=clock)
    cloud.submit(launch(2))
    cloud.submit(launch(2))  # asked again: the same order
    assert states(cloud) == [InstanceState.PENDING] * 2
    clock.at += SMALL.boot_s + 1.0
    view = cloud.observe()
    assert [(i.state, i.token) for i in view] == [(InstanceState.READY, "t1")] * 2
    clock.at = BEGAN + 3600.0
    cloud.submit(Drain(token="d", reason="less", instances=(view.instances[0].id,)))
    clock.at = BEGAN + 7200.0

    assert states(cloud) == [InstanceState.READY]
    assert {told.usd_per_hour for told in store.transitions("m")} == {SMALL.usd_per_hour}
    usage = fleet_usage(store.transitions("m"), clock.at)
    assert usage.running_s == pytest.approx(3600.0 + 7200.0 - 2 * TIMES.pending_s)
    assert cloud.drain_facts() == ()
    assert not cloud.has_pending_facts


class Prices:
    """Spot prices that are known once they were asked for."""

    def __init__(self) -> None:
        self.read_at: list[float] = []

    def read(self, now: float) -> None:
        self.read_at.append(now)

    def known(self) -> dict[str, SpotPrice]:
        return {SMALL.name: SpotPrice(by_zone={"a": 0.01, "b": 0.02}, dearest=0.02)} if self.read_at else {}

    def lowest(self) -> tuple[tuple[str, float], ...]:
        return ((SMALL.name, 0.01),) if self.read_at else ()


def test_spot_costs_what_the_dearest_zone_does_and_is_planned_with_as_where_it_is_rented(
    store: ServiceStore, clock: Clock
) -> None:
    prices = Prices()
    cloud = ShadowCloud(SERVED, store=store, clock=clock, prices=prices)
    assert cloud.observe().spot_usd_per_hour == ((SMALL.name, 0.01),)
    assert prices.read_at == [clock.at]
    cloud.submit(launch(1))
    cloud.submit(launch(1, SLEEPER.name, token="t2"))
    by_offering = {told.offering: told.usd_per_hour for told in store.transitions("m")}
    assert by_offering == {SMALL.name: 0.02, SLEEPER.name: SLEEPER.usd_per_hour}
    assert {cloud.usd_per_hour(one) for one in cloud.observe()} == {0.02, SLEEPER.usd_per_hour}


def test_the_next_controller_goes_on_with_the_same_fleet(store: ServiceStore, clock: Clock) -> None:
    first = ShadowCloud(SERVED, store=store, clock=clock)
    first.submit(launch(3))
    first.close()
    clock.at += 600.0
    second = ShadowCloud(SERVED, store=store, clock=clock)
    second.submit(launch(3))  # a controller that takes over sends again what may not have been sent

    assert states(second) == [InstanceState.READY] * 3
    clock.at += 600.0
    assert len(ShadowCloud(SERVED, store=store, clock=clock).observe()) == 3
    assert len([item for item in store.transitions("m") if item.state == "running"]) == 3


def test_standbys_sleep_once_they_are_ready_and_wake(store: ServiceStore, clock: Clock) -> None:
    cloud = ShadowCloud(SERVED, store=store, clock=clock)
    cloud.submit(launch(1, SLEEPER.name, role=Role.STANDBY))
    clock.at += 3600.0
    (instance,) = cloud.observe()
    assert instance.state is InstanceState.STOPPED
    usage = fleet_usage(store.transitions("m"), clock.at)
    assert usage.running_s == pytest.approx(SLEEPER.boot_s - TIMES.pending_s)
    assert usage.asleep_s == pytest.approx(3600.0 - SLEEPER.boot_s)

    cloud.submit(StartStandby(token="w", reason="surge", instances=(instance.id,)))
    assert states(cloud) == [InstanceState.PENDING]
    clock.at += TIMES.wake.mean_s + 1.0
    assert states(cloud) == [InstanceState.READY]
    clock.at += 100.0
    assert states(cloud) == [InstanceState.READY]
    cloud.submit(StopStandby(token="s", reason="over", instances=(instance.id,)))
    assert states(cloud) == [InstanceState.STOPPED]
    cloud.submit(WarmLambda(token="l", reason="none", concurrency=5))
    assert len(store.transitions("m")) == 5


def test_a_launch_asked_again_after_its_instances_are_gone_rents_nothing(
    store: ServiceStore, clock: Clock
) -> None:
    cloud = ShadowCloud(SERVED, store=store, clock=clock)
    cloud.submit(launch(1))
    cloud.submit(Drain(token="d", reason="less", instances=("shadow-t1-1",)))
    clock.at += 60.0
    second = ShadowCloud(SERVED, store=store, clock=clock)
    second.submit(launch(1))
    assert states(second) == []
    second.submit(launch(1, token="t2"))
    assert states(second) == [InstanceState.PENDING]


def test_a_standby_that_is_drained_stops_and_is_kept(store: ServiceStore, clock: Clock) -> None:
    cloud = ShadowCloud(SERVED, store=store, clock=clock)
    cloud.submit(launch(1, SLEEPER.name, role=Role.STANDBY))
    clock.at += 3600.0
    cloud.observe()
    cloud.submit(StartStandby(token="w", reason="surge", instances=("shadow-t1-1",)))
    clock.at += 600.0
    cloud.submit(Drain(token="d", reason="less", instances=("shadow-t1-1",)))
    assert states(cloud) == [InstanceState.STOPPED]


def test_an_instance_that_boots_in_less_than_the_pending_time_is_billed_from_its_boot(
    store: ServiceStore, clock: Clock
) -> None:
    quick = replace(SERVED, offerings=(replace(SMALL, boot_s=5.0),))
    cloud = ShadowCloud(quick, store=store, clock=clock)
    cloud.submit(launch(1))
    clock.at += 10.0
    assert states(cloud) == [InstanceState.READY]
    assert fleet_usage(store.transitions("m"), clock.at).running_s == pytest.approx(5.0)


class Steady:
    """A data plane of an even load, and the forecast of it."""

    def __init__(self, clock: Clock, rps: float) -> None:
        self._clock, self._rps, self._next = clock, rps, BEGAN

    def next_unit(self) -> DemandUnit | None:
        if self._clock.now() < self._next + 60.0:
            return None
        self._next += 60.0
        return DemandUnit(
            start_at=self._next - 60.0, count=round(60 * self._rps), mean_rps=self._rps, max_rps=self._rps
        )

    def forecast(self, history: Demand, horizon: int) -> Any:
        rates = (self._rps,) * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="steady")

    def take_slo_window(self) -> None:
        return None

    def lambda_warm(self) -> int:
        return 0

    def recent_rps(self) -> tuple[float, ...]:
        return (self._rps,) * 12


def test_a_controller_over_it_plans_as_if_it_were_there_and_the_report_says_what_is_saved(
    store: ServiceStore, clock: Clock
) -> None:
    cloud, plane = ShadowCloud(SERVED, store=store, clock=clock), Steady(clock, 55.0)
    kept = SimpleNamespace(append=lambda *_: None)
    controller = Controller(
        policy=POLICY,
        clock=clock,
        cloud=cloud,
        data_plane=plane,
        forecaster=plane,
        fallback=plane,
        journal=kept,
        history=Demand(end_at=BEGAN, mean_rps=(55.0,) * 60, max_rps=(55.0,) * 60),
    )
    orders = []
    for _ in range(121):
        orders += controller.tick().orders
        clock.at += 60.0
    ready = controller.fleet.ready
    assert 10.0 * ready[SMALL.name] + 40.0 * ready[LARGE.name] >= 55.0
    assert sum(isinstance(order, Launch) for order in orders) <= 3  # it saw what it had ordered and was content

    store.put_status("model:m", {"at": clock.at, "began_at": BEGAN})
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=clock.at, speed=0.0))
    report = read_cost_report(store, period_s=86400.0, wall_at=0.0)
    hours = (clock.at - BEGAN) / SECONDS_PER_HOUR
    assert report.observed
    assert report.existing_usd == pytest.approx(5.0 * hours)
    assert 0 < report.cost.instances < 5.0 * hours
    mail = render(report)
    assert f"Would have been saved: {report.existing_usd - report.cost.total:,.2f} USD" in mail.text
    assert "nothing was rented" in mail.text

    told = LiveView(store, "vision").status().counterfactual
    assert told is not None
    assert (told.existing_usd, told.usd) == pytest.approx((report.existing_usd, report.cost.total))
    assert told.saved_usd == pytest.approx(report.existing_usd - report.cost.total)
    assert (told.minutes, told.beyond_most) == (0, None)  # nobody published what came


def test_the_mode_is_what_chooses_the_cloud(store: ServiceStore) -> None:
    settings = Settings.model_validate({"service": {"mode": "observe"}})
    anything: Any = SimpleNamespace()  # no client of AWS is there to be called
    factory = DriverFactory(settings, anything, store=store, aws=anything, lease=anything, front=anything)
    model: Any = SimpleNamespace(served=SERVED)
    shared: Any = SimpleNamespace(launches={"subnets": ()}, zones=())
    assert isinstance(factory.cloud(model, "run", Clock(), anything, shared), ShadowCloud)  # type: ignore[arg-type]


def test_lines_are_counted_as_requests_of_their_window(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=BEGAN, speed=0.0))
    monkeypatch.setattr(feed, "find_running", lambda _name: SimpleNamespace(store="", models=({"name": "m"},)))
    monkeypatch.setattr(feed, "connect", lambda _url: None)
    monkeypatch.setattr(feed, "ServiceStore", lambda _link, _name: store)
    feed.feed_service("s", None, io.StringIO("GET /a\n\nGET /b\nPOST /c"))

    window = int(BEGAN // WINDOW_S)
    assert store.arrivals("m", window - 1, window + 1) == [0, 3, 0]
    assert "3 requests of m were counted" in capsys.readouterr().err
