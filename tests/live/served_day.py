"""A service that has served the same load for a day and twenty minutes, as its store has it."""

from __future__ import annotations

from dataclasses import replace

from mark.accounting.hourly_totals import dump_marks, first_mark, marks_key
from mark.controller.journal import Header, entry_line, header_line
from mark.controller.state import Decision, Observation, State
from mark.dispatch.policy import DispatchPolicy
from mark.domain.billing.costs import Transition
from mark.domain.clock import ClockAnchor
from mark.domain.demand import Demand, DemandUnit, point_forecast
from mark.domain.fleet.instances import FleetView, Role
from mark.domain.load.announced_events import Events
from mark.domain.load.traffic import GatewayReport, ModelTraffic
from mark.domain.models.objective import ModelSpec
from mark.service_spec import BackendSpec, ServedModel, ServiceSpec
from mark.store.connect import connect
from mark.store.service import ServiceStore
from tests.controller.builders import POLICY, SMALL
from tests.footprints import FOOTPRINT
from tests.planner.builders import SLO

DAY_S = 86400.0
BEGAN = 20_000 * DAY_S
MINUTES = 24 * 60 + 20
NOW = BEGAN + 60.0 * MINUTES + 1.0
RPS = 3.0
BOOTED_S = 15.0
MODEL = "inception-v3"
SERVICE = "vision"


SERVED = ServedModel(
    model=ModelSpec(name=MODEL, slo=SLO),
    slo=SLO,
    dispatch=DispatchPolicy(),
    offerings=(SMALL,),
    backend=BackendSpec(kind="emulated"),
)
SPEC = ServiceSpec(name=SERVICE, models=(SERVED,), footprint=FOOTPRINT)


def write_service(url: str, spec: ServiceSpec = SPEC, events: Events = ()) -> ServiceStore:
    """Write it down; its clock stands. One instance of its first offering has run since `BEGAN` + `BOOTED_S`."""
    made = ServiceStore(connect(url), spec.name)
    made.put_spec(spec)
    made.put_clock(ClockAnchor(wall_at=0.0, service_at=NOW, speed=0.0))
    made.put_status(marks_key(MODEL), dump_marks([first_mark(BEGAN)]))
    requests = round(60 * RPS * MINUTES)
    traffic = ModelTraffic(model=MODEL, instance=requests, late=requests // 100)
    made.report(GatewayReport(gateway="g", sequence=1, models=(traffic,)))
    made.note(
        Transition(
            instance="i-1",
            model=MODEL,
            offering=spec.models[0].offerings[0].name,
            role=Role.SERVING,
            state="running",
            at=BEGAN + BOOTED_S,
        )
    )
    _journal(made, events)
    return made


def _journal(store: ServiceStore, events: Events) -> None:
    """Forecasts stand in it only where they count events."""
    lease = store.leases.acquire("test", 60.0)
    assert lease is not None
    hour = (RPS,) * 60
    header = Header(
        policy=POLICY, catalogue="c", seed=0, history=Demand(end_at=BEGAN, mean_rps=hour, max_rps=hour)
    )
    journal = store.open_journal(MODEL, header_line(header), lease)
    for minute in range(1, MINUTES + 1):
        at = BEGAN + 60.0 * minute
        unit = DemandUnit(start_at=at - 60.0, count=round(60 * RPS), mean_rps=RPS, max_rps=2 * RPS)
        counted = tuple(event for event in events if event.touches(at, at + 3600.0))
        forecast = None
        if counted:
            usual = point_forecast(at, mean_rps=hour, max_rps=hour, source="steady")
            forecast = replace(usual, unit_s=60.0, events=counted)
        seen = Observation(now=at, fleet=FleetView(), demand=unit, forecast=forecast)
        journal.write(entry_line(FleetView(), seen, Decision(state=State())))
