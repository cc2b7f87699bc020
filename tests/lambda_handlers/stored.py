"""A service as the store has it: two spot instances that served for some hours, and what gateways counted."""

from __future__ import annotations

from mark.accounting.ledger import fleet_usage, live_bill
from mark.catalog.billing import cost_of
from mark.dispatch.policy import DispatchPolicy
from mark.domain.billing.costs import CostUsd, Ec2State, Transition
from mark.domain.clock import ClockAnchor
from mark.domain.fleet.instances import Role
from mark.domain.load.traffic import GatewayReport, ModelTraffic
from mark.domain.models.objective import ModelSpec, Slo
from mark.service_spec import BackendSpec, ServedModel, ServiceSpec
from mark.store.connect import connect
from mark.store.service import ServiceStore
from tests.footprints import FOOTPRINT
from tests.planner.builders import offering

SLO = Slo(latency_s=0.3, target=0.98)
SPOT = offering("c5.large", usd_per_hour=13.36)
HOURS = (5.0, 2.5)
"""How long each instance ran."""
ENDED_AT = 1_800_000_000.0
"""2027-01-15T08:00:00Z, to which the report reaches."""
SERVICE, MODEL = "shop", "m"


BEGAN_AT = ENDED_AT - 7 * 3600


def store_service(url: str, *, anchor: ClockAnchor) -> CostUsd:
    """Write it down; what it cost by the ledger alone."""
    link = connect(url)
    store = ServiceStore(link, SERVICE)
    served = ServedModel(
        model=ModelSpec(name=MODEL, slo=SLO),
        slo=SLO,
        dispatch=DispatchPolicy(),
        offerings=(SPOT,),
        backend=BackendSpec(kind="emulated"),
    )
    store.put_spec(ServiceSpec(name=SERVICE, models=(served,), footprint=FOOTPRINT))
    store.put_clock(anchor)
    for number, hours in enumerate(HOURS):
        began_at = ENDED_AT - 6 * 3600
        states: list[tuple[Ec2State, float]] = [("running", began_at), ("terminated", began_at + hours * 3600)]
        for state, at in states:
            store.note(
                Transition(
                    instance=f"i-{number}",
                    model=MODEL,
                    offering=SPOT.name,
                    role=Role.SERVING,
                    state=state,
                    at=at,
                )
            )
    store.put_status(f"model:{MODEL}", {"began_at": BEGAN_AT})
    store.report(
        GatewayReport(gateway="g", sequence=1, models=(ModelTraffic(model=MODEL, instance=1000, late=4),))
    )
    usage, traffic = fleet_usage(store.transitions(MODEL), ENDED_AT), store.traffic(MODEL)
    link.close()
    bill = live_bill(  # no controller wrote down what came: no bytes are billed
        usage, traffic, served, FOOTPRINT, requests=0, peak_rps=0.0, duration_s=ENDED_AT - BEGAN_AT
    )
    return cost_of(bill)
