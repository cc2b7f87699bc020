"""One kept-alive client connection: a request at a time, its answer handed to a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import httptools


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer."""

    status: int
    served_by: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer: the connection was reset, or nothing came in time."""

    why: str


class Connection(asyncio.Protocol):
    """Carries one request at a time; a pool owns it."""

    def __init__(self) -> None:
        self.is_open = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._done: Callable[[Answer | Lost], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._served_by = ""
        self._body: list[bytes] = []

    def ask(self, request: bytes, done: Callable[[Answer | Lost], None], timeout_s: float) -> None:
        """Send a request; `done` is called once, with the answer or what was lost."""
        assert self._transport is not None, "asked before it was connected"
        assert self._done is None, "asked while a request is under way"
        self._done = done
        self._timer = self._loop.call_later(timeout_s, self._late)
        self._transport.write(request)

    def close(self) -> None:
        """Close it; a request under way is lost."""
        if self._transport is not None:
            self._transport.close()

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Feed the parser; nonsense ends the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._finish(Lost("malformed"))
            self.close()

    def connection_lost(self, _error: Exception | None) -> None:
        """Gone."""
        self.is_open = False
        self._finish(Lost("reset"))

    # httptools' side.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep who served it."""
        if name.lower() == b"x-mark-served-by":
            self._served_by = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        """Keep a part of the body."""
        self._body.append(part)

    def on_message_complete(self) -> None:
        """The answer is there."""
        status = self._parser.get_status_code()
        if status == 100:
            return
        answer = Answer(status, self._served_by, b"".join(self._body))
        self._served_by, self._body = "", []
        if not self._parser.should_keep_alive():
            self.is_open = False
            self.close()
        self._parser = httptools.HttpResponseParser(self)
        self._finish(answer)

    def _late(self) -> None:
        self.is_open = False
        self._finish(Lost("timeout"))
        self.close()

    def _finish(self, outcome: Answer | Lost) -> None:
        if self._timer is not None:
            self._timer.cancel()
        done, self._done, self._timer = self._done, None, None
        if done is not None:
            done(outcome)
