"""Scripted misfortune: does the system survive, and by the means that it should?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mark.domain.demand import Demand, Forecast, point_forecast
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.orders import (
    Drain,
    ForecastFailed,
    Launch,
    LaunchRefused,
    StartStandby,
    StopStandby,
    WarmLambda,
)
from mark.domain.offerings.offering import Market
from mark.plugins.load import build_forecaster
from mark.policies.supply import OverflowLimits
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.engine.compiled import Kernel
from mark.simulator.experiment import Experiment
from mark.simulator.faults import FaultScript, Interrupt, LateBoots, Refuse
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import constant
from tests.scenarios.builders import (
    FIXED_WORLD,
    HISTORY_S,
    MemoryJournal,
    checked,
    experiment,
    run,
    surging,
    up_and_down,
)

STEADY = constant(60.0, duration_s=HISTORY_S + 1500.0, seed=8)
MANY = ("c5.large",)
"""One small type: a fleet of more than ten, of which a share can be lost."""


def replayed(given: Experiment, policy: str = "greedy-oracle") -> tuple[RunResult, MemoryJournal]:
    journal = MemoryJournal()
    with checked():
        result = run(given, policy, journal)
    assert result.requests == given.spec.workload.arrivals(HISTORY_S, given.spec.workload.end_s).size
    return result, journal


@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.parametrize("policy", ["mark", "greedy-oracle"])
def test_losing_spot_instances_loses_no_request_and_wakes_standbys(
    kernel: Kernel, share: float, policy: str
) -> None:
    script = FaultScript(stress=0.0, interrupts=(Interrupt(at_s=430.0, share=share),))
    given = experiment(kernel, trace=STEADY, faults=script, types=MANY)
    result, journal = replayed(given, policy)
    before = [seen.fleet for seen in journal.seen if seen.now < HISTORY_S + 430.0][-1]
    fleet = sum(one.role is Role.SERVING and one.state is InstanceState.READY for one in before)
    assert fleet >= 12
    assert result.interruptions == round(share * fleet)
    assert result.served.shed == 0
    assert result.attained >= 0.98
    woken = journal.of(StartStandby)
    assert woken[0][0] == HISTORY_S + 430.0, "woken at the notice, not at the next tick"
    assert result.wakes == sum(len(order.instances) for _, order in woken if isinstance(order, StartStandby)) > 0
    assert result.served.standby > 0
    again = [order for at, order in journal.of(Launch) if at == HISTORY_S + 430.0 and order.role is Role.SERVING]
    assert sum(order.count for order in again) >= result.interruptions - 1
    asleep = [at for at, _ in journal.of(StopStandby) if at > HISTORY_S + 430.0]
    assert asleep, "they go back to sleep when what was planned is ready again"
    last = journal.seen[-1].fleet
    assert all(one.state is InstanceState.STOPPED for one in last if one.role is Role.STANDBY)


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_lambda_covers_what_hedged_loses_and_it_launches_again(kernel: Kernel, share: float) -> None:
    """Its standbys are there for surges, few where the load is steady: Lambda carries what they do not."""
    script = FaultScript(stress=0.0, interrupts=(Interrupt(at_s=430.0, share=share),))
    given = experiment(kernel, trace=STEADY, faults=script, types=MANY)
    result, journal = replayed(given, "hedged")
    assert result.interruptions >= 2
    assert result.served.shed == 0
    assert result.attained >= 0.98
    lost_at, boots_s = HISTORY_S + 430.0, 360.0
    launched = [order.count for at, order in journal.of(Launch) if lost_at <= at <= lost_at + 120.0]
    assert sum(launched) >= result.interruptions // 2, "what was lost is launched again, within two plans"
    seconds = result.seconds.to_lambda
    before, gap = seconds[300:430].mean(), seconds[430 + 120 : 430 + int(boots_s)].mean()
    assert gap > before


def test_standbys_and_lambda_cover_lost_capacity(kernel: Kernel) -> None:
    """Without either, the same loss misses the objective: that is what they are for."""
    script = FaultScript(
        stress=0.0,
        interrupts=(Interrupt(at_s=430.0, share=1.0),),
        late_boots=(LateBoots(from_s=430.0, to_s=600.0, factor=3.0),),
    )
    whole, _ = replayed(experiment(kernel, trace=STEADY, faults=script, types=MANY))
    bare, journal = replayed(
        experiment(kernel, trace=STEADY, faults=script, types=MANY, overflow=False, standby_share=0.0)
    )
    assert not journal.of(StartStandby)
    assert bare.attained < 0.98 <= whole.attained
    alone, _ = replayed(
        experiment(kernel, trace=STEADY, faults=script, types=MANY, overflow=False, standby_share=1.0)
    )
    assert bare.attained < alone.attained


def test_refused_launches_fall_back_to_on_demand(kernel: Kernel) -> None:
    refused = tuple(
        Refuse(from_s=300.0, to_s=900.0, offering=f"{name}:spot") for name in ("c5.large", "c5.xlarge")
    )
    given = experiment(
        kernel,
        trace=surging(40.0, plus=1.5, minutes=25.0),
        faults=FaultScript(stress=0.0, refusals=refused),
        types=("c5.large", "c5.xlarge"),
    )
    result, journal = replayed(given)
    assert result.refusals > 0
    assert any(isinstance(fact, LaunchRefused) for seen in journal.seen for fact in seen.facts)
    launched = {
        order.offering
        for _, order in journal.of(Launch)
        if isinstance(order, Launch) and order.role is Role.SERVING
    }
    assert any(name.endswith(":on-demand") for name in launched)
    assert result.served.shed == 0
    assert result.attained >= 0.98
    # A refused offering is left alone until the refusal expires.
    for name in ("c5.large:spot", "c5.xlarge:spot"):
        refusals = [
            s.now for s in journal.seen for f in s.facts if isinstance(f, LaunchRefused) and f.offering == name
        ]
        asked = [at for at, order in journal.of(Launch) if isinstance(order, Launch) and order.offering == name]
        assert len(asked) == len(set(asked))
        for at in refusals:
            assert not [ask for ask in asked if at < ask < at + 600.0]


def test_everything_refused_for_ten_minutes_goes_on(kernel: Kernel) -> None:
    """Standbys among what is refused: asked for again only when the refusal has expired."""
    script = FaultScript(stress=0.0, refusals=(Refuse(from_s=200.0, to_s=800.0),))
    given = experiment(kernel, trace=surging(30.0, plus=2.0, minutes=30.0), faults=script)
    result, journal = replayed(given)
    assert result.served.shed == 0
    assert result.refusals > 0
    standby = given.assembly.standby
    assert standby is not None
    asked = [at for at, order in journal.of(Launch) if isinstance(order, Launch) and order.role is Role.STANDBY]
    assert len(asked) == len(set(asked))
    assert result.served.lambda_ > 0
    assert any(at > HISTORY_S + 800.0 for at, _ in journal.of(Launch)), "it asks again afterwards"


def test_late_boots_are_borne_by_lambda(kernel: Kernel) -> None:
    trace = surging(40.0, plus=1.5, minutes=25.0)
    script = FaultScript(late_boots=(LateBoots(from_s=0.0, to_s=1500.0, factor=3.0),))
    plain, _ = replayed(experiment(kernel, Market.ON_DEMAND, trace=trace, world=FIXED_WORLD, types=MANY))
    late, _ = replayed(
        experiment(kernel, Market.ON_DEMAND, trace=trace, world=FIXED_WORLD, types=MANY, faults=script)
    )
    assert late.served.lambda_ > plain.served.lambda_
    assert late.served.shed == 0
    assert late.attained >= 0.98


class Broken:
    """A user's forecaster that fails."""

    def __init__(self, fail: Callable[[Demand, int], Forecast]) -> None:
        self._fail = fail

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        return self._fail(history, horizon)


def _raises(history: Demand, horizon: int) -> Forecast:
    raise KeyError("weights")


def _is_late(history: Demand, horizon: int) -> Forecast:
    return replace(_says(10.0)(history, horizon), start_at=history.end_at + 60.0)


def _is_none(history: Demand, horizon: int) -> Forecast:
    return None  # type: ignore[return-value]


def _says(*rates: float) -> Callable[[Demand, int], Forecast]:
    def answer(history: Demand, horizon: int) -> Forecast:
        rows = tuple((rate,) for rate in (rates * horizon)[:horizon])
        return Forecast(start_at=history.end_at, mean_rps=rows, max_rps=rows)

    return answer


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (_raises, "KeyError"),
        (_says(10.0, float("inf")), "not finite"),
        (_says(), "covers 0 units"),
        (_is_late, "does not start"),
        (_is_none, "NoneType"),
    ],
    ids=["raises", "inf", "empty", "late", "none"],
)
def test_a_blind_forecaster_is_replaced_by_the_last_value(
    kernel: Kernel, fail: Callable[[Demand, int], Forecast], error: str
) -> None:
    def build(name: str, setup: ForecasterSetup) -> Forecaster:
        return Broken(fail) if name == "oracle" else build_forecaster(name, setup)

    given = experiment(kernel, Market.ON_DEMAND, trace=STEADY, build=build)
    result, journal = replayed(given)
    assert result.attained >= 0.98
    (note,) = result.notes
    assert error in note
    assert note.endswith("(25 times)")
    assert (result.fallback_forecasts, result.forecasts) == (25, 25)
    planned = [seen for seen in journal.seen if seen.plan is not None]
    assert len(planned) == 25
    for seen in planned:
        assert [fact for fact in seen.facts if isinstance(fact, ForecastFailed)]
        assert seen.forecast is not None
        assert seen.forecast.source == "last-value"


def test_the_forecast_moves_the_orders(kernel: Kernel) -> None:
    """A forecast computed and not used is refused: one that sees four times the load launches more."""

    def launched(rate: float) -> int:
        def build(name: str, setup: ForecasterSetup) -> Forecaster:
            def say(history: Demand, horizon: int) -> Forecast:
                rates = (rate,) * horizon
                return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="test")

            return Broken(say) if name == "oracle" else build_forecaster(name, setup)

        given = experiment(kernel, Market.ON_DEMAND, trace=STEADY, build=build, types=MANY)
        _, journal = replayed(given)
        return sum(order.count for _, order in journal.of(Launch) if isinstance(order, Launch))

    assert launched(240.0) > 2 * launched(60.0) > 0


def test_throttled_lambda_leaves_the_rest_to_the_instances(kernel: Kernel) -> None:
    def throttled(concurrency: int) -> RunResult:
        limits = OverflowLimits(concurrency=concurrency)
        trace = surging(40.0, plus=2.0, minutes=20.0)
        given = experiment(
            kernel, Market.ON_DEMAND, trace=trace, world=FIXED_WORLD, types=MANY, overflow_limits=limits
        )
        result, journal = replayed(given, "mark")
        asked = [order.concurrency for _, order in journal.of(WarmLambda) if isinstance(order, WarmLambda)]
        assert max(asked, default=0) <= concurrency
        assert result.served.in_flight < 200
        return result

    few, many = throttled(5), throttled(1000)
    assert 0 < few.served.lambda_ < many.served.lambda_
    assert few.attained < many.attained
    assert few.served.shed <= many.requests * 0.2


def test_draining_busy_instances_loses_nothing(kernel: Kernel) -> None:
    result, journal = replayed(experiment(kernel, Market.ON_DEMAND, trace=up_and_down(), types=MANY))
    drained = {name for _, order in journal.of(Drain) if isinstance(order, Drain) for name in order.instances}
    assert len(drained) >= 5
    assert result.served.shed == 0
    assert result.attained >= 0.98
    for seen in journal.seen:
        for one in seen.fleet:
            assert one.state is not InstanceState.DRAINING or one.id in drained


def test_every_order_has_a_reason_and_a_token_of_its_own(kernel: Kernel) -> None:
    script = FaultScript(stress=3000.0, refusals=(Refuse(from_s=430.0, to_s=700.0),))
    _, journal = replayed(experiment(kernel, trace=up_and_down(), faults=script, types=MANY), "mark")
    tokens = [order.token for _, order in journal.orders]
    assert len(tokens) == len(set(tokens)) > 12
    assert all(order.reason for _, order in journal.orders)
