"""The report from a real store: its money is that of `mark status`, its counts are the gateways'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from mark.accounting.hourly_totals import dump_marks, first_mark, marks_key, next_mark
from mark.catalog.break_even import break_even_rps
from mark.controller.journal import Header, entry_line, header_line
from mark.controller.state import Decision, Observation, State
from mark.dispatch.policy import DispatchPolicy
from mark.domain.billing.costs import Transition
from mark.domain.clock import ClockAnchor
from mark.domain.commitments.owned import Commitments, ReservedInstances
from mark.domain.demand import Demand, DemandUnit
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.orders import Launch, SpotWarned
from mark.domain.load.traffic import ClientTraffic, GatewayReport, ModelTraffic
from mark.domain.models.objective import ModelSpec
from mark.domain.models.variants import ServedAccuracy
from mark.domain.models.versions import VersionCounts
from mark.live.status.view import LiveView
from mark.report.cost.cost_report import LoadAhead, report_document
from mark.report.cost.read import read_cost_report, report_period
from mark.report.cost.replays import ReplayedDay, ReplayedPolicy, keep_replayed_days, replayed_days
from mark.report.mail import message
from mark.report.mail.text import mail_text
from mark.report.mail.view import mail_view
from mark.service_spec import BackendSpec, ServedModel, ServiceSpec
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import (
    COMMITMENTS,
    HOSTS,
    MODEL,
    AccountCommitments,
    LoadSeries,
    PlanStatus,
    PublishedHost,
    PublishedHosts,
    PublishedInstance,
    PublishedModel,
)
from mark.store.service import ServiceStore
from tests.controller.builders import LARGE, POLICY, SMALL, instances
from tests.footprints import FOOTPRINT
from tests.planner.builders import SLO, overflow

DAY_S = 86400.0
BEGAN = 20_000 * DAY_S + 12 * 3600.0
"""A noon."""
NOW = BEGAN + 3 * DAY_S
SERVED = ServedModel(
    model=ModelSpec(name="m", slo=SLO),
    slo=SLO,
    dispatch=DispatchPolicy(),
    offerings=(LARGE, SMALL),
    backend=BackendSpec(kind="emulated"),
    overflow=overflow(),
)


@pytest.fixture
def store(redis: EmbeddedRedis, request: pytest.FixtureRequest) -> Iterator[ServiceStore]:
    link = connect(redis.url)
    made = ServiceStore(link, f"s-{abs(hash(request.node.name))}")
    made.put_spec(ServiceSpec(name="vision", models=(SERVED,), footprint=FOOTPRINT))
    made.put_clock(ClockAnchor(wall_at=0.0, service_at=0.0, speed=0.0))
    yield made
    link.close()


def stands_at(store: ServiceStore, at: float) -> None:
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=at, speed=0.0))


def rented(
    store: ServiceStore, instance: str, offering: str, start: float, end: float | None, *, model: str = "m"
) -> None:
    for state, at in (("pending", start - 12.0), ("running", start), ("terminated", end)):
        if at is not None:
            store.note(
                Transition(
                    instance=instance, model=model, offering=offering, role=Role.SERVING, state=state, at=at
                )  # type: ignore[arg-type]
            )


def a_life(store: ServiceStore) -> None:
    """Three days, the same load in each minute: marks each hour, then the last tick's own status."""
    history = Demand(end_at=BEGAN, mean_rps=(), max_rps=())
    marks = [first_mark(BEGAN)]
    minutes = round((NOW - BEGAN) / 60)
    for hour in range(1, 72):
        history = Demand(end_at=BEGAN + 3600.0 * hour, mean_rps=(2.0,) * 60, max_rps=(5.0,) * 60)
        marks.append(next_mark(marks[-1], counted(hour / 72), history, BEGAN + 3600.0 * hour))
    store.put_status(marks_key("m"), dump_marks(marks))
    store.report(GatewayReport(gateway="g", sequence=1, models=(counted(1.0),)))
    store.put_status(
        "model:m",
        {
            "at": NOW,
            "began_at": BEGAN,
            "requests": 120 * minutes,
            "peak_rps": 5.0,
            "series": {"start_at": NOW - 3600.0, "unit_s": 60.0, "mean_rps": [2.0] * 60, "max_rps": [5.0] * 60},
        },
    )
    stands_at(store, NOW)
    rented(store, "i-1", LARGE.name, BEGAN + 20.0, None)
    rented(store, "i-2", SMALL.name, BEGAN + 3600.0, BEGAN + 30 * 3600.0)
    rented(store, "i-3", SMALL.name, BEGAN + 3600.0, BEGAN + 3601.0)


def counted(share: float) -> ModelTraffic:
    """What gateways had counted when this share of the time was over."""
    requests = round(518_400 * share)
    return ModelTraffic(
        model="m",
        instance=requests - requests // 50,
        lambda_=requests // 50,
        late=requests // 80,
        shed=requests // 1000,
        billed=requests / 40,
        gib_s=requests / 30,
        clients=(
            ClientTraffic(client="loud", answered=requests // 4, limited=requests, items=requests // 4),
            ClientTraffic(client="shop", answered=requests // 4, late=requests // 800, items=3 * (requests // 4)),
        ),
        accuracy_known=requests - requests // 50,
        accuracy_sum=0.75 * (requests - requests // 50),
    )


def tick_lines(store: ServiceStore) -> None:
    """A journal of one launch, at the start of the second day."""
    lease = store.leases.acquire("test", 30.0)
    assert lease is not None
    header = Header(policy=POLICY, catalogue="c", seed=0, history=Demand(end_at=BEGAN, mean_rps=(), max_rps=()))
    journal = store.open_journal("m", header_line(header), lease)
    accuracy = ServedAccuracy(answers=118, mean=0.75)
    unit = DemandUnit(start_at=BEGAN + DAY_S - 60.0, count=120, mean_rps=2.0, max_rps=5.0, accuracy=accuracy)
    warned = SpotWarned(instance="i-2", at=BEGAN + DAY_S, terminates_at=BEGAN + DAY_S + 120.0)
    seen = Observation(now=BEGAN + DAY_S, fleet=FleetView(instances=instances(2)), demand=unit, facts=(warned,))
    launch = Launch(token="t1", reason="needed " * 90, offering=LARGE.name, count=3)
    journal.write(entry_line(FleetView(), seen, Decision(state=State(), orders=(launch,))))


def test_the_money_is_that_of_the_status(store: ServiceStore) -> None:
    a_life(store)
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0)
    status = LiveView(store, "vision").status()
    (model,) = status.models
    spent = model.cost_usd.with_shared(status.overhead.usd)

    cost = report.cost
    for name in ("instances", "standby", "lambda_", "serving", "overhead", "total"):
        assert getattr(cost, name) == pytest.approx(getattr(spent, name), abs=1e-9)
    assert (report.since, report.until) == (BEGAN, NOW)
    (told,) = report.models
    assert (told.answers.answered, told.answers.late) == (model.objective.answered, model.objective.late)
    assert told.answers.attained == pytest.approx(model.objective.attained)
    assert [item.day.weekday() for item in told.days] == sorted(
        (item.day.weekday() for item in told.days), key=lambda day: (day - told.days[0].day.weekday()) % 7
    )
    assert sum(item.answers.finished for item in told.days) == told.answers.finished


def test_the_rent_of_shared_instances_is_in_both_sums_once(store: ServiceStore) -> None:
    """One is over, one is about to be lost, one was only just announced."""
    store.put_spec(ServiceSpec(name="vision", models=(SERVED,), footprint=FOOTPRINT, shares=True))
    a_life(store)
    rented(store, "i-8", LARGE.name, BEGAN + 60.0, BEGAN + 3 * 3600.0, model=SHARED)
    rented(store, "i-9", SMALL.name, BEGAN + 7200.0, None, model=SHARED)
    seen = PublishedInstance(id="i-9", offering=SMALL.name, state=InstanceState.READY, interrupt_at=NOW + 90.0)
    MODEL.write(store, PublishedModel(at=NOW, began_at=BEGAN, observed=(seen,)), SHARED)
    took = ModelTraffic(model="m", shared_usd=0.5)
    store.report(GatewayReport(gateway="shared", sequence=1, models=(took,)))
    HOSTS.write(store, PublishedHosts(at=NOW, hosts=(PublishedHost(id="i-9", wanted=("m",)),)))
    status = LiveView(store, "vision").status()
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0)

    (model,), shared = status.models, status.shared
    assert shared is not None
    usd = LARGE.usd_per_hour * (3 - 60 / 3600) + SMALL.usd_per_hour * 70
    assert shared.cost_usd.instances == pytest.approx(usd)
    assert report.cost.instances == pytest.approx(model.cost_usd.instances + usd)
    spent = model.cost_usd.total + status.overhead.usd + shared.cost_usd.total
    assert report.cost.total == pytest.approx(spent, abs=1e-9)
    hourly = [model.usd_per_hour, status.overhead.usd_per_hour, shared.usd_per_hour]
    assert status.overview.usd_per_hour == pytest.approx(sum(usd or 0.0 for usd in hourly))
    (told,) = report.models
    assert (model.shared_usd, told.shared_usd) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (shared.idle_usd, report.idle_usd) == (pytest.approx(usd - 0.5), pytest.approx(usd - 0.5))
    assert status.overview.rows[0].usd_per_hour == pytest.approx((model.usd_per_hour or 0.0) + 0.5 / 72)
    text = mail_text(mail_view(report))
    assert f"Idle time of shared instances {usd - 0.5:.2f}" in " ".join(text.split())
    (host,) = shared.instances
    assert (host.id, host.gone_in_s, [one.state for one in host.tenants]) == ("i-9", 90.0, ["pending"])
    assert [(one.instance, one.state, one.beside) for one in model.shared] == [("i-9", "pending", ())]
    assert [row.id for row in model.fleet.observed] == []


def test_clients_stand_in_the_report_with_their_parts_of_the_cost(store: ServiceStore) -> None:
    a_life(store)
    (model,) = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0).models
    loud, shop = model.clients
    assert (loud.requests, loud.limited, loud.attained) == (129_600 + 518_400, 518_400, 1.0)
    assert shop.attained == pytest.approx(1 - 648 / 129_600)
    half = model.cost.serving * 259_200 / model.answers.answered
    assert (loud.cost_usd, shop.cost_usd) == (pytest.approx(half / 4), pytest.approx(3 * half / 4))
    (seen,) = LiveView(store, "vision").status().models
    assert [(one.client, one.attained) for one in seen.clients] == [("loud", 1.0), ("shop", shop.attained)]
    assert sum(one.cost_usd for one in seen.clients) == pytest.approx(half)


OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def a_rollout(store: ServiceStore) -> None:
    """Three hours: the old version, both half an hour, then the new; its instance from the rollout's start on."""
    stands_at(store, BEGAN + 3 * 3600.0)
    both = (
        VersionCounts(version=OLD, answered=900, lambda_calls=30, lambda_gib_us=45_000_000),
        VersionCounts(version=NEW, answered=600, late=60, lambda_calls=20, lambda_gib_us=30_000_000),
    )
    marks, empty = [first_mark(BEGAN, OLD)], Demand(end_at=BEGAN, mean_rps=(), max_rps=())
    for hours, answered, versions, stable in (
        (1.0, 3000, (), OLD),
        (1.5, 4500, both, NEW),
        (3.0, 9000, both, NEW),
    ):
        late = 60 if versions else 0
        traffic = ModelTraffic(
            model="m", instance=answered, late=late, billed=answered / 30, gib_s=answered / 20, versions=versions
        )
        marks.append(next_mark(marks[-1], traffic, empty, BEGAN + 3600.0 * hours, stable))
    store.put_status(marks_key("m"), dump_marks(marks))
    store.report(GatewayReport(gateway="g", sequence=1, models=(traffic,)))
    for name, version, start_h, end_h in (("i-1", OLD, 0.0, 1.5), ("i-2", NEW, 1.0, None)):
        for state, hour in (("running", start_h), ("terminated", end_h)):
            if hour is not None:
                store.note(
                    Transition(
                        instance=name,
                        model="m",
                        offering=SMALL.name,
                        role=Role.SERVING,
                        state=state,  # type: ignore[arg-type]
                        at=BEGAN + 3600.0 * hour,
                        version=version,
                    )
                )


def test_versions_stand_in_the_report_with_what_they_answered_and_cost(store: ServiceStore) -> None:
    a_rollout(store)
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0)
    (model,) = report.models
    old, new = model.versions
    assert [one.version for one in model.versions] == [OLD, NEW], "as they served"
    assert (old.requests, new.requests) == (3900, 5100)
    assert (old.attained, new.attained) == (1.0, pytest.approx(1 - 60 / 5100))
    assert (old.instance_hours, new.instance_hours) == (pytest.approx(1.5), pytest.approx(2.0))
    assert old.rent_usd + new.rent_usd == pytest.approx(model.cost.instances)
    assert (old.lambda_usd or 0.0) + (new.lambda_usd or 0.0) == pytest.approx(model.cost.lambda_)
    assert new.lambda_usd == pytest.approx(170 * overflow().usd_per_request + 255.0 * overflow().usd_per_gib_s), (
        "20 in the rollout, 150 after the promotion"
    )
    assert old.usd_per_million == pytest.approx(1e6 * old.cost_usd / 3900)


def test_of_one_version_nothing_is_told_apart(store: ServiceStore) -> None:
    a_rollout(store)
    (model,) = read_cost_report(store, period_s=3600.0, wall_at=0.0).models
    assert model.answers.answered == 3000
    assert model.versions == ()


def test_a_status_counts_the_cost_to_an_instant_that_has_passed(store: ServiceStore) -> None:
    a_life(store)
    earlier = BEGAN + 1820.0  # half an hour after the first instance's start
    (model,) = LiveView(store, "vision").status(until=earlier).models
    assert model.cost_usd.instances == pytest.approx(0.5 * LARGE.usd_per_hour)
    later, now = (LiveView(store, "vision").status(**given) for given in ({"until": NOW + 3600.0}, {}))
    assert later.models == now.models


def test_the_fleet_of_a_status_has_the_prices_of_the_bill(store: ServiceStore) -> None:
    """What the ledger bills has the price that it was booked at, what it does not yet that of the last tick."""
    stands_at(store, NOW)
    for name, usd in (("i-1", 0.03), ("i-2", 0.04)):
        store.note(
            Transition(
                instance=name,
                model="m",
                offering=SMALL.name,
                role=Role.SERVING,
                state="running",
                at=NOW - 60.0,
                usd_per_hour=usd,
            )
        )
    known = {
        "i-1": (InstanceState.READY, 0.09),
        "i-2": (InstanceState.DRAINING, 0.09),
        "i-3": (InstanceState.PENDING, 0.05),
        "i-4": (InstanceState.PENDING, None),
        "i-5": (InstanceState.STOPPED, 0.07),
    }
    observed = tuple(
        PublishedInstance(id=name, offering=SMALL.name, state=state, usd_per_hour=usd)
        for name, (state, usd) in known.items()
    )
    MODEL.write(store, PublishedModel(at=NOW, began_at=NOW - 60.0, observed=observed), "m")
    (model,) = LiveView(store, "vision").status().models
    assert [one.usd_per_hour for one in model.fleet.observed] == [0.03, 0.04, 0.05, None, 0.07]
    (row,) = model.capacity
    assert row.usd_per_hour == pytest.approx(0.03 + 0.04 + 0.05 + SMALL.usd_per_hour), "nothing of what sleeps"
    assert model.usd_per_hour_by.instances == pytest.approx(0.03 + 0.04)


def test_a_period_has_its_part(store: ServiceStore) -> None:
    a_life(store)
    report = read_cost_report(store, period_s=DAY_S, wall_at=0.0)
    (model,) = report.models

    assert {item.day for item in report.lines} == {day_of(NOW - DAY_S), day_of(NOW)}
    assert model.cost.instances == pytest.approx(24 * LARGE.usd_per_hour)  # the small ones went before
    assert model.answers.finished == pytest.approx(518_918 / 3, abs=5)


def test_a_report_of_the_past_is_not_changed_by_what_came_since(store: ServiceStore) -> None:
    a_life(store)
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=0.0, speed=1.0))
    report = read_cost_report(store, period_s=DAY_S, wall_at=NOW - DAY_S)
    (model,) = report.models

    assert (report.since, report.until) == (NOW - 2 * DAY_S, NOW - DAY_S)
    assert model.answers.finished == pytest.approx(518_918 / 3, abs=5)
    assert model.cost.instances == pytest.approx(24 * LARGE.usd_per_hour + 6 * SMALL.usd_per_hour)


def test_the_journal_tells_of_decisions_and_interruptions(store: ServiceStore) -> None:
    a_life(store)
    tick_lines(store)
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0)
    (model,) = report.models

    assert (model.policy, model.interruptions, model.launched) == (POLICY.name, 1, 3)
    (decision,) = model.decisions
    assert decision.what == f"launch 3 {LARGE.name}"
    assert decision.usd_per_hour == 3 * LARGE.usd_per_hour
    assert len(decision.reason) <= 240
    assert model.journal_since == BEGAN + DAY_S
    assert any("as far back as the journal reaches" in note for note in report.notes)
    assert model.never_chosen == ()


def test_what_was_rented_to_be_shared_was_chosen(store: ServiceStore) -> None:
    store.put_spec(ServiceSpec(name="vision", models=(SERVED,), footprint=FOOTPRINT, shares=True))
    MODEL.write(store, PublishedModel(at=NOW, began_at=BEGAN), "m")
    stands_at(store, NOW)
    tick_lines(store)
    rented(store, "i-9", SMALL.name, BEGAN + 7200.0, None, model=SHARED)
    found = []
    for sequence, usd in enumerate((0.0, 0.5), start=1):
        took = ModelTraffic(model="m", shared_usd=usd)
        store.report(GatewayReport(gateway="shared", sequence=sequence, models=(took,)))
        (model,) = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0).models
        found.append([name for name, _ in model.never_chosen])
    assert found == [[SMALL.name, LARGE.name], [LARGE.name]]


def test_the_load_from_which_it_pays_is_that_of_what_the_controller_may_rent(store: ServiceStore) -> None:
    a_life(store)
    assert read_cost_report(store, period_s=DAY_S, wall_at=0.0).models[0].break_even_rps is None, "no journal"
    tick_lines(store)
    cheap = replace(LARGE, zone="b", usd_per_hour=0.001)
    standing_by = replace(SERVED, offerings=(LARGE, SMALL, cheap))
    payload = SERVED.model.payload_mib
    wanted = break_even_rps(FOOTPRINT, POLICY.offerings, overflow(), payload_mib=payload)
    for served, found in (
        (SERVED, wanted),
        (standing_by, wanted),
        (replace(SERVED, overflow=None), None),
        (replace(SERVED, overflow=replace(overflow(), latency_s=2 * SLO.latency_s)), None),
    ):
        store.put_spec(ServiceSpec(name="vision", models=(served,), footprint=FOOTPRINT))
        (model,) = read_cost_report(store, period_s=DAY_S, wall_at=0.0).models
        assert model.break_even_rps == found
    assert wanted is not None


def test_accuracy_stands_beside_attainment_and_over_the_load(store: ServiceStore) -> None:
    a_life(store)
    tick_lines(store)
    report = read_cost_report(store, period_s=2 * DAY_S, wall_at=0.0)
    (model,) = report.models

    assert model.answers.accuracy == pytest.approx(0.75)
    assert [day.answers.accuracy for day in model.days] == [pytest.approx(0.75)] * len(model.days)
    (minute,) = model.accuracy
    assert (minute.mean_rps, minute.answered) == (2.0, ServedAccuracy(answers=118, mean=0.75))
    (document,) = report_document(report)["models"]  # type: ignore[misc, attr-defined]
    assert document["objective"]["accuracy"] == pytest.approx(0.75)
    assert document["accuracy"] == [
        {"since": minute.since, "until": minute.until, "mean_rps": 2.0, "accuracy": 0.75}
    ]
    mail = message.render(report)
    assert "Accuracy: 75.00 % (mean of the variants that answered)" in mail.text
    assert "accuracy-0" in dict(mail.images)


def day_of(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def a_day(at: float, **policies: float) -> ReplayedDay:
    """The replay of the whole day that holds `at`."""
    start = at // DAY_S * DAY_S
    runs = {
        name: ReplayedPolicy(serving_usd=usd, overhead_usd=1.0, requests=1000, missed=10)
        for name, usd in policies.items()
    }
    return ReplayedDay(day=day_of(at), since=start, until=start + DAY_S, policies=runs)


def test_replays_that_were_kept_stand_beside_the_ledger_of_their_days(store: ServiceStore) -> None:
    a_life(store)
    whole = BEGAN + DAY_S
    keep_replayed_days(store, "m", a_day(whole, reactive=80.0, other=1.0), a_day(whole + DAY_S, reactive=70.0))
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0)
    assert report.month is not None
    assert 0 < report.month.usd <= report.cost.total * (1 + 1e-9)
    assert report.month.projected_usd is not None
    assert report.month.projected_usd > report.month.usd
    (baseline,) = report.models[0].baselines  # the other was not replayed on both

    assert (baseline.policy, baseline.replayed_s) == ("reactive", 2 * DAY_S)
    assert baseline.usd == 152.0
    assert baseline.attained == pytest.approx(0.99)
    days = {day_of(whole), day_of(whole + DAY_S)}
    assert baseline.measured_usd == pytest.approx(sum(i.line.usd for i in report.lines if i.day in days))


def test_a_baseline_knew_what_would_come_where_its_replay_did(store: ServiceStore) -> None:
    a_life(store)
    day = a_day(BEGAN + DAY_S, reactive=80.0, perfect=60.0)
    knew = {name: replace(run, uses_truth=name == "perfect") for name, run in day.policies.items()}
    keep_replayed_days(store, "m", replace(day, policies=knew))
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0)

    assert {one.policy: one.uses_truth for one in report.models[0].baselines} == {
        "perfect": True,
        "reactive": False,
    }


def test_a_replay_of_another_part_of_the_day_is_not_used(store: ServiceStore) -> None:
    a_life(store)
    cut = replace(a_day(BEGAN + DAY_S, reactive=80.0), until=BEGAN + DAY_S)
    assert (
        read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0, replays={"m": [cut]}).models[0].baselines == ()
    )


@pytest.mark.parametrize(("replayed_s", "told"), [(480.0, True), (12 * 3600.0, False)])
def test_a_short_replay_from_the_beginning_says_that_fleets_boot_in_it(
    store: ServiceStore, replayed_s: float, *, told: bool
) -> None:
    a_life(store)
    stands_at(store, BEGAN + replayed_s)
    first = replace(a_day(BEGAN, reactive=80.0), since=BEGAN + 60.0, until=BEGAN + replayed_s)
    later = replace(first, since=BEGAN + 200.0)
    for replay, expected in ((first, told), (later, False)):
        period_s = BEGAN + replayed_s - replay.since
        report = read_cost_report(store, period_s=period_s, wall_at=0.0, replays={"m": [replay]})
        assert report.models[0].baselines
        assert any("no fleet there" in note for note in report.notes) == expected


def test_a_report_of_a_morning_tells_of_the_day_that_is_over(store: ServiceStore) -> None:
    a_life(store)
    yesterday = a_day(BEGAN + 2 * DAY_S, reactive=80.0)
    stands_at(store, yesterday.until + 7 * 3600.0)
    report = read_cost_report(store, period_s=DAY_S, wall_at=0.0, replays={"m": [yesterday]})
    (model,) = report.models
    (baseline,) = model.baselines

    assert (baseline.since, baseline.until, baseline.replayed_s) == (yesterday.since, yesterday.until, DAY_S)
    stands_at(store, yesterday.until)
    (whole,) = read_cost_report(store, period_s=DAY_S, wall_at=0.0).models
    everything = read_cost_report(store, period_s=DAY_S, wall_at=0.0)
    assert baseline.measured_usd == pytest.approx(everything.cost.total)
    assert baseline.measured_attained == whole.answers.attained
    said, _, replayed = mail_text(mail_view(report)).partition("Replayed on")
    assert said
    assert replayed.startswith(" the arrivals of 24 h")
    assert "08:00" not in replayed[:90]


def test_kept_days_are_the_last_forty(store: ServiceStore) -> None:
    keep_replayed_days(store, "m", *(a_day(BEGAN + number * DAY_S, reactive=1.0) for number in range(50)))
    kept = replayed_days(store, "m")
    assert [item.day for item in kept] == [day_of(BEGAN + number * DAY_S) for number in range(10, 50)]


def test_cost_explorer_stands_beside_the_ledger(store: ServiceStore) -> None:
    a_life(store)
    day = day_of(BEGAN + DAY_S)
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0, aws_usd={day: 30.0})
    rows = {row.day: row for row in report.reconciliation}

    assert len(rows) == 4
    assert rows[day].difference_usd == pytest.approx(30.0 - rows[day].ledger_usd)
    assert rows[day_of(NOW)].difference_usd is None
    assert "Days that AWS has billed" in mail_text(mail_view(report))


def test_what_nobody_uses_of_a_commitment_is_not_reconciled(store: ServiceStore) -> None:
    a_life(store)
    day = day_of(BEGAN + DAY_S)
    plain = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0, aws_usd={day: 30.0})
    idle = ReservedInstances(name="idle", instance_type="x2gd.medium", count=9.0, usd_per_hour=1.0)
    COMMITMENTS.write(store, AccountCommitments(commitments=Commitments(reservations=(idle,))))
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0, aws_usd={day: 30.0})
    assert report.cost.commitments > 0.0
    assert report.reconciliation == plain.reconciliation


def test_a_service_that_has_only_begun_renders(store: ServiceStore) -> None:
    stands_at(store, NOW)
    assert report_period(store, period_s=DAY_S, wall_at=0.0).since == NOW
    report = read_cost_report(store, period_s=DAY_S, wall_at=0.0)

    assert not report.has_data
    assert report.notes == ()
    assert "no request arrived" in message.render(report).html


def test_an_offering_that_is_offered_no_more_is_told_of(store: ServiceStore) -> None:
    a_life(store)
    rented(store, "i-9", "x1.32xlarge:spot", BEGAN + 60.0, None)
    report = read_cost_report(store, period_s=30 * DAY_S, wall_at=0.0)
    assert any("x1.32xlarge:spot: no longer offered and in no price list" in note for note in report.notes)


@pytest.mark.parametrize(
    ("period_s", "said"), [(0.5, "in 0.5 s"), (20.0, "in 20 s"), (90.0, "in 90 s"), (150.0, "in 2 min")]
)
def test_a_period_of_seconds_is_told_in_seconds(store: ServiceStore, period_s: float, said: str) -> None:
    a_life(store)
    report = read_cost_report(store, period_s=period_s, wall_at=0.0)
    view = mail_view(report)
    assert said in view.subject
    assert ("12:00:00 UTC" in mail_text(view)) == (period_s < 120)
    assert report.cost.total > 0


def test_the_last_hours_add_up_to_their_part_of_the_bill(store: ServiceStore) -> None:
    a_life(store)
    day = read_cost_report(store, period_s=DAY_S, wall_at=0.0)  # it ends on an hour

    assert [hour.at for hour in day.hours] == [NOW - 3600.0 * back for back in range(24, 0, -1)]
    cost = day.cost
    assert sum(hour.instances for hour in day.hours) == pytest.approx(cost.instances + cost.standby)
    assert sum(hour.overhead for hour in day.hours) == pytest.approx(cost.overhead)


def test_the_load_ahead_is_told_while_it_lies_ahead(store: ServiceStore) -> None:
    a_life(store)
    published = MODEL.read(store, "m") or PublishedModel()
    assert read_cost_report(store, period_s=DAY_S, wall_at=0.0).models[0].ahead is None
    series = LoadSeries(
        start_at=NOW - 120.0,
        mean_rps=(1.0, 2.0),
        max_rps=(2.0, 3.0),
        capacity_rps=(9.0, None),
        forecast_start_at=NOW,
        forecast_max_rps=(3.0,) * 60,
    )
    plan = PlanStatus(capacity_rps=12.0)
    MODEL.write(store, replace(published, series=series, plan=plan), "m")
    found = read_cost_report(store, period_s=DAY_S, wall_at=0.0).models[0].ahead
    assert found == LoadAhead(series=series, planned_rps=12.0)

    late = replace(series, start_at=NOW - 7320.0, forecast_start_at=NOW - 7200.0)
    MODEL.write(store, replace(published, series=late, plan=plan), "m")
    assert read_cost_report(store, period_s=DAY_S, wall_at=0.0).models[0].ahead is None
