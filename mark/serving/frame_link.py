"""One end of a connection between a gateway and an agent: frames in, frames out.

Frames that arise in one turn of the event loop leave in one write. A malformed frame closes the connection, as
does one that takes longer than WHOLE_FRAME_S to come whole; an exception on the way of one frame costs that
frame's request alone, for those behind it are other requests'.

A connection begins with a handshake (`protocols/handshake.py`). Until the other end is known only short frames are
read, and only those of the handshake are taken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import cast

from mark.protocols.frames import LONGEST_GREETING, MAX_FRAME_BYTES, Frame, FrameError, FrameParser
from mark.protocols.handshake import Refused
from mark.serving.unexpected_errors import UnexpectedErrors

WHOLE_FRAME_S = 20.0
"""Limit for one frame to come whole, as for a client's request: 3.4 MB/s for the largest."""
HANDSHAKE_S = 5.0
"""Limit for the other end to be known."""


class FrameLink(asyncio.Protocol):
    """Reading and writing, the same at both ends; each takes its frames in `on_greeting` and then in `on_frame`.

    peer, fields: name the other end in the log. `received`: something has come since the owner last cleared it.
    `is_known`: the other end has proved who it is.
    """

    def __init__(self, log: logging.Logger, unexpected: UnexpectedErrors, peer: str, **fields: str) -> None:
        self.received = self.is_known = False
        self._transport: asyncio.Transport | None = None
        self._log, self._unexpected, self._peer, self._fields = log, unexpected, peer, fields
        self._loop = asyncio.get_running_loop()
        self._parser = FrameParser(LONGEST_GREETING)
        self._begun = 0
        self._waited_s = 0.0
        self._out: list[bytes] = []

    def on_greeting(self, frame: Frame) -> bool:
        """Take a frame of the handshake; True where the other end is known with it. Errors: FrameError."""
        raise NotImplementedError

    def on_frame(self, frame: Frame, now: float) -> None:
        """Take a frame that has come. Errors: FrameError closes the connection."""
        raise NotImplementedError

    def on_frame_error(self, frame: Frame, error: Exception, now: float) -> None:  # noqa: ARG002
        """Look after the request of a frame on which `on_frame` raised."""
        self._unexpected.note(error, frame=type(frame).__name__, **self._fields)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Called by the loop."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self.received = True
        now = time.monotonic()
        try:
            for frame in self._parser.feed(data):
                try:
                    if self.is_known:
                        self.on_frame(frame, now)
                    else:
                        self._greet(frame)
                except FrameError:
                    raise
                except Exception as error:  # noqa: BLE001 - the frames behind it are other requests'
                    self.on_frame_error(frame, error, now)
        except FrameError as error:
            about = "%s refused" if isinstance(error, Refused) else "malformed frame from %s"
            self.give_up(about, str(error))

    def give_up(self, about: str, reason: str) -> None:
        """Close at once, with a line in the log. about: of the other end, which stands for %s."""
        self._log.warning(about, self._peer, extra={"reason": reason, **self._fields})
        self.abort()

    def check_progress(self, passed_s: float) -> None:
        """Close a connection whose handshake, or whose frame, has not come whole within its time.

        Periods are counted, not the clock: a process that was stopped for a while has not waited meanwhile.
        """
        parser = self._parser
        is_same = not self.is_known or (parser.held > 0 and parser.begun == self._begun)
        self._waited_s = self._waited_s + passed_s if is_same else 0.0
        self._begun = parser.begun
        limit_s = WHOLE_FRAME_S if self.is_known else HANDSHAKE_S
        if self._waited_s > limit_s and self._transport is not None:
            what = "a frame has" if self.is_known else "the handshake has"
            self.give_up("%s too slow; closing its connection", f"{what} not come whole within {limit_s:g} s")
            self._waited_s = 0.0

    def _greet(self, frame: Frame) -> None:
        if self.on_greeting(frame):
            self.is_known, self._parser.max_frame_bytes, self._waited_s = True, MAX_FRAME_BYTES, 0.0

    def write(self, frame: bytes) -> None:
        """Send a frame at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(frame)

    def write_now(self, frame: bytes) -> None:
        """Send a frame now: for who writes at the end of a turn, where `write` would wait for one more."""
        self._out.append(frame)
        self.flush()

    def flush(self) -> None:
        """Send what was written now."""
        out, transport = self._out, self._transport
        self._out = []
        if not out or transport is None or transport.is_closing():
            return  # what a lost connection held is looked after in `connection_lost`
        try:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        except Exception as error:  # noqa: BLE001 - requests or answers are missing: they go elsewhere
            self._unexpected.note(error, **self._fields)
            self.abort()

    def abort(self) -> bool:
        """Close at once; False where it was closed already."""
        if self._transport is None:
            return False
        self._transport.abort()
        return True
