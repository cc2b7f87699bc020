"""A thread of its own for a model's calls, which keeps no process alive: a call that never ends is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ModelThread:
    """Runs calls one after another, in the order they were made."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    async def run(self, call: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """The call's result, or what it raised."""
        future: Future[Result] = Future()

        def make() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = call(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)

        if not self._thread.is_alive():
            self._thread.start()
        self._calls.put(make)
        return await asyncio.wrap_future(future)

    async def close(self, within_s: float) -> None:
        """Let it end after its last call, and wait for that, `within_s` at most."""
        if self._thread.is_alive():
            self.end()
            await asyncio.to_thread(self._thread.join, within_s)

    def end(self) -> None:
        """Let it end after its last call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (make := self._calls.get()) is not None:
            make()
            make = None  # its batch and answers are not kept until the next call
