"""Commitments are read once an hour and shared among models; a reading that fails leaves the last one."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments, PlanKind, SavingsPlan
from mark.domain.errors import Misconfigured
from mark.domain.fleet.host_spec import SHARED
from mark.live.control.watches.commitment_watch import EACH_S, CommitmentWatch
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import COMMITMENTS, MODEL, PublishedInstance, PublishedModel
from mark.store.service import ServiceStore
from tests.aws.builders import HandClock
from tests.footprints import FOOTPRINT


def owned(usd_per_hour: float) -> Commitments:
    plan = SavingsPlan(
        name="plan", kind=PlanKind.COMPUTE, usd_per_hour=usd_per_hour, discounts=((Compute.EC2, 0.25),)
    )
    return Commitments(plans=(plan,), zones=FOOTPRINT.zones)


class Account:
    """An account whose commitments change, and may not be had."""

    def __init__(self) -> None:
        self.owned, self.refuses, self.asked = owned(5.0), False, 0
        self.recorded: list[str | None] = []

    def read(self) -> Commitments:
        self.asked += 1
        if self.refuses:
            raise Misconfigured("DescribeSavingsPlans: AccessDenied")
        return self.owned


def watch(account: Account, store: ServiceStore, clock: HandClock, *, asks: bool = True) -> CommitmentWatch:
    return CommitmentWatch(
        account.read if asks else None,
        footprint=replace(FOOTPRINT, commitments=NO_COMMITMENTS if asks else account.owned),
        models=["b", "a"],
        store=store,
        clock=clock,
        record=account.recorded.append,
    )


def left(made: CommitmentWatch, model: str) -> float:
    found = made.left_for(model)
    assert found is not None
    return found.usd_per_hour


def test_they_are_read_once_an_hour_and_stay_where_that_fails(redis: EmbeddedRedis) -> None:
    account, clock, store = Account(), HandClock(), ServiceStore(connect(redis.url), "daily")
    made = watch(account, store, clock)
    made.poll()
    made.poll()
    assert (account.asked, made.all()) == (1, owned(5.0))
    account.refuses = True
    clock.at += EACH_S
    made.poll()
    assert (account.asked, made.all()) == (2, owned(5.0))
    again = watch(account, store, clock)
    assert again.all() == owned(5.0)
    account.refuses, account.owned = False, owned(3.0)
    clock.at += EACH_S
    made.poll()
    assert made.all() == owned(3.0)
    assert account.recorded == [None, "DescribeSavingsPlans: AccessDenied", None]
    kept = COMMITMENTS.read(store)
    assert kept is not None
    assert (kept.commitments, kept.read_at) == (owned(3.0), clock.at)


def test_rates_of_a_plan_that_ended_stay_known(redis: EmbeddedRedis) -> None:
    account, clock, store = Account(), HandClock(), ServiceStore(connect(redis.url), "rates")
    (plan,) = account.owned.plans
    rated = replace(plan, rates=(("c5.large", 0.06),), discounts=())
    account.owned = Commitments(plans=(rated,))
    made = watch(account, store, clock)
    made.poll()
    account.owned = Commitments(plans=(replace(rated, rates=(), ends_at=clock.at),))
    clock.at += EACH_S
    made.poll()
    assert made.all().plans[0].rates == rated.rates


def test_a_model_counts_what_those_before_it_leave(redis: EmbeddedRedis) -> None:
    account, clock, store = Account(), HandClock(), ServiceStore(connect(redis.url), "shared")
    made = watch(account, store, clock)
    assert made.left_for(SHARED) == made.all() == NO_COMMITMENTS
    made.poll()
    standing = left(made, "a")
    assert left(made, "b") == left(made, SHARED) == standing < 5.0
    running = tuple(
        PublishedInstance(id=f"i-{number}", offering="c5.large:on-demand", usd_per_hour=0.085)
        for number in range(4)
    )
    for model in ("a", "b"):
        MODEL.write(store, PublishedModel(observed=running), model)
    made.poll()
    assert left(made, "a") == standing
    assert abs(left(made, "b") - (standing - 4 * 0.085 * 0.75)) < 1e-9
    MODEL.write(store, PublishedModel(observed=running[:1]), SHARED)
    made.poll()
    assert left(made, SHARED) == standing
    assert abs(left(made, "a") - (standing - 0.085 * 0.75)) < 1e-9, (
        "what models share comes before each model's own"
    )


def test_those_of_a_file_are_told_to_reports_and_nobody_is_asked(redis: EmbeddedRedis) -> None:
    account, clock, store = Account(), HandClock(), ServiceStore(connect(redis.url), "file")
    made = watch(account, store, clock, asks=False)
    made.poll()
    assert (account.asked, made.all()) == (0, owned(5.0))
    kept = COMMITMENTS.read(store)
    assert kept is not None
    assert (kept.commitments, kept.read_at) == (owned(5.0), None)


def test_a_term_that_is_over_is_left_to_nobody(redis: EmbeddedRedis) -> None:
    account, clock, store = Account(), HandClock(), ServiceStore(connect(redis.url), "over")
    (plan,) = account.owned.plans
    account.owned = Commitments(plans=(replace(plan, ends_at=clock.at + 10.0),), zones=FOOTPRINT.zones)
    made = watch(account, store, clock)
    made.poll()
    assert left(made, "a") > 0.0
    clock.at += 11.0
    made.poll()
    assert left(made, "a") == 0.0
