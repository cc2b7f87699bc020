from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.errors import PlanInfeasible
from mark.domain.objective import Slo
from mark.planner.baselines import (
    cheapest_type,
    peak_count,
    plan_nothing,
    plan_static,
    plan_target_tracking,
    plan_two_windows,
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


@pytest.mark.parametrize("planner", [plan_target_tracking, plan_two_windows, plan_static(2), plan_nothing])
def test_order_of_offerings_is_irrelevant(planner) -> None:  # type: ignore[no-untyped-def]
    settings = {"history": (20.0,), "ready_history": (1,), "recent_rps": (20.0,), "running": {A: 2}}
    assert planner(request([5.0], BOTH, **settings)) == planner(request([5.0], BOTH[::-1], **settings))
