"""A forecaster that answers in time or says that it is late.

The call runs in a thread of its own, one for the forecaster's whole life. What comes after the deadline is thrown
away: the controller has planned with the fallback by then. While a late call still runs no other is started, so a
forecaster that hangs costs one thread and never a queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import cast

from mark.domain.demand import Demand, Forecast
from mark.domain.errors import failure_words
from mark.ports import Forecaster

DEADLINE_S = 2.0
"""Real seconds that a forecast may take: a rehearsal at 20 times the speed plans every three."""


@dataclass(slots=True, kw_only=True)
class _Call:
    """One forecast that was asked for, and its answer or what went wrong once `done` is set."""

    history: Demand
    horizon: int
    done: threading.Event = field(default_factory=threading.Event)
    answer: Forecast | None = None
    error: BaseException | None = None


class PunctualForecaster:
    """Asks `forecaster`, and raises TimeoutError where it is late. `name` is what facts call it.

    `first_s` is the first call's deadline, where it may load libraries; that of all others where left out. `took`
    is told the seconds of each call that ends, late ones too.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        *,
        name: str,
        deadline_s: float = DEADLINE_S,
        first_s: float | None = None,
        took: Callable[[float], object] | None = None,
    ) -> None:
        self.name = name
        self._forecaster = forecaster
        self._deadline_s = deadline_s
        self._next_s = deadline_s if first_s is None else first_s
        self._took = took
        self._asked: SimpleQueue[_Call | None] = SimpleQueue()
        self._last: _Call | None = None
        self._thread: threading.Thread | None = None

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """The forecast, or what the forecaster raised. TimeoutError at the deadline, or while a late call runs."""
        if self._last is not None and not self._last.done.is_set():
            raise TimeoutError("a forecast that was late before is not done yet")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"forecast-{self.name}", daemon=True)
            self._thread.start()
        call = self._last = _Call(history=history, horizon=horizon)
        limit_s, self._next_s = self._next_s, self._deadline_s
        self._asked.put(call)
        if not call.done.wait(limit_s):
            raise TimeoutError(f"no forecast within {limit_s:g} s")
        if call.error is not None:
            raise call.error
        return cast("Forecast", call.answer)  # anything else is for the controller to refuse

    def close(self) -> None:
        """Let the thread end once its call is done."""
        self._asked.put(None)

    def _work(self) -> None:
        while (call := self._asked.get()) is not None:
            began = time.perf_counter()
            try:
                call.answer = self._forecaster.forecast(call.history, call.horizon)
            except Exception as error:  # noqa: BLE001 - a user's forecaster may fail in any way; the asker is told
                call.error = error
            except SystemExit as error:  # it would end this thread, and every later call would be late
                call.error = RuntimeError(failure_words(error))
            if self._took is not None:
                self._took(time.perf_counter() - began)
            call.done.set()
