"""Streams through gateway and agent beside the same streams from their server: first bytes, and many at once."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import cast

STREAM = b"POST /v2/models/bench/generate_stream HTTP/1.1\r\nhost: b\r\ncontent-length: 2\r\n\r\n{}"
END = b"\r\n0\r\n\r\n"
WHOLE_WITHIN_S = 60.0


class StreamReader(asyncio.Protocol):
    """One client: one stream, when its first byte of the body came and whether it came whole."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self.began_at = self.first_s = 0.0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def ask(self) -> asyncio.Future[bool]:
        """Begin a stream; the future is True where it came whole."""
        self.ended, self.first_s, self._tail = asyncio.get_running_loop().create_future(), 0.0, b""
        self.began_at = time.perf_counter()
        self._transport.write(STREAM)
        return self.ended

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._tail = (self._tail + data)[-512:]
        if not self.first_s and b"data: " in self._tail:
            self.first_s = time.perf_counter() - self.began_at
        if self._tail.endswith(END) and not self.ended.done():
            self.ended.set_result(True)

    def connection_lost(self, _: Exception | None) -> None:
        """Called by the loop."""
        if not self.ended.done():
            self.ended.set_result(False)

    def close(self) -> None:
        """Leave."""
        self._transport.close()


async def first_bytes_ms(ports: dict[str, int], rounds: int) -> dict[str, list[float]]:
    """Milliseconds to the first byte at each port, one stream after another, the ports in turn."""
    readers = {name: await _reader(port) for name, port in ports.items()}
    found: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(rounds):
        for name, reader in readers.items():
            if not await reader.ask():
                raise RuntimeError(f"a stream of {name} was cut short")
            found[name].append(reader.first_s * 1000)
    for reader in readers.values():
        reader.close()
    return found


async def at_once(port: int, count: int) -> tuple[int, float]:
    """So many streams at the same time: how many came whole, and the median milliseconds to the first byte."""
    readers = [await _reader(port) for _ in range(count)]
    async with asyncio.timeout(WHOLE_WITHIN_S):
        whole = await asyncio.gather(*(reader.ask() for reader in readers))
    for reader in readers:
        reader.close()
    return sum(whole), statistics.median(reader.first_s for reader in readers) * 1000


async def _reader(port: int) -> StreamReader:
    _, reader = await asyncio.get_running_loop().create_connection(StreamReader, "127.0.0.1", port)
    return reader
