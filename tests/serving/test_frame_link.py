"""A connection's end between gateway and agent: writes that are gathered, and what it survives."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mark.protocols.frames import Bounced, Cancel, Frame, FrameError, Goodbye, encode
from mark.serving.frame_link import FrameLink
from mark.serving.unexpected_errors import UnexpectedErrors

log = logging.getLogger("test.frames")


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.ended:
            raise RuntimeError("the transport is closed")
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.ended = True


class End(FrameLink):
    """Keeps what comes; a Cancel is unexpected, id 13 raises."""

    def __init__(self) -> None:
        self.errors = UnexpectedErrors(log)
        super().__init__(log, self.errors, "peer", instance="i-1")
        self.is_known = True
        self.came: list[Frame] = []
        self.wire = Wire()
        self.connection_made(self.wire)

    def on_frame(self, frame: Frame, now: float) -> None:
        if isinstance(frame, Cancel):
            raise FrameError("unexpected frame")
        if frame == Bounced(13, 0):
            raise KeyError("a defect")
        self.came.append(frame)


async def test_frames_of_one_turn_leave_in_one_write() -> None:
    end = End()
    first, second = encode(Bounced(1, 0)), encode(Bounced(2, 0))
    end.write(first)
    end.write(second)
    assert end.wire.written == []
    await asyncio.sleep(0)
    assert end.wire.written == [first + second]


async def test_an_exception_costs_its_own_frame_and_no_other() -> None:
    end = End()
    end.data_received(encode(Bounced(12, 0)) + encode(Bounced(13, 0)) + encode(Bounced(14, 0)))
    assert end.came == [Bounced(12, 0), Bounced(14, 0)]
    assert end.errors.count == 1
    assert not end.wire.ended


@pytest.mark.parametrize("wrong", [b"\x00" * 64, encode(Cancel(1))], ids=["malformed", "unexpected"])
async def test_a_malformed_or_unexpected_frame_closes_the_connection(
    wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    end = End()
    end.data_received(encode(Goodbye()) + wrong + encode(Goodbye()))
    assert end.came == [Goodbye()]
    assert end.wire.ended
    assert end.errors.count == 0
    assert "malformed frame from peer" in caplog.text


async def test_nothing_is_written_to_a_connection_that_closes() -> None:
    end = End()
    end.write(encode(Goodbye()))
    end.abort()
    await asyncio.sleep(0)
    assert (end.wire.written, end.errors.count) == ([], 0)
