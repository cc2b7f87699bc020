from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.plan_request import plan_fleet
from mark.controller.policy import ControllerPolicy
from mark.domain.demand import Demand
from mark.domain.errors import PlanInfeasible
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.planner.baselines import (
    DAY_S,
    HOUR_S,
    EmaHeadroom,
    PodAutoscaler,
    SpotHedge,
    cheapest_type,
    ema_headroom,
    peak_count,
    plan_concurrency_tracking,
    plan_nothing,
    plan_predictive_scaling,
    plan_static,
    plan_target_tracking,
    plan_two_windows,
    pod_autoscaler,
    spothedge,
)
from tests.planner.builders import SLO, demand, offering, request

KIND = offering("a", rps=10.0, usd_per_hour=0.36)  # target: 10 x 60 / 2 = 300 invocations a minute
DEAR = offering("b", rps=10.0, usd_per_hour=0.72)
BOTH = (DEAR, KIND)
A = "a:on-demand"


def tracked(minutes: list[float], ready: list[int], running: int) -> int:
    """The count wanted after these invocations a minute."""
    history = tuple(value / 60.0 for value in minutes)
    wanted = request([0.0], BOTH, running={A: running}, history=history, ready_history=tuple(ready))
    (fleet,) = plan_target_tracking(wanted).counts
    assert fleet.offering == A
    assert fleet.kept == min(running, fleet.count)
    return fleet.count


def knative(windows: list[float], *, ready: int, running: int) -> int:
    wanted = request(
        [0.0], BOTH, running={A: running}, ready_history=(ready,), recent_rps=tuple(windows), history=(0.0,)
    )
    (fleet,) = plan_two_windows(wanted).counts
    return fleet.count


def test_cheapest_counts_capacity_without_batching() -> None:
    # Batched it would carry 80/s for 0.9 USD/h; one by one 5/s.
    gpu = offering("gpu", rps=80.0, usd_per_hour=0.9, batch=16, points={1: 0.2, 16: 0.2})
    assert cheapest_type((gpu, *BOTH), SLO).name == A


def test_cheapest_must_meet_the_objective() -> None:
    slow = offering("slow", rps=1.0, usd_per_hour=0.001)
    assert cheapest_type((slow, *BOTH), SLO).name == A
    with pytest.raises(PlanInfeasible, match="50 ms"):
        cheapest_type((slow, *BOTH), Slo(latency_s=0.05, target=0.98))


def test_cheapest_ties_by_name() -> None:
    assert cheapest_type((offering("z"), offering("y")), SLO).name == "y:on-demand"


def test_tracking_scales_out_after_three_of_three_minutes() -> None:
    assert tracked([700, 700], [2, 2], 2) == 2
    assert tracked([500, 700, 700], [2, 2, 2], 2) == 2
    assert tracked([700, 700, 1300], [2, 2, 2], 2) == 5  # ceil(1300 / 300)


def test_tracking_counts_what_boots() -> None:
    assert tracked([1300, 1300, 1300], [2, 2, 2], 5) == 5


def test_tracking_scales_in_after_fifteen_of_fifteen_minutes() -> None:
    assert tracked([300] * 14, [4] * 14, 4) == 4
    assert tracked([1080] + [300] * 14, [4] * 15, 4) == 4  # 270 an instance is not below 0.9 x 300
    assert tracked([300] * 14 + [600], [4] * 15, 4) == 2


def test_tracking_starts_with_what_the_last_minute_needs() -> None:
    assert tracked([900], [], 0) == 3
    assert tracked([0], [], 0) == 1


def test_tracking_never_goes_below_one() -> None:
    assert tracked([0.0] * 15, [3] * 15, 3) == 1


def test_knative_stable_follows_the_mean() -> None:
    # 70 % of 10/s: mean 28/s wants four; no window wants twice the three that are ready.
    assert knative([28.0] * 12, ready=3, running=3) == 4


def test_knative_panics_on_one_window_and_does_not_scale_down_for_a_minute() -> None:
    surge = [7.0] * 11 + [70.0]
    assert knative(surge, ready=2, running=2) == 10
    assert knative([70.0] + [7.0] * 11, ready=2, running=10) == 10  # still within the stable window
    assert knative([7.0] * 12, ready=2, running=10) == 1


def test_knative_halves_at_most() -> None:
    assert knative([7.0] * 12, ready=12, running=12) == 6


def test_knative_growth_is_bounded() -> None:
    assert knative([14000.0] * 12, ready=1, running=1) == 1000


def test_static_peak() -> None:
    assert peak_count(demand((12.0, 31.0, 5.0)), 10.0) == 4
    assert peak_count(demand((30.0,)), 10.0) == 3
    plan = plan_static(4)(request([999.0], BOTH, running={A: 6}))
    assert [(item.offering, item.count, item.kept) for item in plan.counts] == [(A, 4, 4)]
    assert plan.usd_per_hour == pytest.approx(4 * 0.36)
    assert [excuse.offering for excuse in plan.excuses] == ["b:on-demand"]


def test_nothing_spills_all() -> None:
    plan = plan_nothing(request([1.0, 2.0, 30.0], ()))
    assert plan.counts == ()
    assert (plan.required_rps, plan.shortfall_rps, plan.at) == (30.0, 30.0, 120.0)


def test_a_replan_within_the_minute_spills_the_same_unit() -> None:
    wanted = request([1.0, 2.0, 30.0], ())
    assert plan_nothing(replace(wanted, now=37.5)) == plan_nothing(wanted)


def concurrent(windows: list[float], *, running: int, minutes: tuple[float, ...] = (10.0,)) -> int:
    """The count wanted after these rates of 5 s; the target is 5 requests/s an instance."""
    ready = (running,) * len(minutes)
    wanted = request(
        [0.0], BOTH, running={A: running}, history=minutes, ready_history=ready, recent_rps=tuple(windows)
    )
    (fleet,) = plan_concurrency_tracking(wanted).counts
    return fleet.count


def test_concurrency_scales_out_after_three_of_three_values_of_ten_seconds() -> None:
    assert concurrent([10.0] * 8 + [30.0] * 4, running=2) == 2
    assert concurrent([10.0] * 6 + [30.0] * 6, running=2) == 6
    assert concurrent([30.0] * 5, running=2) == 2  # two values, and a window that is no value yet


def test_concurrency_scales_in_as_slowly_as_invocations() -> None:
    assert concurrent([5.0] * 12, running=4, minutes=(5.0,) * 14) == 4
    assert concurrent([5.0] * 12, running=4, minutes=(5.0,) * 15) == 1


SPOT = replace(offering("a", rps=10.0, usd_per_hour=0.1), market=Market.SPOT)
TWIN = offering("a", rps=10.0, usd_per_hour=0.36)


def test_a_refused_spot_fleet_grows_by_its_on_demand_twin() -> None:
    wanted = request([0.0], (SPOT, TWIN), running={SPOT.name: 3}, recent_rps=(63.0,) * 12, ready_history=(5,))
    plan = plan_two_windows(replace(wanted, refused=(SPOT.name,)))
    assert [(item.offering, item.count, item.kept) for item in plan.counts] == [
        (SPOT.name, 3, 3),
        (TWIN.name, 6, 0),
    ]


@given(
    spot=st.integers(0, 20), twins=st.integers(0, 20), rate=st.floats(0.0, 500.0), is_refused=st.booleans(),
    planner=st.sampled_from(
        [plan_target_tracking, plan_concurrency_tracking, plan_predictive_scaling, plan_two_windows]
    ),
)  # fmt: skip
def test_twins_count_as_the_fleet_and_the_dear_ones_go_first(spot, twins, rate, is_refused, planner) -> None:  # type: ignore[no-untyped-def]
    seen = {"recent_rps": (rate,) * 12, "history": (rate,) * 15, "ready_history": (spot + twins,) * 15}
    two = request([0.0], (TWIN, SPOT), running={SPOT.name: spot, TWIN.name: twins}, **seen)
    both = planner(replace(two, refused=(SPOT.name,) if is_refused else ()))
    alone = planner(request([0.0], (SPOT,), running={SPOT.name: spot + twins}, **seen))
    counts = {item.offering: item.count for item in both.counts}
    assert sum(counts.values()) == sum(item.count for item in alone.counts)
    if is_refused:
        assert counts.get(SPOT.name, 0) <= spot
    else:
        assert counts.get(TWIN.name, 0) <= twins
    if counts.get(SPOT.name, 0) < spot:
        assert TWIN.name not in counts


def test_predictive_scaling_launches_for_the_hour_that_was_busy_every_day_and_never_scales_in() -> None:
    day = [10.0] * 24 * 60
    day[9 * 60 : 10 * 60] = [100.0] * 60
    history = tuple(day * 3)

    def wanted(at_s: float, running: int) -> int:
        """The count at this second of the fourth day, whose load is 10/s so far."""
        minutes = (*history, *([10.0] * int(at_s / 60)))
        ready = (running,) * 15
        asked = request([0.0], (KIND,), running={A: running}, history=minutes, ready_history=ready)
        known = replace(asked.history, end_at=3 * 86400.0 + at_s)
        (fleet,) = plan_predictive_scaling(replace(asked, history=known, now=known.end_at)).counts
        return fleet.count

    assert wanted(8.9 * 3600, 2) == 2
    assert wanted(9 * 3600 - 300, 2) == 20  # five minutes before, at 5 requests/s an instance
    assert wanted(9.5 * 3600, 20) == 20
    assert wanted(9.5 * 3600, 30) == 20  # target tracking scales in, the forecast does not
    assert wanted(10 * 3600, 20) == 2


def test_predictive_scaling_knows_nothing_before_a_day_is_over() -> None:
    asked = request([0.0], (KIND,), running={A: 2}, history=(10.0,) * 60 * 23, ready_history=(2,) * 15)
    assert plan_predictive_scaling(asked) == plan_target_tracking(asked)


def test_a_moving_average_by_hour_weighs_the_newest_day_and_launches_before_the_hour() -> None:
    days = [[10.0] * 24 * 60 for _ in range(3)]
    for day, busy in zip(days, (20.0, 40.0, 80.0), strict=True):
        day[9 * 60 : 10 * 60] = [busy] * 60
    asked = request([0.0], (KIND,), history=tuple(itertools.chain(*days, [10.0] * 9 * 60)))
    planner = ema_headroom(EmaHeadroom(utilisation=0.5, alpha=0.5))

    def wanted(now: float) -> int:
        known = asked.history.mean_rps[: round(now / 60.0)]
        history = Demand(end_at=now, mean_rps=known, max_rps=known)
        (fleet,) = planner(replace(asked, history=history, now=now)).counts
        return fleet.count

    assert wanted(3 * DAY_S + 9 * HOUR_S - 300.0) == 11  # (20 + 40) / 2 = 30, (30 + 80) / 2 = 55: at 5 an instance
    assert wanted(3 * DAY_S + 8 * HOUR_S) == 2
    assert wanted(9.5 * HOUR_S) == 3  # on the first day, by the hour before: (10 + 20) / 2


FIRST, SECOND, THIRD = (
    offering(name, rps=10.0, usd_per_hour=usd) for name, usd in (("p", 0.5), ("q", 0.4), ("r", 0.6))
)
POOLS = (FIRST, SECOND, THIRD)


@given(
    running=st.tuples(*[st.integers(0, 8)] * 3),
    rooms=st.tuples(*[st.none() | st.integers(0, 8)] * 3),
    refused=st.tuples(*[st.booleans()] * 3),
    rate=st.floats(0.0, 300.0),
    planner=st.sampled_from([plan_target_tracking, plan_concurrency_tracking]),
)
def test_no_pool_launches_while_one_before_it_has_room_nor_gives_back_after_one_behind_it(  # type: ignore[no-untyped-def]
    running, rooms, refused, rate, planner
) -> None:
    there = {item.name: count for item, count in zip(POOLS, running, strict=True)}
    left = {item.name: room for item, room in zip(POOLS, rooms, strict=True) if room is not None}
    barred = {item.name for item, is_barred in zip(POOLS, refused, strict=True) if is_barred}
    seen = {"recent_rps": (rate,) * 12, "history": (rate,) * 15, "ready_history": (sum(running),) * 15}
    asked = replace(
        request([0.0], POOLS, running=there, **seen),
        priority=tuple(item.name for item in POOLS),
        refused=tuple(sorted(barred)),
        launches_left=tuple(left.items()),
    )
    counts = {item.offering: item.count for item in planner(asked).counts}
    alone = planner(request([0.0], (FIRST,), running={FIRST.name: sum(running)}, **seen))
    assert sum(counts.values()) == sum(item.count for item in alone.counts)
    for place, item in enumerate(POOLS):
        for before in POOLS[:place]:
            if counts.get(item.name, 0) > there[item.name]:
                launched = counts.get(before.name, 0) - there[before.name]
                assert before.name in barred or launched >= left.get(before.name, math.inf)
        for behind in POOLS[place + 1 :]:
            if counts.get(item.name, 0) < there[item.name]:
                assert counts.get(behind.name, 0) == 0


ZONES = tuple(replace(SPOT, zone=zone, usd_per_hour=usd) for zone, usd in (("a", 0.11), ("b", 0.10), ("c", 0.12)))


@given(
    there=st.tuples(*[st.integers(0, 6)] * 3),
    ready=st.tuples(*[st.integers(0, 6)] * 3),
    refused=st.tuples(*[st.booleans()] * 3),
    rate=st.floats(0.0, 200.0),
    spare=st.integers(0, 3),
)
def test_spothedge_has_its_target_on_demand_or_ready_on_spot_and_launches_in_no_refused_zone(  # type: ignore[no-untyped-def]
    there, ready, refused, rate, spare
) -> None:
    names = [zone.name for zone in ZONES]
    running = dict(zip(names, there, strict=True))
    barred = {name for name, is_barred in zip(names, refused, strict=True) if is_barred}
    asked = replace(
        request([0.0], (*ZONES, TWIN), running=running, history=(rate,) * 60),
        ready=tuple((name, min(one, running[name])) for name, one in zip(names, ready, strict=True)),
        refused=tuple(sorted(barred)),
    )
    counts = {item.offering: item.count for item in spothedge(SpotHedge(spare=spare))(asked).counts}
    target = max(1, math.ceil(rate / 7.0 - 1e-9))
    on_spot, are_ready = sum(counts.get(name, 0) for name in names), sum(count for _, count in asked.ready)
    assert counts.get(TWIN.name, 0) == min(target, max(0, target + spare - are_ready))
    assert on_spot == target + spare or (len(barred) == 3 and on_spot < target + spare)
    assert all(counts.get(name, 0) <= running[name] for name in barred)
    if on_spot >= sum(there) + 3 and not barred:
        assert all(counts[name] for name in names)


def test_spothedge_follows_a_load_that_stays_and_no_other() -> None:
    def target(*minutes: float) -> int:
        asked = request([0.0], (TWIN,), history=(30.0,) * 60 + minutes)
        (fleet,) = spothedge(SpotHedge(utilisation=1.0))(asked).counts
        return fleet.count

    assert target() == 3
    assert target(*[90.0] * 4) == 3
    assert target(*[90.0] * 5) == 9
    assert target(*[90.0] * 4, 30.0, 90.0) == 3
    assert target(*[90.0] * 5, *[10.0] * 19) == 9
    assert target(*[90.0] * 5, *[10.0] * 20) == 1


@pytest.mark.parametrize(
    ("running", "rate", "minutes", "count"),
    [
        (5, 52.0, (50.0,) * 5, 5),  # within a tenth of the target of 10 requests/s a pod
        (5, 56.0, (50.0,) * 5, 6),
        (5, 20.0, (50.0,) * 5, 5),  # some of the last five minutes still wanted as many
        (5, 20.0, (50.0, *(20.0,) * 5), 2),
        (5, 200.0, (50.0,) * 5, 20),
    ],
)
def test_pods_follow_the_load_up_at_once_and_down_after_five_minutes(
    running: int, rate: float, minutes: tuple[float, ...], count: int
) -> None:
    asked = request([0.0], (KIND,), history=minutes, recent_rps=(rate,) * 12, running={KIND.name: running})
    (fleet,) = pod_autoscaler(PodAutoscaler(utilisation=1.0))(asked).counts
    assert fleet.count == count


def test_without_any_instance_to_be_had_there_is_no_plan() -> None:
    with pytest.raises(PlanInfeasible, match="one type"):
        plan_two_windows(request([0.0], ()))


def test_an_autoscaler_keeps_the_utilisation_that_its_policy_names() -> None:
    wanted = request([0.0], (KIND,), history=(60.0,), recent_rps=(60.0,) * 12)
    for planner in ("two-windows", "target-tracking", "concurrency-tracking"):
        counts = []
        for utilisation in (0.3, 0.6, 1.0):
            policy = ControllerPolicy(
                name=planner, planner=planner, slo=SLO, offerings=(KIND,), utilisation=utilisation
            )
            (fleet,) = plan_fleet(wanted, policy).counts
            counts.append(fleet.count)
        assert counts == [20, 10, 6]
