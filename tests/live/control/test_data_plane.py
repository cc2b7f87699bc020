"""The live data plane: what came by client is taken with the unit that has ended, and stands in the journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.controller.journal import Header, entry_line, header_line, read_journal
from mark.controller.state import Decision, Observation, State
from mark.domain.clock import ClockAnchor
from mark.domain.demand import WINDOW_S, Demand
from mark.domain.fleet.instances import FleetView
from mark.domain.load.outcomes import NO_OUTCOMES, Outcomes
from mark.domain.load.traffic import ClientTraffic, GatewayReport, ModelTraffic, grown_since
from mark.live.clock import ServiceClock
from mark.live.control.data_plane import LiveDataPlane
from mark.steady_time import steady_time
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.controller.builders import POLICY

BEGAN = 60_000.0
SHOP = ClientTraffic(client="shop", answered=4, late=1, items=4)
LOUD = ClientTraffic(client="loud", answered=1, limited=20, items=1)


def counted(store: ServiceStore, sequence: int, *clients: ClientTraffic) -> None:
    traffic = ModelTraffic(model="m", instance=sum(one.answered for one in clients), clients=clients)
    store.report(GatewayReport(gateway="g", sequence=sequence, models=(traffic,)))


def test_counts_that_a_store_has_lost_are_not_taken_from_a_client() -> None:
    assert grown_since(replace(SHOP, answered=2, late=3), SHOP) == ClientTraffic(client="shop", late=2)


def test_a_unit_has_what_came_by_client_since_the_one_before(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        store.put_clock(ClockAnchor(wall_at=steady_time(), service_at=BEGAN + 125.0, speed=0.0))
        counted(store, 1, SHOP)  # before this controller acted
        plane = LiveDataPlane(store, "m", clock=ServiceClock(store), next_unit_at=BEGAN, monitor=None, target=0.98)
        counted(store, 2, SHOP, LOUD)
        first = plane.next_unit()
        assert first is not None
        assert first.clients == (LOUD, SHOP)
        counted(store, 3, LOUD)
        second = plane.next_unit()
        assert second is not None
        assert second.clients == (LOUD,)
        assert plane.next_unit() is None

        seen = Observation(now=BEGAN + 125.0, fleet=FleetView(), demand=first)
        line = entry_line(FleetView(), seen, Decision(state=State(), orders=()))
        header = Header(
            policy=POLICY, catalogue="c", seed=0, history=Demand(end_at=BEGAN, mean_rps=(), max_rps=())
        )
        [tick] = read_journal([header_line(header), line])[1]
        assert tick.seen.demand == first
        older = line.replace(b',"clients":', b',"of another version":')
        [tick] = read_journal([header_line(header), older])[1]
        assert tick.seen.demand == replace(first, clients=())


def test_a_unit_has_what_came_by_size_since_the_one_before(tmp_path: Path) -> None:
    def sized(sequence: int, *sizes: tuple[int, int]) -> None:
        store.report(GatewayReport(gateway="g", sequence=sequence, models=(ModelTraffic(model="m", sizes=sizes),)))

    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        store.put_clock(ClockAnchor(wall_at=steady_time(), service_at=BEGAN + 185.0, speed=0.0))
        sized(1, (4, 2))  # before this controller acted
        plane = LiveDataPlane(store, "m", clock=ServiceClock(store), next_unit_at=BEGAN, monitor=None, target=0.98)
        sized(2, (4, 3), (912, 1))
        assert store.traffic("m").sizes == ((4, 5), (912, 1))
        units = [plane.next_unit()]
        sized(3, (912, -1))  # it was wrong in itself
        units += [plane.next_unit(), plane.next_unit()]
        assert [unit.sizes for unit in units if unit] == [((4, 3), (912, 1)), (), ()]


def test_a_unit_has_what_was_finished_and_missed_since_the_one_before(tmp_path: Path) -> None:
    def came(sequence: int, **counts: int) -> None:
        traffic = ModelTraffic(model="m", **counts)  # type: ignore[arg-type]
        store.report(GatewayReport(gateway="g", sequence=sequence, models=(traffic,)))

    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        store.put_clock(ClockAnchor(wall_at=steady_time(), service_at=BEGAN + 185.0, speed=0.0))
        came(1, instance=90, late=9)  # before this controller acted
        plane = LiveDataPlane(store, "m", clock=ServiceClock(store), next_unit_at=BEGAN, monitor=None, target=0.98)
        came(2, instance=10, lambda_=5, late=2, shed=1, failed=5, model_errors=2, rejected=7)
        units = [plane.next_unit(), plane.next_unit()]  # it was behind: the second has nothing of its own
        came(3, standby=4)
        units.append(plane.next_unit())
        assert [unit.outcomes for unit in units if unit] == [
            Outcomes(finished=19, missed=6),
            NO_OUTCOMES,
            Outcomes(finished=4),
        ]


def test_what_shared_instances_took_is_no_load_of_the_models_own_window_by_window(tmp_path: Path) -> None:
    """Of units before this controller acted, too."""
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        store.put_clock(ClockAnchor(wall_at=steady_time(), service_at=BEGAN + 62.0, speed=0.0))
        first = int(BEGAN // WINDOW_S)
        arrived, shared = (
            (*((window, count) for window in range(first, first + 12)), (first + 3, more))
            for count, more in ((50, 100), (50, 60))
        )
        traffic = ModelTraffic(model="m", arrivals=arrived, shared=shared)
        store.report(GatewayReport(gateway="g", sequence=1, models=(traffic,)))
        plane = LiveDataPlane(store, "m", clock=ServiceClock(store), next_unit_at=BEGAN, monitor=None, target=0.98)
        assert plane.recent_rps() == (0.0, 0.0, 0.0, 40 / WINDOW_S, *(0.0,) * 8)
        unit = plane.next_unit()
        assert unit is not None
        assert (unit.count, unit.max_rps) == (40, 40 / WINDOW_S)
        assert unit.shared_rps == pytest.approx(660 / 60.0)


def test_what_a_store_has_lost_is_no_load_of_the_models_own(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        store.put_clock(ClockAnchor(wall_at=steady_time(), service_at=BEGAN + 125.0, speed=0.0))
        took = ((int(BEGAN // WINDOW_S) + 12, 600),)
        store.report(GatewayReport(gateway="g", sequence=1, models=(ModelTraffic(model="m", shared=took),)))
        clock = ServiceClock(store)
        plane = LiveDataPlane(store, "m", clock=clock, next_unit_at=BEGAN + 60.0, monitor=None, target=0.98)
        connect(server.url).call("FLUSHALL")
        unit = plane.next_unit()
        assert unit is not None
        assert (unit.shared_rps, unit.mean_rps) == (0.0, 0.0)
