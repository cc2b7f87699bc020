"""One end of a connection between a gateway and an agent: frames in, frames out.

Frames that arise in one turn of the event loop leave in one write. A malformed frame closes the connection; an
exception on the way of one frame costs that frame's request alone, for those behind it are other requests'.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import cast

from mark.protocols.frames import Frame, FrameError, FrameParser
from mark.serving.unexpected_errors import UnexpectedErrors


class FrameLink(asyncio.Protocol):
    """Reading and writing, the same at both ends; each takes its frames in `on_frame`.

    peer, fields: name the other end in the log. `received`: something has come since the owner last cleared it.
    """

    def __init__(self, log: logging.Logger, unexpected: UnexpectedErrors, peer: str, **fields: str) -> None:
        self.received = False
        self._transport: asyncio.Transport | None = None
        self._log, self._unexpected, self._peer, self._fields = log, unexpected, peer, fields
        self._loop = asyncio.get_running_loop()
        self._parser = FrameParser()
        self._out: list[bytes] = []

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
                    self.on_frame(frame, now)
                except FrameError:
                    raise
                except Exception as error:  # noqa: BLE001 - the frames behind it are other requests'
                    self.on_frame_error(frame, error, now)
        except FrameError as error:
            fields = {"reason": str(error), **self._fields}
            self._log.warning("malformed frame from %s", self._peer, extra=fields)
            self.abort()

    def write(self, frame: bytes) -> None:
        """Send a frame at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(frame)

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
