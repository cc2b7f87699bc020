"""What an HTTP server is given: its limits, which its connections keep, and its handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Handler = Callable[[Any], None]
OnError = Callable[[Any, Exception], None]
Admits = Callable[[bytes, dict[str, bytes]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits on what clients may send and keep open."""

    body_bytes: int = 32 * 1024 * 1024
    #: of all connections together: eight of the largest bodies, an eighth of the smallest gateway's 2 GiB
    bodies_bytes: int = 256 * 1024 * 1024
    head_bytes: int = 32 * 1024
    headers: int = 100
    #: requests that wait on one connection before it is read no further
    pipelined: int = 64
    connections: int = 16_384
    #: seconds for one request to come in, or a response to go out
    slow_s: float = 20.0
    #: seconds that a connection without a request is kept
    idle_s: float = 75.0
    #: seconds that one still has to send the next request when the server ends, and to learn that it closes
    leave_s: float = 1.0
    #: seconds between two checks of all connections
    sweep_s: float = 1.0
