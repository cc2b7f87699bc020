"""Flow control of one stream between an agent and a gateway: bytes on their way never exceed a window. Pure.

The agent takes bytes out of its window as it sends parts. The gateway gives credit for bytes that its client's
connection has taken; while that connection holds back, it gives none, so the agent stops asking its backend for
more and nothing grows at either end. Other streams have windows of their own.
"""

from __future__ import annotations

from mark.protocols.frames import FrameError

WINDOW_BYTES = 64 * 1024
"""Bytes of one stream that may be on their way; a round trip of 1 ms then carries 64 MB/s of it."""
CREDIT_BYTES = WINDOW_BYTES // 4
"""Least credit that is worth a frame."""


class SendWindow:
    """The sender's end."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WINDOW_BYTES

    def take(self, wanted: int) -> int:
        """Bytes, of those wanted, that may be sent now."""
        taken = min(wanted, self.left)
        self.left -= taken
        return taken

    def add(self, credit: int) -> None:
        """Open the window by a credit. Errors: FrameError where it exceeds what was sent."""
        if self.left + credit > WINDOW_BYTES:
            raise FrameError(f"a credit of {credit} bytes is more than was sent")
        self.left += credit


class ReceiveWindow:
    """The receiver's end. `held`: bytes that came and were not credited."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0

    def received(self, size: int) -> None:
        """Count a part. Errors: FrameError where the sender exceeds its window."""
        if self.held + size > WINDOW_BYTES:
            raise FrameError(f"a stream exceeds its window of {WINDOW_BYTES} bytes")
        self.held += size

    def credit(self) -> int:
        """The credit to give now that what came has been passed on; 0 while it is not worth a frame."""
        if self.held < CREDIT_BYTES:
            return 0
        credit, self.held = self.held, 0
        return credit
