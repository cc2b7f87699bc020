"""Users' code that answers in time or is said to be late.

The calls run in a thread of their own, one for the asked object's whole life. What comes after the deadline is
thrown away: who asked has gone on without it by then. While a late call still runs no other is started, so code
that hangs costs one thread and never a queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeVar, cast

from mark.domain.demand import Demand, Forecast
from mark.domain.errors import failure_words
from mark.ports import Forecaster

DEADLINE_S = 2.0
"""Real seconds that a forecast or a plan may take: a rehearsal at 20 times the speed plans every three."""
Answer = TypeVar("Answer")


@dataclass(slots=True, kw_only=True)
class _Call:
    """One answer that was asked for, and what came of it or went wrong once `done` is set."""

    ask: Callable[[], object]
    done: threading.Event = field(default_factory=threading.Event)
    answer: object = None
    error: BaseException | None = None


class Punctual:
    """Asks for answers of a kind (`what`), and raises TimeoutError where one is late. `name` is the thread's.

    `first_s` is the first call's deadline, where it may load libraries; that of all others where left out. `took`
    is told the seconds of each call that ends, late ones too.
    """

    def __init__(
        self,
        what: str,
        *,
        name: str,
        deadline_s: float = DEADLINE_S,
        first_s: float | None = None,
        took: Callable[[float], object] | None = None,
    ) -> None:
        self._what, self._name = what, name
        self._deadline_s = deadline_s
        self._next_s = deadline_s if first_s is None else first_s
        self._took = took
        self._asked: SimpleQueue[_Call | None] = SimpleQueue()
        self._last: _Call | None = None
        self._thread: threading.Thread | None = None

    def answer(self, ask: Callable[[], Answer]) -> Answer:
        """Answer as `ask` does, errors included. TimeoutError at the deadline, or while a late call runs."""
        if self._last is not None and not self._last.done.is_set():
            raise TimeoutError(f"a {self._what} that was late before is not done yet")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"{self._what}-{self._name}", daemon=True)
            self._thread.start()
        call = self._last = _Call(ask=ask)
        limit_s, self._next_s = self._next_s, self._deadline_s
        self._asked.put(call)
        if not call.done.wait(limit_s):
            raise TimeoutError(f"no {self._what} within {limit_s:g} s")
        if call.error is not None:
            raise call.error
        return cast("Answer", call.answer)

    def close(self) -> None:
        """Let the thread end once its call is done."""
        self._asked.put(None)

    def _work(self) -> None:
        while (call := self._asked.get()) is not None:
            began = time.perf_counter()
            try:
                call.answer = call.ask()
            except Exception as error:  # noqa: BLE001 - a user's code may fail in any way; the asker is told
                call.error = error
            except SystemExit as error:  # it would end this thread, and every later call would be late
                call.error = RuntimeError(failure_words(error))
            if self._took is not None:
                self._took(time.perf_counter() - began)
            call.done.set()


class PunctualForecaster:
    """A forecaster whose forecasts are in time, or TimeoutError is raised. `name` is what facts call it.

    The deadlines and `took` are those of `Punctual`.
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
        self._punctual = Punctual("forecast", name=name, deadline_s=deadline_s, first_s=first_s, took=took)

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """The forecast, or what the forecaster raised; another answer is for the controller to refuse."""
        return self._punctual.answer(lambda: self._forecaster.forecast(history, horizon))

    def close(self) -> None:
        """Let the thread end once its call is done."""
        self._punctual.close()
