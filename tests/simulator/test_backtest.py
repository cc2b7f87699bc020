"""Backtests through the port: what a forecaster is shown, which pairs are scored, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mark.domain.demand import KEEP_HISTORY, Demand, Forecast, point_forecast
from mark.domain.errors import Misconfigured
from mark.simulator.backtest import KEPT_LEVELS, BacktestScores, BacktestSpan, run_backtest
from mark.simulator.backtest_span import demand_between, make_span
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload

DAY = 1440


def ramp(units: int, first: float, end_at: float) -> Demand:
    means = tuple(first + i for i in range(units))
    return Demand(end_at=end_at, mean_rps=means, max_rps=tuple(2 * mean for mean in means))


def span(
    units: int = 6,
    *,
    known: int = 3,
    leads: tuple[int, ...] = (1, 2),
    target: str = "mean",
    every: int = 1,
    kept: tuple[bool, ...] | None = None,
) -> BacktestSpan:
    """Rates 1, 2, 3 ... a unit; the span begins after `known` of them."""
    start_s = 60.0 * known
    return BacktestSpan(
        trace="ramp",
        history=ramp(known, 1.0, start_s),
        future=ramp(units, 1.0 + known, start_s + 60.0 * units),
        kept=np.array(kept if kept is not None else (True,) * units),
        leads=leads,
        drawn_lead=leads[0],
        target=target,
        every=every,
    )


class Repeats:
    """The last value, with bands of a known width where levels are given; keeps what it was shown."""

    def __init__(self, levels: tuple[float, ...] = (0.5,), rates: tuple[float, ...] = (0.0,)) -> None:
        self.levels, self.plus = levels, rates
        self.shown: list[Demand] = []

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        self.shown.append(history)
        rows = tuple(
            tuple(last + plus for plus in self.plus) for last in (history.mean_rps[-1], history.max_rps[-1])
        )
        return Forecast(
            start_at=history.end_at,
            mean_rps=(rows[0],) * horizon,
            max_rps=(rows[1],) * horizon,
            quantiles=self.levels,
            source="repeats",
        )


def scored(asked: BacktestSpan, forecaster: object = None) -> BacktestScores:
    return run_backtest(asked, forecaster or Repeats(), lambda _share: None)  # type: ignore[arg-type]


def test_a_forecaster_is_shown_what_had_ended_and_no_more() -> None:
    repeats = Repeats()

    scored(span(4, known=2), repeats)

    assert [history.mean_rps for history in repeats.shown] == [
        (1.0, 2.0), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0, 5.0)
    ]  # fmt: skip
    assert [history.end_at for history in repeats.shown] == [120.0, 180.0, 240.0, 300.0]


def test_no_more_than_two_weeks_are_shown() -> None:
    repeats = Repeats()

    scored(span(3, known=KEEP_HISTORY), repeats)

    assert {len(history) for history in repeats.shown} == {KEEP_HISTORY}
    assert repeats.shown[-1].mean_rps[0] == 3.0


def test_scores_of_the_last_value_on_a_ramp() -> None:
    # rates 4 ... 9; lead 1 is off by 1 at six origins, lead 2 by 2 at five (the sixth's target lies outside)
    found = scored(span(6))

    came = (4 + 5 + 6 + 7 + 8 + 9) + (5 + 6 + 7 + 8 + 9)
    assert (found.origins, found.pairs) == (6, 11)
    assert found.wape == pytest.approx((6 + 10) / came)
    # every quantile is the last value, always too low: the mean level is 0.775
    assert found.wql == pytest.approx(2 * 0.775 * 16 / came)
    assert [item.lead for item in found.by_lead] == [1, 2]
    assert [item.wape for item in found.by_lead] == pytest.approx([6 / 39, 10 / 35])
    assert found.coverage.tolist() == [0.0] * len(KEPT_LEVELS)
    assert math.isnan(found.mase)
    assert found.notes == ("point forecasts: the one value is scored as every quantile",)


def test_the_target_may_be_the_maximum() -> None:
    assert scored(span(6, target="max")).wape == pytest.approx(scored(span(6)).wape)
    assert scored(span(6, target="max"), Repeats((0.5,), (2.0,))).by_lead[0].wape == 0.0


def test_errors_are_scaled_by_the_day_before_on_the_history() -> None:
    assert scored(span(6, known=DAY + 3, leads=(3,))).mase == pytest.approx(3 / DAY)


def test_quantiles_are_scored_at_their_levels_and_between_them() -> None:
    found = scored(span(6, leads=(1,)), Repeats((0.5, 0.9), (0.0, 2.0)))

    # the ramp rises by 1: between 0.5 (+ 0) and 0.9 (+ 2) the 0.7 quantile is what comes
    assert found.coverage.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    losses = (0.5 * 1, 0.25 * 0.25, 0.1 * 1, 0.05 * 1)
    assert found.wql == pytest.approx(2 * np.mean(losses) * 6 / 39)
    assert found.notes == ("no level above 0.9: that one is scored as those above it",)


def test_origins_are_thinned_and_minutes_left_out() -> None:
    repeats = Repeats()

    found = scored(span(6, every=3, kept=(True, True, False, True, True, True)), repeats)

    assert len(repeats.shown) == found.origins == 2
    # origins 0 and 3, leads 1 and 2: units 0, 1, 3, 4 are targets, none of them left out
    assert found.pairs == 4
    assert scored(span(6, kept=(True, True, False, True, True, True))).pairs == 11 - 2


def test_days_are_told_apart() -> None:
    found = scored(span(DAY + 10, leads=(1,)), Repeats((0.5, 0.9), (1.0, 2.0)))

    assert [(item.day, item.pairs) for item in found.by_day] == [(1, DAY), (2, 10)]
    assert found.by_day[1].coverage[KEPT_LEVELS.index(0.9)] == 1.0


def test_the_drawn_lead_is_kept() -> None:
    path = scored(span(6, leads=(2, 4))).path

    assert path.lead == 2
    assert path.at_s.tolist() == [60.0, 120.0, 180.0, 240.0, 300.0]
    assert path.actual.tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert path.quantiles[:, 0].tolist() == [3.0, 4.0, 5.0, 6.0, 7.0]


def test_what_a_forecaster_says_of_its_forecasts_is_passed_on() -> None:
    class Unsure(Repeats):
        def forecast(self, history: Demand, horizon: int) -> Forecast:
            made = super().forecast(history, horizon)
            return point_forecast(
                made.start_at,
                mean_rps=made.max_at(0.5),
                max_rps=made.max_at(0.5),
                source="mine" if len(history) < 7 else "other",
                degraded=f"under 5 units of history: {len(history)}" if len(history) < 5 else None,
            )

    assert (
        scored(span(6), Unsure()).notes[-1] == "sources of its forecasts: mine, degraded (2 times, "
        "first: under 5 units of history: 3); mine (2 times); other (2 times)"
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda h, n: None, "TypeError at minute 0 of the span: it returned a NoneType"),
        (
            lambda h, n: point_forecast(h.end_at, mean_rps=(math.nan,) * n, max_rps=(1.0,) * n, source=""),
            "ValueError",
        ),
        (lambda h, n: point_forecast(h.end_at, mean_rps=(1.0,), max_rps=(1.0,), source=""), "it covers 1 units"),
        (lambda h, n: 1 / 0, "ZeroDivisionError at minute 0 of the span: division by zero"),
        (
            lambda h, n: Forecast(
                start_at=h.end_at, mean_rps=((1.0, 2.0),) * n, max_rps=((1.0, 2.0),) * n, quantiles=(0.9, 0.5)
            ),
            "quantile levels do not rise",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line(answer, said) -> None:
    class Wrong:
        def forecast(self, history, horizon):
            return answer(history, horizon)

    with pytest.raises(Misconfigured) as caught:
        scored(span(), Wrong())

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"units": 0}, "a whole minute"),
        ({"units": 3, "leads": (5,)}, "too few for a lead of 5"),
        ({"units": 2, "kept": (False, False)}, "nothing is left to score"),
    ],
)
def test_a_span_that_holds_nothing_is_refused(asked, said) -> None:
    with pytest.raises(Misconfigured, match=said):
        span(**asked)


def workload(trace: Trace, start_s: float) -> Workload:
    return Workload(trace=trace, seed=3, start_s=start_s)


def minutes(rates: list[float], *, start_at: float = 0.0) -> Trace:
    return Trace(name="m", start_at=start_at, bin_s=60.0, rates_rps=np.array(rates), whole_counts=False)


def test_a_trace_of_minutes_is_forecast_as_it_was_measured() -> None:
    found = demand_between(workload(minutes([3.0, 0.0, 7.25, 1.5]), 60.0), 60.0, 240.0)

    assert found.mean_rps == (0.0, 7.25, 1.5)
    assert all(high >= mean for high, mean in zip(found.max_rps, found.mean_rps, strict=True))
    assert (found.end_at, found.max_rps[0]) == (240.0, 0.0)


def test_minutes_that_straddle_bins_take_their_share_of_each() -> None:
    assert demand_between(workload(minutes([6.0, 12.0, 0.0]), 15.0), 15.0, 135.0).mean_rps == (7.5, 9.0)


def test_counted_arrivals_are_counted() -> None:
    counted = workload(constant(20, duration_s=600, seed=1), 300.0)

    assert demand_between(counted, 300.0, 600.0) == counted.demand(300.0, 600.0)


def test_times_of_day_are_left_out_by_the_sources_clock() -> None:
    # the trace begins at 23:28 of its source's clock
    trace = minutes([1.0] * 60, start_at=23 * 3600 + 28 * 60.0)

    made = make_span(
        workload(trace, 0.0),
        history_units=10,
        leads=(1,),
        drawn_lead=1,
        target="mean",
        leave_out=[(23 * 3600 + 31 * 60.0, 86_400.0), (10 * 60.0, 11 * 60.0)],
    )

    kept = made.kept.tolist()
    assert kept[:3] == [True] * 3
    assert kept[3:32] == [False] * 29
    assert kept[32:42] == [True] * 10
    assert kept[42:44] == [False, True]
