"""The ledger by day: never negative, and the days add up to the bill that `mark status` tells."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.daily_costs import DAY_S, days_between, model_bill, model_days, shared_days
from mark.accounting.hourly_totals import HourlyMark, Totals, first_mark, is_due, next_mark, totals_at
from mark.accounting.ledger import fleet_usage, live_bill, rent_usd_per_hour, running_now, unpriced
from mark.accounting.model_ledger import ModelLedger
from mark.catalog.billing import cost_of
from mark.catalog.load import load_prices
from mark.dispatch.policy import DispatchPolicy
from mark.domain.billing.costs import LedgerRecord, Transition
from mark.domain.demand import Demand
from mark.domain.fleet.instances import Role
from mark.domain.load.traffic import ModelTraffic
from mark.domain.models.objective import ModelSpec
from mark.service_spec import BackendSpec, ServedModel
from tests.footprints import FOOTPRINT
from tests.planner.builders import SLO, offering, overflow

BEGAN = 20_000 * DAY_S + 61_234.5
SMALL, LARGE = offering("small", rps=10.0), offering("large", rps=40.0, usd_per_hour=1.0)
SERVED = ServedModel(
    model=ModelSpec(name="m", slo=SLO, payload_mib=0.3),
    slo=SLO,
    dispatch=DispatchPolicy(),
    offerings=(LARGE, SMALL),
    backend=BackendSpec(kind="emulated"),
    overflow=replace(overflow(), provisioned=2),
)


def transition(number: int, state: str, at: float) -> Transition:
    return Transition(
        instance=f"i-{number}",
        model="m",
        offering=(SMALL if number % 3 else LARGE).name,
        role=Role.STANDBY if number % 4 == 0 else Role.SERVING,
        state=state,  # type: ignore[arg-type]
        at=at,
    )


@st.composite
def ledgers(draw: st.DrawFn) -> ModelLedger:
    told = []
    for number in range(draw(st.integers(0, 12))):
        start = BEGAN + draw(st.floats(0.0, 5 * DAY_S))
        told.append(transition(number, "running", start))
        if draw(st.booleans()):
            end = start + draw(st.one_of(st.floats(1.0, 90.0), st.floats(90.0, 3 * DAY_S)))
            state = "stopped" if number % 4 == 0 else "terminated"
            told.append(transition(number, state, end))
    marks, totals = [first_mark(BEGAN)], Totals()
    for hour in range(1, draw(st.integers(1, 140))):
        came = draw(st.integers(0, 40_000))
        totals = Totals(
            requests=totals.requests + came,
            instance=totals.instance + came,
            billed=totals.billed + came // 7,
            gib_s=totals.gib_s + came / 9,
        )
        at = BEGAN + hour * 3600.0 + 3.0
        marks.append(HourlyMark(at=at, counted_to=at - 3.0, peak_rps=30_000.0, totals=totals))
    return ModelLedger(
        served=SERVED, record=LedgerRecord(transitions=tuple(told)), marks=tuple(marks), footprint=FOOTPRINT
    )


@given(ledger=ledgers(), back_s=st.one_of(st.floats(0.0, 60.0), st.floats(60.0, 9 * DAY_S)))
def test_days_are_never_negative_and_add_up_to_the_live_bill(ledger: ModelLedger, back_s: float) -> None:
    until = BEGAN + 6 * DAY_S + 4321.0
    since = max(BEGAN, until - back_s)
    days = (*model_days(ledger, since, until), *shared_days([ledger], since, until))
    assert all(item.line.usd >= 0 and item.line.quantity > 0 for item in days)

    rest = (*model_days(ledger, BEGAN, since), *shared_days([ledger], BEGAN, since)) if since > BEGAN else ()
    totals = totals_at(ledger.marks, until)
    bill = live_bill(
        fleet_usage(ledger.record.transitions, until),
        ModelTraffic(model="m", billed=totals.billed, gib_s=totals.gib_s),
        SERVED,
        FOOTPRINT,
        requests=round(totals.requests),
        peak_rps=ledger.marks[-1].peak_rps,
        duration_s=until - BEGAN,
    )
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for item in (*rest, *days):
        found[item.line.component, item.line.item] += item.line.usd
    for line in bill:
        assert found[line.component, line.item] == pytest.approx(line.usd, abs=1e-9)
    assert sum(found.values()) == pytest.approx(cost_of(bill).total)


def test_an_instance_over_midnight_is_billed_to_both_days() -> None:
    midnight = (BEGAN // DAY_S + 1) * DAY_S
    told = (transition(3, "running", midnight - 1800.0), transition(3, "terminated", midnight + 7200.0))
    ledger = ModelLedger(
        served=SERVED, record=LedgerRecord(transitions=told), marks=(first_mark(BEGAN),), footprint=FOOTPRINT
    )
    lines = [item for item in model_days(ledger, BEGAN, midnight + DAY_S) if item.line.component == "instances"]

    assert [(item.line.item, item.line.quantity) for item in lines] == [(LARGE.name, 0.5), (LARGE.name, 2.0)]
    assert [item.line.usd for item in lines] == [0.5, 2.0]


def test_gateways_and_store_are_shared_by_the_models_of_a_service() -> None:
    ledger = ModelLedger(
        served=SERVED, record=LedgerRecord(transitions=()), marks=(first_mark(BEGAN),), footprint=FOOTPRINT
    )
    one, two = (shared_days([ledger] * count, BEGAN, BEGAN + 3600.0) for count in (1, 2))

    assert one == two
    (own,) = model_days(ledger, BEGAN, BEGAN + 3600.0)
    assert (own.line.component, own.line.item) == ("lambda", "provisioned")


def test_what_a_burst_uses_beyond_its_credits_is_billed_as_it_is_read() -> None:
    """Readings grow with a stretch; one after its end is none of the next stretch, where the agent begins anew."""
    at = BEGAN + 7200.0
    told = [transition(1, "running", at), transition(1, "stopped", at + 3600.0)]
    for when, surplus_vcpu_s in ((600.0, 1800.0), (1200.0, 3600.0), (3660.0, 9000.0)):
        told.append(replace(transition(1, "running", at + when), surplus_vcpu_s=surplus_vcpu_s))
    told += [transition(1, "running", at + 7200.0), transition(1, "terminated", at + 9000.0)]
    told.append(replace(transition(1, "running", at + 8000.0), surplus_vcpu_s=360.0))

    def surplus_usd(now: float) -> float:
        record = LedgerRecord(transitions=tuple(told))
        ledger = ModelLedger(served=SERVED, record=record, marks=(first_mark(BEGAN),), footprint=FOOTPRINT)
        lines = model_bill(ledger, at + now)
        return sum(line.usd for line in lines if line.item == f"{SMALL.name} surplus credits")

    assert surplus_usd(300.0) == 0.0
    assert surplus_usd(900.0) == pytest.approx(0.5 * 0.05)
    assert surplus_usd(5000.0) == pytest.approx(1.0 * 0.05)
    assert surplus_usd(9000.0) == pytest.approx(1.1 * 0.05)


def test_a_period_is_cut_at_midnights() -> None:
    assert days_between(BEGAN, BEGAN) == ()
    days = days_between(BEGAN, BEGAN + 2 * DAY_S)
    assert [end - start for _, start, end in days] == [DAY_S - 61_234.5, DAY_S, 61_234.5]
    assert len({day for day, _, _ in days}) == 3


def test_marks_are_made_once_an_hour_and_count_each_minute_once() -> None:
    marks = [first_mark(BEGAN)]
    history = Demand(end_at=BEGAN, mean_rps=(), max_rps=())
    for minute in range(1, 200):
        now = BEGAN + 60.0 * minute + 0.5
        history = Demand(
            end_at=BEGAN + 60.0 * minute,
            mean_rps=(*history.mean_rps, 2.0),
            max_rps=(*history.max_rps, float(minute)),
        )
        if is_due(marks, now):
            traffic = ModelTraffic(model="m", instance=100 * minute, late=minute)
            marks.append(next_mark(marks[-1], traffic, history, now))

    assert len(marks) == 4  # the hours that ended within 200 minutes, and the beginning
    last = marks[-1]
    minutes = round((last.counted_to - BEGAN) / 60)
    assert last.totals.requests == pytest.approx(120.0 * minutes)
    assert last.peak_rps == minutes
    assert last.totals.instance == 100 * minutes
    half = totals_at(marks, (marks[1].at + marks[2].at) / 2)
    assert half.late == pytest.approx((marks[1].totals.late + marks[2].totals.late) / 2)
    assert totals_at(marks, BEGAN - 5.0) == Totals()
    assert totals_at(marks, last.at + 5.0) == last.totals


def rented(offering_name: str, usd_per_hour: float | None, *, hours: float = 2.0) -> tuple[Transition, ...]:
    """An instance of whatever offering, from two hours after the beginning on."""
    at = BEGAN + 7200.0
    first = replace(transition(1, "running", at), offering=offering_name, usd_per_hour=usd_per_hour)
    return first, replace(first, state="terminated", at=at + 3600.0 * hours, usd_per_hour=None)


def instance_lines(told: tuple[Transition, ...], served: ServedModel = SERVED) -> dict[str, float]:
    """USD by offering."""
    ledger = ModelLedger(
        served=served, record=LedgerRecord(transitions=told), marks=(first_mark(BEGAN),), footprint=FOOTPRINT
    )
    lines = model_bill(ledger, BEGAN + DAY_S)
    return {line.item: line.usd for line in lines if line.component == "instances"}


def test_what_was_recorded_is_the_price_whatever_is_offered_today() -> None:
    """An offering that was taken away, and one that has become dearer."""
    assert instance_lines(rented("m5.large:spot", 0.03)) == {"m5.large:spot": pytest.approx(0.06)}
    dearer = replace(SERVED, offerings=(LARGE, replace(SMALL, usd_per_hour=9.0)))
    assert instance_lines(rented(SMALL.name, 0.5), dearer) == {SMALL.name: pytest.approx(1.0)}


def test_prices_that_changed_meanwhile_are_one_line_of_the_bill() -> None:
    later = tuple(replace(one, instance="i-2") for one in rented(SMALL.name, 0.7))
    assert instance_lines((*rented(SMALL.name, 0.5), *later)) == {SMALL.name: pytest.approx(2.4)}


def test_older_records_are_priced_by_what_is_offered_then_by_the_catalogue() -> None:
    assert instance_lines(rented(SMALL.name, None)) == {SMALL.name: pytest.approx(2 * SMALL.usd_per_hour)}
    types = {item.name: item for item in load_prices().types}
    listed = types["c5.large"].on_demand_usd_per_hour
    assert instance_lines(rented("c5.large:on-demand", None)) == {"c5.large:on-demand": pytest.approx(2 * listed)}
    spot = types["c5.large"].spot_usd_per_hour
    assert spot is not None
    assert instance_lines(rented("c5.large:spot:us-east-1a", None)) == {
        "c5.large:spot:us-east-1a": pytest.approx(2 * spot)
    }


def test_what_nobody_has_a_price_of_is_told_and_stops_nothing() -> None:
    told = (*rented("q9.huge:spot", None), *(replace(one, instance="i-2") for one in rented(SMALL.name, 0.5)))
    assert instance_lines(told) == {SMALL.name: pytest.approx(1.0)}
    usage = fleet_usage(told, BEGAN + DAY_S)
    assert unpriced(SERVED, usage.usages) == ("q9.huge:spot",)
    running = running_now(fleet_usage(told[:1], BEGAN + DAY_S), BEGAN + DAY_S)
    assert rent_usd_per_hour(SERVED, running) == 0.0
