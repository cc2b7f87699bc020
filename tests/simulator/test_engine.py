"""The engine's own duties: instances that come and go, the monitor's window, warm-up pings, series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.controller.policy import MonitorPolicy
from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.domain.load.outcomes import Outcomes
from mark.domain.models.objective import Slo
from mark.domain.models.profile import LatencyPoint
from mark.domain.offerings.offering import PING_S, LambdaOffering
from mark.simulator.engine.arrays import FIRST_QUEUE, FIRST_SLOTS
from mark.simulator.engine.compiled import Kernel
from tests.planner.builders import KNOWN, offering
from tests.scenarios.builders import validate_engine
from tests.simulator.engines import SLO, batching, burstable, engine, lambda_offering, poisson

PATIENT = DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=None)
SECOND = offering(rps=1.0)
"""An instance that takes a second for a request."""


def test_what_a_lost_instance_held_is_answered_elsewhere(kernel: Kernel) -> None:
    made = engine(kernel, [0.0, 0.1, 0.2, 0.3], dispatch=PATIENT, duration_s=20.0)
    lost = made.add(SECOND, standby=False)
    made.run_until(0.5)
    made.add(SECOND, standby=False)
    made.remove(lost, redispatch=True)
    made.run_until(20.0)
    served = made.served()
    assert (served.instance, served.shed, served.in_flight) == (4, 0, 0)
    # From 0.5 s on one after the other: answered at 1.5, 2.5, 3.5, 4.5 s; latency counts from the arrival.
    assert made.latency().mean_s == pytest.approx((1.5 + 2.4 + 3.3 + 4.2) / 4)


def test_what_a_lost_instance_held_is_shed_where_the_model_forbids_a_second_run(kernel: Kernel) -> None:
    made = engine(kernel, [0.0, 0.1, 0.2, 2.5], dispatch=PATIENT, duration_s=20.0)
    lost = made.add(SECOND, standby=False)
    made.run_until(1.5)
    made.remove(lost, redispatch=False)
    made.run_until(20.0)
    served = made.served()
    assert (served.instance, served.shed, served.in_flight) == (1, 3, 0)
    assert made.attained() == 0.0  # the first took a second, above the objective


def test_a_removed_slot_is_used_again_and_starts_empty(kernel: Kernel) -> None:
    made = engine(kernel, [0.0, 0.0, 3.0], dispatch=PATIENT)
    slots = [made.add(SECOND, standby=False) for _ in range(FIRST_SLOTS)]
    made.run_until(0.5)
    for slot in slots:
        made.remove(slot, redispatch=False)
    again = made.add(offering(rps=10.0), standby=True)
    assert again in slots
    assert made.is_idle(again)
    made.run_until(4.0)
    assert made.served().standby == 1
    assert made.seconds().latency_max_s[3] == pytest.approx(0.1)
    validate_engine(made)


def test_slots_and_rings_grow_without_losing_anything(kernel: Kernel) -> None:
    arrivals = np.sort(np.concatenate([np.linspace(0.0, 0.9, 5 * FIRST_QUEUE), poisson(50.0, 30.0, 1)]))
    made = engine(kernel, arrivals, dispatch=replace(PATIENT, give_up_s=1e9), duration_s=4000.0)
    made.add(SECOND, standby=False)
    made.run_until(1.0)
    for _ in range(3 * FIRST_SLOTS):
        made.add(batching(32, 0.5, 4.0), standby=False)
        validate_engine(made)
    made.run_until(4000.0)
    assert made._fleet.servers.size > 3 * FIRST_SLOTS
    assert made._fleet.queue.shape[1] > 4 * FIRST_QUEUE
    assert made.served().instance == arrivals.size


def test_draining_answers_what_is_held_and_takes_nothing_new(kernel: Kernel) -> None:
    made = engine(kernel, [0.0, 0.1, 0.2, 5.0], dispatch=PATIENT, duration_s=20.0)
    slot = made.add(SECOND, standby=False)
    made.run_until(0.5)
    made.stop_accepting(slot)
    assert made.drained_at(slot) == pytest.approx(3.0)
    made.run_until(3.0)
    assert made.is_idle(slot)
    assert made.drained_at(slot) == 3.0
    made.run_until(20.0)
    served = made.served()
    assert (served.instance, served.shed) == (3, 1)


def test_an_instance_about_to_go_takes_only_what_it_finishes(kernel: Kernel) -> None:
    for routing in Routing:
        dispatch = replace(PATIENT, routing=routing)
        made = engine(kernel, [0.0, 0.1, 0.2], dispatch=dispatch, duration_s=20.0)
        slot = made.add(SECOND, standby=False)
        made.will_go(slot, 2.05)
        made.run_until(2.05)
        assert made.is_idle(slot), routing
        made.remove(slot, redispatch=True)
        assert (made.served().instance, made.served().shed) == (2, 1), routing


def test_a_missed_window_stops_the_engine_with_every_ended_batch_completed(kernel: Kernel) -> None:
    """The controller looks at instances at that instant: one that is idle must look idle."""
    made = engine(
        kernel,
        [0.0, 0.05, 1.7, 1.8],
        dispatch=replace(PATIENT, routing=Routing.WEIGHTED),
        slo=replace(SLO, target=1.0),
        monitor=MonitorPolicy(offering="T", requests=1, seconds=60.0),
    )
    first, second = (made.add(SECOND, standby=False) for _ in range(2))
    assert made.run_until(1.75) == 1.7
    assert (made.is_idle(first), made.is_idle(second)) == (False, True)
    assert made.drained_at(second) == 1.7
    window = made.slo_window()
    assert window is not None
    assert (window.closed_at, window.requests, window.missed) == (1.7, 1, 1)


def test_the_monitor_keeps_quiet_during_its_cool_down(kernel: Kernel) -> None:
    arrivals = np.arange(0.0, 40.0, 0.5)
    made = engine(
        kernel, arrivals, dispatch=PATIENT, monitor=MonitorPolicy(offering="T", requests=5, seconds=60.0)
    )
    made.add(SECOND, standby=False)
    stopped_at = made.run_until(30.0)
    assert stopped_at < 30.0
    made.quiet_until(stopped_at + 10.0)
    again_at = made.run_until(30.0)
    assert stopped_at + 10.0 <= again_at < stopped_at + 17.0
    made.quiet_until(np.inf)
    assert made.run_until(30.0) == 30.0


def test_a_window_that_keeps_the_target_does_not_stop_it(kernel: Kernel) -> None:
    """Exactly 1 - target may miss, and one alone."""
    slo = Slo(latency_s=0.6, target=0.75)
    arrivals = [0.0, 0.1, 2.0, 2.1, 4.0, 6.0, 8.0, 10.0, 11.0, 11.5]
    for target, requests, stops in ((0.75, 8, False), (0.76, 8, True), (0.76, 2, False)):
        made = engine(
            kernel,
            arrivals,
            dispatch=PATIENT,
            slo=replace(slo, target=target),
            monitor=MonitorPolicy(offering="T", requests=requests, seconds=60.0),
        )
        made.add(offering(rps=2.0), standby=False)  # the second request of two takes 0.9 s
        assert (made.run_until(12.0) < 12.0) is stops


def test_late_requests_wait_up_to_a_minute_and_are_then_shed(kernel: Kernel) -> None:
    made = engine(kernel, np.zeros(100), dispatch=PATIENT, duration_s=200.0)
    made.add(SECOND, standby=False)
    made.run_until(200.0)
    assert (made.served().instance, made.served().shed) == (60, 40)
    assert made.attained() == 0.0


def test_late_shed_refuses_what_nobody_answers_in_time(kernel: Kernel) -> None:
    for late, answered in ((Late.SERVE, 10), (Late.SHED, 3)):
        dispatch = DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=1.0, late=late)
        made = engine(
            kernel, np.zeros(10), dispatch=dispatch, slo=Slo(latency_s=0.65, target=0.9), duration_s=20.0
        )
        made.add(offering(rps=5.0), standby=False)
        made.run_until(20.0)
        assert (made.served().instance, made.served().shed) == (answered, 10 - answered)
        assert made.attained() == pytest.approx(0.3)


def test_without_lambda_or_instances_everything_is_shed(kernel: Kernel) -> None:
    made = engine(kernel, [0.5, 1.0])
    made.run_until(3.0)
    assert (made.served().shed, made.attained()) == (2, 0.0)


def test_outcomes_are_counted_as_they_come_and_not_summed_over_all_seconds(kernel: Kernel) -> None:
    """A replay asks for them each minute: of a month that would be a sum of 2.6 million seconds each time."""
    made = engine(kernel, np.zeros(100), dispatch=PATIENT, duration_s=200.0)
    made.add(SECOND, standby=False)
    for until in (30.0, 70.0, 200.0):
        made.run_until(until)
        seconds = made.seconds()
        found = made.outcomes()
        assert found == Outcomes(
            finished=made.served().total - made.served().in_flight, missed=int(seconds.missed.sum())
        )
        assert found.missed > 0
    made._tally = made._tally._replace(seconds=None)
    assert made.outcomes() == found


def test_what_is_not_answered_yet_is_in_flight_and_outside_attainment(kernel: Kernel) -> None:
    made = engine(kernel, [0.0, 1.0, 1.1], dispatch=PATIENT)
    made.add(offering(rps=2.0), standby=False)
    made.run_until(1.2)
    assert made.served().in_flight == 2
    assert made.attained() == 1.0


def test_unlimited_credits_are_billed_and_limited_ones_slow_it_down(kernel: Kernel) -> None:
    arrivals = np.arange(0.0, 600.0, 1.0)
    limited = engine(kernel, arrivals, dispatch=PATIENT, duration_s=7000.0)
    slot = limited.add(burstable(0.5), standby=True, balance=1.0)
    limited.run_until(600.0)
    # A credit is a vCPU minute. The balance and what is earned before it is used up give 75 s of work at full
    # speed, 150 s long (half a second in each second, less 0.1 earned); then a tenth of it, 5 s a request.
    assert limited.served().standby == pytest.approx(150 + (600 - 150) / 5.0, abs=4)
    assert limited.credits(slot) < 0.05
    assert limited.surplus_vcpu_s(slot) == 0.0
    free = engine(kernel, arrivals, dispatch=PATIENT)
    slot = free.add(burstable(0.5, unlimited=True), standby=True, balance=1.0)
    free.run_until(601.0)
    assert free.served().standby == 600
    # 300 s of work, less the 60 s of the balance and what ten minutes earn at 6 credits an hour.
    assert free.surplus_vcpu_s(slot) == pytest.approx(300.0 - 60.0 - 60.0, abs=0.2)


def test_pings_warm_as_many_as_were_asked_for(kernel: Kernel) -> None:
    pool = lambda_offering(concurrency=50, burst=100)
    made = engine(
        kernel, [20.0] * 8, dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=pool, duration_s=40.0
    )
    made.warm(5)
    made.run_until(2.0)
    assert made.lambda_warm() == 5
    usage = made.lambda_usage()
    assert (usage.requests, usage.cold_starts) == (5, 5)
    assert usage.gib_s == pytest.approx(5 * (1.0 + PING_S) * pool.memory_gib)
    made.warm(3)  # three of the five are pinged, none starts
    usage = made.lambda_usage()
    assert (usage.requests, usage.cold_starts) == (8, 5)
    assert usage.gib_s == pytest.approx((5 * 1.0 + 8 * PING_S) * pool.memory_gib)
    assert made.served().total == 0


def test_environments_that_are_there_before_the_run_answer_its_first_requests_warm(kernel: Kernel) -> None:
    pool = lambda_offering(concurrency=50, burst=100)
    made = engine(
        kernel, [0.1] * 8, dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=pool, duration_s=4.0
    )
    made.warm(6, are_there=True)
    assert made.lambda_warm() == 6
    assert made.lambda_usage().gib_s == pytest.approx(6 * PING_S * pool.memory_gib)
    made.run_until(4.0)
    assert made.invocations() == (8, 2)


def test_a_ping_starts_an_idle_life_anew(kernel: Kernel) -> None:
    pool = lambda_offering(concurrency=50, burst=100, idle_min_s=5.0, idle_max_s=5.0)
    for pings_at, cold in (((4.0, 8.0, 12.0), 0), ((), 4)):
        made = engine(
            kernel, [16.0] * 4, dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=pool, duration_s=30.0
        )
        made.warm(4)
        for at in pings_at:
            made.run_until(at)
            made.warm(4)
        made.run_until(30.0)
        assert made.invocations() == (4, cold)


def test_pings_do_not_exceed_the_accounts_concurrency(kernel: Kernel) -> None:
    made = engine(kernel, [0.5] * 6, overflow=lambda_offering(concurrency=8, burst=100), duration_s=10.0)
    made.run_until(1.0)  # six calls are under way
    made.warm(500)
    marks = made._pool.marks
    assert int(marks.warm + marks.cold) == 8
    validate_engine(made)


def test_lambdas_bill_counts_cold_starts_and_pings(kernel: Kernel) -> None:
    pool = LambdaOffering(latency_s=0.38, provenance=KNOWN)
    made = engine(kernel, [0.0, 0.0, 10.0], dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=pool)
    made.run_until(20.0)
    usage = made.lambda_usage()
    assert (usage.requests, usage.cold_starts) == (3, 2)
    assert usage.gib_s == pytest.approx((3 * 0.38 + 2 * 2.9) * 3.0)


def test_windows_count_arrivals_by_five_seconds(kernel: Kernel) -> None:
    made = engine(kernel, [0.0, 4.99, 5.0, 61.0], duration_s=70.0)
    made.run_until(70.0)
    counts = made.window_counts(0.0, 60.0)
    assert counts.shape == (12,)
    assert counts.tolist()[:3] == [2, 1, 0]
    assert made.window_counts(60.0, 65.0).tolist() == [1]


def test_the_run_does_not_depend_on_how_it_is_cut(kernel: Kernel) -> None:
    arrivals = poisson(40.0, 60.0, 2)

    def go(stops: list[float]) -> tuple[object, ...]:
        made = engine(kernel, arrivals, overflow=lambda_offering(), duration_s=70.0)
        for _ in range(3):
            made.add(batching(4, 0.1, 0.25), standby=False)
        for stop in stops:
            made.run_until(stop)
        seconds = made.seconds()
        return made.served(), seconds.answered.tolist(), seconds.missed.tolist(), made.lambda_usage()

    assert go([70.0]) == go([*np.arange(0.37, 70.0, 0.37).tolist(), 70.0])


def test_a_batch_is_limited_in_items_and_takes_the_time_of_its_items(kernel: Kernel) -> None:
    """Ten items a batch, a second and a tenth per item: 6 | 4 5 | 3 12 alone | 10, in order of arrival."""
    sizes = [6, 4, 5, 3, 12, 10]
    kind = batching(10, 1.1, 2.0)
    points = tuple(LatencyPoint(batch=size, latency_s=1.0 + 0.1 * size) for size in range(1, 13))
    kind = replace(kind, profile=replace(kind.profile, points=points))
    made = engine(kernel, [0.1 * n for n in range(6)], dispatch=PATIENT, duration_s=20.0, sizes=sizes)
    made.add(kind, standby=False)
    made.run_until(20.0)
    # 6 alone, since it found the instance idle; then 4 + 5 (3 no longer fits), 3 (12 does not), 12, 10.
    taken_s = np.cumsum([1.6, 1.9, 1.3, 2.2, 2.0])
    finished = [taken_s[batch] for batch in (0, 1, 1, 2, 3, 4)]
    assert made.batches() == 5
    assert made.served().instance == 6
    assert made.latency().mean_s == pytest.approx(np.mean(finished) - 0.25)


def test_what_a_lost_instance_held_keeps_its_size(kernel: Kernel) -> None:
    made = engine(kernel, [0.0, 0.1, 0.2], dispatch=PATIENT, duration_s=20.0, sizes=[2, 3, 5])
    kind = batching(10, 0.1, 1.0)  # a tenth of a second for an item
    lost = made.add(kind, standby=False)
    made.run_until(0.15)
    made.add(replace(kind, batch=replace(kind.batch, max_batch=4)), standby=False)
    made.remove(lost, redispatch=True)
    made.run_until(20.0)
    # 2 at once on the other, 0.15 to 0.35 s; then 3 (5 does not fit), then 5.
    assert made.latency().mean_s == pytest.approx((0.35 + (0.65 - 0.1) + (1.15 - 0.2)) / 3)


def test_a_large_request_goes_to_the_type_that_answers_it_sooner(kernel: Kernel) -> None:
    """For one item the first is faster, for fifty the second: the size decides."""
    steep, flat = (
        offering("steep", batch=50, points={1: 0.1, 50: 5.0}),
        offering("flat", batch=50, points={50: 0.3}),
    )
    for size, seconds in ((1, 0.1), (50, 0.3)):
        made = engine(kernel, [0.0], dispatch=PATIENT, duration_s=9.0, sizes=[size])
        for kind in (steep, flat):
            made.add(kind, standby=False)
        made.run_until(9.0)
        assert made.latency().mean_s == pytest.approx(seconds)


def test_the_bouncer_sees_the_size_of_a_request(kernel: Kernel) -> None:
    strict = DispatchPolicy(bounced=Bounced.NOWHERE, late=Late.SHED)
    kind = batching(10, 0.1, 1.0)
    for size, shed in ((4, 0), (6, 1)):  # 0.4 s and 0.6 s, within 0.5 s
        made = engine(
            kernel, [0.0], slo=Slo(latency_s=0.5, target=0.9), dispatch=strict, duration_s=9.0, sizes=[size]
        )
        made.add(kind, standby=False)
        made.run_until(9.0)
        assert made.served().shed == shed
