"""What an announced event adds to a forecast, and what is taken out of a history so that it is not added twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.event_forecasts import with_events, without_events
from mark.domain.demand import Demand, Forecast, point_forecast
from mark.domain.load.announced_events import AnnouncedEvent, events_of

UNIT_S = 60.0
RATES = st.floats(min_value=0.0, max_value=1e4)
FACTORS = st.floats(min_value=1.0, max_value=10.0)


def event(
    at: float, until: float, *, factor: float = 1.0, least_rps: float = 0.0, model: str = ""
) -> AnnouncedEvent:
    return AnnouncedEvent(name=f"at {at:g}", at=at, until=until, factor=factor, least_rps=least_rps, model=model)


def history(rates: tuple[float, ...], end_at: float = 0.0) -> Demand:
    return Demand(end_at=end_at, mean_rps=rates, max_rps=tuple(1.5 * rate for rate in rates))


def forecast(rate: float, start_at: float = 0.0, units: int = 60) -> Forecast:
    rates = (rate,) * units
    return point_forecast(start_at, mean_rps=rates, max_rps=rates, source="test")


EVENTS = st.lists(
    st.builds(
        lambda at, length, factor, least: event(at, at + length, factor=factor, least_rps=least),
        st.floats(min_value=-7200.0, max_value=7200.0),
        st.floats(min_value=1.0, max_value=7200.0),
        FACTORS,
        st.sampled_from((0.0, 50.0)),
    ),
    max_size=4,
)


def test_an_event_of_a_rate_raises_what_is_less() -> None:
    found = with_events(forecast(10.0), [event(60.0, 120.0, least_rps=25.0)])
    assert [row[0] for row in found.mean_rps[:3]] == [10.0, 25.0, 10.0]
    assert with_events(forecast(40.0), [event(60.0, 120.0, least_rps=25.0)]).mean_rps == forecast(40.0).mean_rps


@given(st.lists(RATES, min_size=60, max_size=60), EVENTS)
def test_events_never_lower_a_forecast_nor_touch_another_time(
    rates: list[float], events: list[AnnouncedEvent]
) -> None:
    before = point_forecast(0.0, mean_rps=tuple(rates), max_rps=tuple(rates), source="test")
    after = with_events(before, events)
    for at, (old, new) in enumerate(zip(before.max_rps, after.max_rps, strict=True)):
        touched = any(one.touches(at * UNIT_S, (at + 1) * UNIT_S) for one in events)
        assert new[0] >= old[0]
        assert touched or new == old


def test_a_hundred_events_at_once_expect_a_number_still() -> None:
    found = with_events(forecast(10.0), [event(0.0, 60.0, factor=1000.0)] * 120)
    assert [row[0] for row in found.max_rps[:2]] == [1e12, 10.0]


STEPS = st.integers(-4, 40).map(lambda half: 30.0 * half)


@given(st.floats(0.0, 2e9), st.one_of(STEPS, st.floats(-120.0, 1200.0)), st.one_of(STEPS, st.floats(0.1, 1200.0)))
def test_an_event_changes_the_units_that_it_touches_and_no_other(
    start_at: float, at: float, length: float
) -> None:
    one = event(start_at + at, start_at + at + abs(length) + 0.1, factor=2.0)
    expected = tuple(
        20.0 if one.touches(start_at + unit * UNIT_S, start_at + (unit + 1) * UNIT_S) else 10.0
        for unit in range(10)
    )
    assert tuple(row[0] for row in with_events(forecast(10.0, start_at, 10), [one]).mean_rps) == expected


@given(st.lists(RATES, min_size=1, max_size=180), EVENTS)
def test_a_history_without_its_events_is_never_more_and_loses_no_more_than_was_announced(
    rates: list[float], events: list[AnnouncedEvent]
) -> None:
    seen = history(tuple(rates))
    usual = without_events(seen, events)
    start_at = seen.end_at - len(seen) * UNIT_S
    for at, (was, left) in enumerate(zip(seen.mean_rps, usual.mean_rps, strict=True)):
        most = 1.0
        for one in events:
            if one.touches(start_at + at * UNIT_S, start_at + (at + 1) * UNIT_S):
                most *= one.factor
        assert was / most * (1 - 1e-9) <= left <= was


@given(st.floats(min_value=1.0, max_value=1e3), FACTORS, st.floats(min_value=0.0, max_value=3.0))
def test_an_event_is_not_counted_twice_and_holds_until_its_end(usual: float, factor: float, came: float) -> None:
    """A forecaster that repeats the last unit, amid an event that brought `came` times what was announced."""
    one = event(-1800.0, 1800.0, factor=factor)
    load = max(usual, came * factor * usual)
    seen = history((usual,) * 60 + (load,) * 30)
    left = without_events(seen, [one])
    made = point_forecast(
        0.0, mean_rps=(left.mean_rps[-1],) * 60, max_rps=(left.mean_rps[-1],) * 60, source="last"
    )
    expected = with_events(made, [one])
    assert expected.mean_rps[0][0] == pytest.approx(max(factor * usual, load))
    assert expected.mean_rps[59][0] == pytest.approx(max(usual, load / factor))  # after its end


def test_where_nothing_came_of_an_event_its_history_stays() -> None:
    seen = history((20.0,) * 120)
    assert without_events(seen, [event(-1800.0, 0.0, factor=3.0)]) == seen


def test_events_of_another_model_are_left_out() -> None:
    mine, all_of_them, other = (
        event(at, at + 60.0, factor=2.0, model=name) for at, name in enumerate(("a", "", "b"))
    )
    assert events_of([other, all_of_them, mine], "a") == (mine, all_of_them)
