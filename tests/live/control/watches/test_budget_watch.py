"""The spending limit of a live service: computed from its ledger on a real store, and told to gateways."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mark.accounting.hourly_totals import dump_marks, first_mark, marks_key
from mark.cli.main import run
from mark.config.budget import BudgetSettings
from mark.config.settings import Settings
from mark.domain.billing.costs import Transition
from mark.domain.billing.spending import LimitCause, OutsidePause, SpendingLimit
from mark.domain.clock import ClockAnchor
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import Commitments, PlanKind, SavingsPlan
from mark.domain.fleet.instances import Role
from mark.live.clock import ServiceClock
from mark.live.commands import pause
from mark.live.control.watches.budget_watch import POLL_S, SPENDING_EACH_S, BudgetWatch
from mark.live.models import make_live_models, service_spec
from mark.live.status.view import LiveView
from mark.service_spec import ServedModel, ServiceSpec
from mark.store.connect import connect, connect_async
from mark.store.data_plane import GatewayStore
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import (
    BUDGET,
    OUTSIDE_PAUSE,
    PAUSE,
    SPEND,
    BudgetStatus,
    OutsidePauseStatus,
    PauseRequest,
)
from mark.store.service import ServiceStore
from tests.footprints import FOOTPRINT

DAY_S = 86400.0
NOON = 20_000 * DAY_S + DAY_S / 2
SETTINGS = Settings.model_validate(
    {"service": {"serve": [{"model": "inception-v3", "market": "spot", "offerings": {"types": ["c5.large"]}}]}}
)


@pytest.fixture(scope="module")
def served() -> ServedModel:
    (model,) = make_live_models(SETTINGS)
    return model.served


@pytest.fixture
def store(redis: EmbeddedRedis, served: ServedModel, request: pytest.FixtureRequest) -> ServiceStore:
    """A service whose one instance has run since noon; it is two hours later."""
    made = ServiceStore(connect(redis.url), request.node.name)
    made.put_spec(service_spec(SETTINGS, make_live_models(SETTINGS)))
    at(made, NOON + 7200.0)
    made.put_status(marks_key(served.name), dump_marks([first_mark(NOON)]))
    for state, when in (("pending", NOON - 10.0), ("running", NOON)):
        told = {"instance": "i-1", "model": served.name, "offering": "c5.large:spot", "role": Role.SERVING}
        made.note(Transition(**told, state=state, at=when))
    return made


def at(store: ServiceStore, service_at: float) -> None:
    """The service's clock stands at that instant."""
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=service_at, speed=0.0))


Outside = Callable[[], OutsidePauseStatus | None]
STANDS, NONE_STANDS = (
    OutsidePauseStatus(pause=OutsidePause(by="arn:aws:iam::1:user/anna", at=NOON)),
    OutsidePauseStatus(),
)


def watch(
    store: ServiceStore,
    served: ServedModel,
    woken: list[int],
    outside: Outside = lambda: None,
    **asked: Any,
) -> BudgetWatch:
    settings = BudgetSettings.model_validate(asked)
    return BudgetWatch(
        settings,
        [served],
        footprint=FOOTPRINT,
        store=store,
        clock=ServiceClock(store),
        outside=outside,
        wake=lambda: woken.append(1),
    )


def closed(redis: EmbeddedRedis, store: ServiceStore, name: str) -> bool:
    async def ask() -> bool:
        link = connect_async(redis.url)
        try:
            return await GatewayStore(link, name).spending_limit() is not SpendingLimit.NONE
        finally:
            await link.aclose()

    return asyncio.run(ask())


def test_two_hours_cost_what_the_bill_says(store: ServiceStore, served: ServedModel) -> None:
    made = watch(store, served, [])
    made.poll()
    told = BUDGET.read(store)
    assert told is not None
    assert told.day_usd == told.month_usd > 2 * served.offering("c5.large:spot").usd_per_hour
    assert (told.limited_by, told.reasons) == (SpendingLimit.NONE, ())


def test_the_overhead_of_the_status_has_what_commitments_add_to_the_bill(
    store: ServiceStore, served: ServedModel
) -> None:
    plan = SavingsPlan(name="plan", kind=PlanKind.COMPUTE, usd_per_hour=2.0, discounts=((Compute.EC2, 0.25),))
    BudgetWatch(
        BudgetSettings(),
        [served],
        footprint=FOOTPRINT,
        store=store,
        clock=ServiceClock(store),
        outside=lambda: None,
        wake=lambda: None,
        commitments=lambda: Commitments(plans=(plan,), zones=FOOTPRINT.zones),
    ).poll()
    told = BUDGET.read(store)
    assert told is not None
    assert told.commitments_usd > 2.0
    assert LiveView(store, "mark").status().overhead.usd == pytest.approx(told.commitments_usd)


def test_an_hour_costs_the_same_once_marks_of_the_first_hours_are_gone(
    store: ServiceStore, served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mark.live.clock.REFRESH_S", -1.0)
    made = watch(store, served, [])
    made.poll()
    at(store, NOON + 10_800.0)
    store.put_status(marks_key(served.name), dump_marks([first_mark(NOON + 3600.0)]))
    for _ in range(round(SPENDING_EACH_S / POLL_S)):
        made.poll()
    told = SPEND.read(store)
    assert told is not None
    *_, second, third = told.hours
    assert third.at == NOON + 7200.0
    assert third.overhead == pytest.approx(second.overhead)
    assert third.overhead > 0.0


def test_a_type_that_was_removed_stops_no_computing_of_the_spending(
    store: ServiceStore, served: ServedModel, caplog: pytest.LogCaptureFixture
) -> None:
    """Spot was sold before; then on-demand of another type is, and one type nobody has a price of."""
    settings = SETTINGS.model_dump(exclude_unset=True)
    serve = {"model": "inception-v3", "market": "on-demand", "offerings": {"types": ["c5.xlarge"]}}
    settings["service"]["serve"] = [serve]
    (model,) = make_live_models(Settings.model_validate(settings))
    assert not [item for item in model.served.offerings if item.name == "c5.large:spot"]
    watch(store, served, []).poll()
    before = BUDGET.read(store)
    watch(store, model.served, []).poll()
    assert BUDGET.read(store) == before  # the record bears no price: it is the catalogue's

    strange = {"instance": "i-9", "model": served.name, "offering": "q9.huge:spot", "role": Role.SERVING}
    store.note(Transition(**strange, state="running", at=NOON))  # type: ignore[arg-type]
    made = watch(store, model.served, [])
    made.poll()
    made.poll()
    assert [
        record.__dict__["why"]
        for record in caplog.records
        if record.message == "offerings without a price are left out of the budget"
    ] == ["q9.huge:spot: no longer offered and in no price list; no sum holds what they cost"]
    [told] = LiveView(store, store.spec().name).status().models
    assert any("q9.huge:spot" in note for note in told.notes)


def test_a_reached_budget_is_told_to_gateways_and_ends_with_the_day(
    redis: EmbeddedRedis, store: ServiceStore, served: ServedModel, request: pytest.FixtureRequest
) -> None:
    woken: list[int] = []
    assert not closed(redis, store, request.node.name)
    made = watch(store, served, woken, daily_usd=0.01, when_reached="floor")
    made.poll()
    assert made.spending_limit() is SpendingLimit.FLOOR
    assert closed(redis, store, request.node.name)
    made.poll()
    assert woken == [1]

    at(store, NOON + DAY_S / 2)  # midnight
    again = watch(store, served, woken, daily_usd=0.01, when_reached="floor")
    again.poll()
    assert again.spending_limit() is SpendingLimit.NONE
    assert not closed(redis, store, request.node.name)
    told = BUDGET.read(store)
    assert told is not None
    assert 0 <= told.day_usd < 0.01 < told.month_usd


def test_warning_holds_nothing_back(store: ServiceStore, served: ServedModel) -> None:
    made = watch(store, served, [], monthly_usd=0.01)
    made.poll()
    told = BUDGET.read(store)
    assert told is not None
    assert (told.limited_by, len(told.reasons)) == (SpendingLimit.NONE, 1)


def published_cause(store: ServiceStore) -> LimitCause | None:
    found = BUDGET.read(store)
    return found and found.limit_cause


def test_a_pause_by_hand_comes_before_the_budget_and_goes(store: ServiceStore, served: ServedModel) -> None:
    made = watch(store, served, [], daily_usd=0.01, when_reached="floor")
    PAUSE.write(store, PauseRequest(on=True, at=NOON))
    made.poll()
    assert (made.spending_limit(), published_cause(store)) == (SpendingLimit.PAUSE, LimitCause.PAUSE)
    PAUSE.write(store, PauseRequest(on=False, at=NOON))
    made.poll()
    assert (made.spending_limit(), published_cause(store)) == (SpendingLimit.FLOOR, LimitCause.BUDGET)


def test_a_pause_from_outside_ends_all_says_who_and_goes(store: ServiceStore, served: ServedModel) -> None:
    woken: list[int] = []
    answers = [NONE_STANDS, STANDS, STANDS, NONE_STANDS]
    made = watch(store, served, woken, lambda: answers.pop(0), daily_usd=0.01, when_reached="floor")
    made.poll()
    assert (made.spending_limit(), published_cause(store)) == (SpendingLimit.FLOOR, LimitCause.BUDGET)
    made.poll()
    assert (made.spending_limit(), published_cause(store)) == (SpendingLimit.PAUSE, LimitCause.OUTSIDE)
    told = BUDGET.read(store)
    assert told is not None
    assert told.reasons[0] == (
        "paused from outside by arn:aws:iam::1:user/anna on 2024-10-04 at 12:00 UTC, "
        "until `mark pause --aws --off`"
    )
    PAUSE.write(store, PauseRequest(on=True, at=NOON))
    made.poll()
    assert published_cause(store) is LimitCause.PAUSE  # whoever ends that one hears of the other
    PAUSE.write(store, PauseRequest(on=False, at=NOON))
    made.poll()
    assert (made.spending_limit(), published_cause(store)) == (SpendingLimit.FLOOR, LimitCause.BUDGET)
    assert len(woken) == 3


def test_a_controller_that_cannot_ask_outside_keeps_to_what_the_one_before_heard(
    store: ServiceStore, served: ServedModel
) -> None:
    watch(store, served, [], lambda: STANDS).poll()
    assert OUTSIDE_PAUSE.read(store) == STANDS
    unable = watch(store, served, [], lambda: None)
    unable.poll()
    assert unable.spending_limit() is SpendingLimit.PAUSE
    watch(store, served, [], lambda: NONE_STANDS).poll()
    unable.poll()
    assert unable.spending_limit() is SpendingLimit.NONE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget: {daily_usd: 10, monthly_usd: 5}", "no more than monthly_usd"),
        ("budget: {when_reached: stop}", "when_reached"),
        ("budget: {daily_usd: 0}", "daily_usd"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    config = tmp_path / "mark.yaml"
    config.write_text(text)
    assert run(["pause", "--config", str(config)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_nobody_is_paused_where_no_service_is_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    assert run(["pause", "--name", "nobody"]) == 2
    assert "service.store" in capsys.readouterr().err


@pytest.fixture
def other(
    redis: EmbeddedRedis, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceStore]:
    """A service elsewhere; mark.yaml beside it names its store. Nobody waits long for anything."""
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    for limit, seconds in (("POLL_S", 0.01), ("ACKNOWLEDGED_WITHIN_S", 0.05), ("ENDED_S", 0.05)):
        monkeypatch.setattr(pause, limit, seconds)
    name = f"other-{hashlib.sha1(request.node.name.encode(), usedforsecurity=False).hexdigest()[:8]}"
    (tmp_path / "mark.yaml").write_text(f"service: {{name: {name}, store: '{redis.url}'}}")
    with closing(connect(redis.url)) as link:
        made = ServiceStore(link, name)
        made.put_spec(ServiceSpec(name=name, models=()))
        made.put_clock(ClockAnchor(wall_at=0.0, service_at=NOON, speed=0.0))
        yield made


def paused(tmp_path: Path, *flags: str) -> int:
    return run(["pause", "--config", str(tmp_path / "mark.yaml"), *flags])


def last_word(store: ServiceStore, *, on: bool) -> None:
    """The document of a controller that confirms a pause, or its end."""
    limited_by = SpendingLimit.PAUSE if on else SpendingLimit.NONE
    cause = LimitCause.PAUSE if on else LimitCause.NONE
    BUDGET.write(store, BudgetStatus(limited_by=limited_by, limit_cause=cause, reasons=("any sentence",)))


def test_a_pause_says_how_this_very_service_goes_on(
    other: ServiceStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert other.leases.acquire("controller", 60.0) is not None
    last_word(other, on=True)
    assert paused(tmp_path) == 0
    name = other.spec().name
    assert f"`mark pause --off --name {name}` goes on" in capsys.readouterr().out
    last_word(other, on=False)
    assert paused(tmp_path, "--off") == 0
    assert "goes on" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [(), ("--off",), ("--json",), ("--off", "--json")])
@pytest.mark.parametrize("says", ["nothing", "the last word of one that has gone", "another thing"])
def test_a_pause_that_no_controller_confirms_fails(
    flags: tuple[str, ...],
    says: str,
    other: ServiceStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on = "--off" not in flags
    if says == "another thing":
        assert other.leases.acquire("controller", 60.0) is not None
        last_word(other, on=not on)
    elif says != "nothing":
        last_word(other, on=on)
    assert paused(tmp_path, *flags) == 1
    told = capsys.readouterr()
    assert "nothing has changed: no controller" in told.err
    if "--json" in flags:
        assert json.loads(told.out)["heard"] is False
    else:
        assert told.out == ""


def test_a_pause_that_leaves_instances_running_fails(
    other: ServiceStore, served: ServedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other.put_spec(ServiceSpec(name=other.spec().name, models=(served,)))
    told: dict[str, Any] = {"instance": "i-1", "model": served.name, "offering": "c5.large:spot"}
    other.note(Transition(**told, role=Role.SERVING, state="running", at=NOON))
    assert other.leases.acquire("controller", 60.0) is not None
    last_word(other, on=True)
    assert paused(tmp_path) == 1
    said = capsys.readouterr()
    assert "did not end within 0.05 s: 1;" in said.err
    assert said.out == ""


def test_a_pause_that_ends_says_that_another_stands_outside(
    other: ServiceStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert other.leases.acquire("controller", 60.0) is not None
    BUDGET.write(other, BudgetStatus(limited_by=SpendingLimit.PAUSE, limit_cause=LimitCause.OUTSIDE))
    assert paused(tmp_path, "--off") == 1
    said = capsys.readouterr()
    assert f"`mark pause --aws --off --name {other.spec().name}` ends that" in said.err
    assert said.out == ""
