"""A forecaster that is late or fails is replaced for a tick, and the status says so."""

from __future__ import annotations

import sys
import threading

import pytest

from mark.domain.demand import Demand, Forecast, point_forecast
from mark.live.control.status_writer import stand_in_notes
from mark.plugins.deadline import PunctualForecaster
from tests.controller.test_runner import World, controller

HISTORY = Demand(end_at=60.0, mean_rps=(3.0,), max_rps=(4.0,))
LONG_S = 30.0


class Slow:
    """Answers once `go` is set, at once while it is."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.threads: set[str] = set()

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        self.begun.release()
        self.threads.add(threading.current_thread().name)
        assert self.go.wait(LONG_S)
        return point_forecast(history.end_at, mean_rps=(1.0,) * horizon, max_rps=(2.0,) * horizon, source="slow")


def test_in_time_it_is_the_forecasters_own_answer_from_one_thread() -> None:
    slow, took = Slow(), list[float]()
    slow.go.set()
    punctual = PunctualForecaster(slow, name="slow", deadline_s=LONG_S, took=took.append)

    answers = [punctual.forecast(HISTORY, horizon) for horizon in (2, 3)]
    punctual.close()

    assert [len(answer) for answer in answers] == [2, 3]
    assert slow.threads == {"forecast-slow"}
    assert len(took) == 2


def test_late_it_raises_and_what_hangs_is_not_asked_again_until_it_is_done() -> None:
    slow = Slow()
    done = threading.Event()
    punctual = PunctualForecaster(slow, name="slow", deadline_s=0.01, took=lambda _s: done.set())

    with pytest.raises(TimeoutError, match=r"no forecast within 0\.01 s"):
        punctual.forecast(HISTORY, 2)
    assert slow.begun.acquire(timeout=LONG_S)
    with pytest.raises(TimeoutError, match="late before is not done yet"):
        punctual.forecast(HISTORY, 2)
    assert not slow.begun.acquire(blocking=False)
    slow.go.set()
    assert done.wait(LONG_S)
    punctual.close()


def test_after_a_late_one_the_next_answer_is_its_own() -> None:
    slow = Slow()
    punctual = PunctualForecaster(slow, name="slow", deadline_s=LONG_S, first_s=0.01)
    with pytest.raises(TimeoutError):
        punctual.forecast(HISTORY, 2)
    slow.go.set()
    later = Demand(end_at=120.0, mean_rps=(3.0, 3.0), max_rps=(4.0, 4.0))

    answer = _until_done(punctual, later)
    punctual.close()

    assert answer.start_at == 120.0


def _until_done(punctual: PunctualForecaster, history: Demand) -> Forecast:
    while True:
        try:
            return punctual.forecast(history, 2)
        except TimeoutError:
            continue


@pytest.mark.parametrize(
    ("fails", "said"), [(lambda: 1 / 0, "division"), (lambda: sys.exit(3), r"it called exit\(3\)")]
)
def test_what_a_forecaster_raises_reaches_the_asker_each_time(fails, said) -> None:
    class Fails:
        def forecast(self, history: Demand, horizon: int) -> Forecast:
            fails()
            raise AssertionError

    punctual = PunctualForecaster(Fails(), name="fails", deadline_s=LONG_S)

    for _ in range(2):
        with pytest.raises((ZeroDivisionError, RuntimeError), match=said):
            punctual.forecast(HISTORY, 2)
    punctual.close()


def test_the_status_says_who_stands_in_until_the_forecaster_is_back() -> None:
    world = World(error=ValueError("two\nlines"))
    acting = controller(world)
    assert stand_in_notes(acting) == ()
    acting.tick()
    (note,) = stand_in_notes(acting)
    assert note.endswith("stands in for it: ValueError: two lines")
    assert note.startswith("the forecaster World failed, ")
    world.error, world.at = None, 60.0
    acting.tick()
    assert stand_in_notes(acting) == ()
