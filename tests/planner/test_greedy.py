from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import PlanInfeasible
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Plan, PlanRequest
from mark.planner.greedy import NOTHING_RPS, SAME_SCORE, plan_greedy, scores, single_type_gap
from mark.planner.queueing import usable_rps
from tests.planner.builders import SLO, offering, request


def naive(wanted: PlanRequest) -> dict[str, tuple[int, int]]:
    """Algorithm 1 word by word: {offering: (count, kept)}."""
    unmet = list(wanted.forecast.max_at(0.5))
    tau = min(wanted.lead_units, len(unmet) - 1)
    rate = unmet[tau]
    pool = {item.name: (item, usable_rps(item, wanted.slo, rate)) for item in wanted.offerings}
    left = {name: count for name, count in wanted.running if name in pool}
    taken: dict[str, tuple[int, int]] = {}
    while unmet[tau] > NOTHING_RPS:
        e = tau
        while e + 1 < len(unmet) and unmet[e + 1] > NOTHING_RPS:
            e += 1
        candidates = [("0 running", name) for name in left if left[name] > 0] + [("1 new", n) for n in pool]
        best: tuple[float, str, str] | None = None
        for kind, name in sorted(candidates):
            item, usable = pool[name]
            covered = sum(min(unmet[k], usable) for k in range(tau, e + 1)) * 60.0
            if covered == 0:
                continue
            usd = item.usd_per_hour / 60.0 * (e - tau + 1) + (item.launch_usd if kind == "1 new" else 0.0)
            if best is None or usd / covered < best[0] * (1 - SAME_SCORE):
                best = (usd / covered, kind, name)
        assert best is not None
        _, kind, name = best
        count, kept = taken.get(name, (0, 0))
        if kind == "0 running":
            left[name] -= 1
            kept += 1
        taken[name] = (count + 1, kept)
        unmet = [max(0.0, value - pool[name][1]) for value in unmet]
    return taken


def counts(plan: Plan) -> dict[str, tuple[int, int]]:
    return {item.offering: (item.count, item.kept) for item in plan.counts}


kinds = st.builds(
    lambda rps, price, launch, batch: (rps, price, launch, batch),
    st.floats(1.0, 60.0),
    st.floats(0.05, 2.0),
    st.floats(0.0, 0.05),
    st.sampled_from([1, 1, 4]),
)


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    offerings = tuple(
        offering(
            f"t{i}",
            rps=rps,
            usd_per_hour=price,
            launch_usd=launch,
            batch=batch,
            latency_s=draw(st.floats(0.02, 0.35)),
        )
        for i, (rps, price, launch, batch) in enumerate(draw(st.lists(kinds, min_size=1, max_size=4)))
    )
    quick = offering("quick", rps=20.0, usd_per_hour=1.0, latency_s=0.05)
    rates = draw(st.lists(st.floats(0.0, 300.0), min_size=1, max_size=12))
    running = {item.name: draw(st.integers(0, 6)) for item in offerings}
    return request(rates, (*offerings, quick), running={**running, "gone": 3}, lead_units=draw(st.integers(0, 6)))


@settings(deadline=None)  # the first example waits for the compiler
@given(requests())
def test_equals_the_naive_transcription(wanted: PlanRequest) -> None:
    assert counts(plan_greedy(wanted)) == naive(wanted)


SMALL = offering("small", rps=10.0, usd_per_hour=0.36, latency_s=0.1, launch_usd=0.015)
LARGE = offering("large", rps=100.0, usd_per_hour=2.7, latency_s=0.1, launch_usd=0.11)
S, L = "small:on-demand", "large:on-demand"


def planned(rates: list[float], **changes: object) -> dict[str, tuple[int, int]]:
    return counts(plan_greedy(request(rates, (SMALL, LARGE), **changes)))  # type: ignore[arg-type]


def test_running_instances_move_the_plan() -> None:
    rates = [70.0] * 6
    assert planned(rates) == {S: (8, 0)}
    assert planned(rates, running={S: 5}) == {S: (8, 5)}
    assert planned(rates, running={L: 1}) == {L: (1, 1)}


def test_the_objective_moves_the_plan() -> None:
    tight = Slo(latency_s=0.6, target=0.98, mean_latency_s=0.101)
    assert sum(c for c, _ in planned([60.0] * 6, slo=tight).values()) > sum(
        c for c, _ in planned([60.0] * 6).values()
    )


def test_a_hand_computed_plan() -> None:
    # One unit, 60 s: covered 600 requests at 0.006 USD; a launch adds 0.015. Usable: capacity x cap.
    free = replace(SMALL, launch_usd=0.0)
    usable = usable_rps(free, SLO, 25.0)
    plan = plan_greedy(request([0.0, 0.0, 25.0], (free,), running={S: 2}))
    assert counts(plan) == {S: (math.ceil(25.0 / usable), 2)}
    assert plan.at == 120.0
    assert plan.required_rps == 25.0
    (term,) = scores(request([0.0, 0.0, 25.0], (free,)))
    assert term.span_units == 1
    assert term.usd_per_million == pytest.approx(0.006 / (usable * 60) * 1e6)


def test_a_type_too_slow_is_excused_with_its_numbers() -> None:
    slow = offering("slow", rps=50.0, usd_per_hour=0.01, latency_s=0.4)
    plan = plan_greedy(request([5.0] * 4, (slow, SMALL)))
    assert [item.offering for item in plan.counts] == [S]
    (excuse,) = plan.excuses
    assert excuse.offering == "slow:on-demand"
    assert "400 ms" in excuse.reason
    assert "300 ms" in excuse.reason


def test_an_offering_not_taken_is_told_the_winners_score() -> None:
    (excuse,) = plan_greedy(request([5.0] * 60, (SMALL, LARGE))).excuses
    assert excuse.offering == L
    assert S in excuse.reason


def test_infeasible_says_the_fastest_latency() -> None:
    slow = offering("slow", rps=50.0, latency_s=0.4)
    with pytest.raises(PlanInfeasible, match=r"slow:on-demand, takes 400 ms"):
        plan_greedy(request([5.0] * 4, (slow,)))
    with pytest.raises(PlanInfeasible, match="no offering is left"):
        plan_greedy(request([5.0] * 4, ()))


def test_nothing_expected_needs_nothing() -> None:
    slow = offering("slow", rps=50.0, latency_s=0.4)
    assert plan_greedy(request([0.0] * 4, (slow,))).counts == ()


def test_a_broken_forecast_is_refused() -> None:
    broken: tuple[Offering, ...] = (SMALL,)
    with pytest.raises(PlanInfeasible, match="forecast"):
        plan_greedy(request([math.inf] * 4, broken))
    with pytest.raises(PlanInfeasible, match="forecast"):
        plan_greedy(request([], broken))


def test_a_lead_beyond_the_horizon_is_clipped() -> None:
    assert plan_greedy(request([5.0, 7.0], (SMALL,), lead_units=9)).required_rps == 7.0


def test_a_replan_within_the_minute_aims_at_the_same_unit() -> None:
    on_the_minute = request([10.0, 20.0, 40.0], (SMALL,))
    late = replace(on_the_minute, now=37.5)
    assert plan_greedy(late) == plan_greedy(on_the_minute)
    assert plan_greedy(late).at == on_the_minute.forecast.start_at + 120.0


def gap(wanted: PlanRequest, plan: Plan) -> float:
    return single_type_gap(plan, wanted.offerings, wanted.slo)


def test_the_gap_to_one_type_of_a_hand_computed_plan() -> None:
    # 70/s need eight small ones (2.88 USD/h) or one large one (2.7 USD/h).
    new = request([70.0] * 6, (SMALL, LARGE))
    plan = plan_greedy(new)
    assert counts(plan) == {S: (8, 0)}
    assert gap(new, plan) == pytest.approx(2.88 / 2.7)
    kept = replace(new, running=((L, 1),))
    assert gap(kept, plan_greedy(kept)) == pytest.approx(1.0)


def test_the_gap_where_nothing_is_required_and_where_no_type_can() -> None:
    quiet = request([0.0] * 4, (SMALL,))
    assert gap(quiet, plan_greedy(quiet)) == 1.0
    plan = plan_greedy(request([5.0] * 4, (SMALL,)))
    slow = offering("slow", rps=50.0, latency_s=0.4)
    assert single_type_gap(plan, (slow,), SLO) == math.inf


@settings(deadline=None)  # the first example waits for the compiler
@given(requests())
def test_with_one_type_there_is_no_gap(wanted: PlanRequest) -> None:
    alone = replace(wanted, offerings=wanted.offerings[-1:])
    assert gap(alone, plan_greedy(alone)) == pytest.approx(1.0)
