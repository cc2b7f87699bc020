"""Load on the servers of a bench, and readings of them: wrk, an open loop, /proc.

Load comes from core 1, the server is on core 0. CPU time and memory are summed over all processes of the server's
session, so that a server of several processes hides nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

SERVER_CORE, LOAD_CORE = 0, 1
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
_RUNS = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The body that is posted. `header_length`: bytes of JSON before binary tensors."""

    path: str
    body: bytes
    header_length: int = 0

    def headers(self) -> dict[str, str]:
        """All but the length, which wrk writes itself."""
        if not self.header_length:
            return {"content-type": "application/json"}
        return {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(self.header_length),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Something that serves: its port and the first process of its session."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round."""

    rps: float
    cpu_us: float
    p50_ms: float
    errors: int


def on_core(core: int) -> tuple[str, ...]:
    """The words that a command begins with to run there."""
    return ("taskset", "-c", str(core))


def drive(
    server: Server,
    ask: Ask,
    folder: Path,
    *,
    seconds: float,
    token: str | None = None,
    own_ids: bool = False,
    connections: int = 64,
) -> Measured:
    """One round of wrk at full speed. own_ids: each request has an x-mark-request-id that no other has."""
    script = folder / "post.lua"
    script.write_bytes(_lua(ask, token, own_ids=own_ids))
    before = cpu_s(server.pid)
    command = [*on_core(LOAD_CORE), "wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency"]
    done = subprocess.run(  # noqa: S603
        [*command, "-s", str(script), f"http://127.0.0.1:{server.port}{ask.path}"],
        capture_output=True,
        text=True,
        check=True,
    )
    used_s = cpu_s(server.pid) - before
    requests = int(_found(r"(\d+) requests in", done.stdout))
    errors = re.findall(r"(?:Non-2xx or 3xx responses:|connect|read|write|timeout) (\d+)", done.stdout)
    return Measured(
        rps=float(_found(r"Requests/sec:\s+([\d.]+)", done.stdout)),
        cpu_us=used_s / max(1, requests) * 1e6,
        p50_ms=_ms(_found(r" 50%\s+([\d.]+[mu]?s)", done.stdout)),
        errors=sum(map(int, errors)),
    )


def _lua(ask: Ask, token: str | None, *, own_ids: bool) -> bytes:
    body = "".join(f"\\{byte:03d}" for byte in ask.body)
    headers = ask.headers() | ({"authorization": f"Bearer {token}"} if token else {})
    lines = ['wrk.method = "POST"', f'wrk.body = "{body}"']
    lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
    if own_ids:
        lines += [
            'wrk.headers["x-mark-request-id"] = "@@"',
            "local head, tail, number = nil, nil, 0",
            "function init(args)",
            "  local text = wrk.format()",
            '  local at = string.find(text, "@@", 1, true)',
            f'  head = string.sub(text, 1, at - 1) .. "{time.time_ns():x}-{next(_RUNS)}-"',
            "  tail = string.sub(text, at + 2)",
            "end",
            "function request()",
            "  number = number + 1",
            "  return head .. number .. tail",
            "end",
        ]
    return "\n".join(lines).encode()


async def paced(
    port: int, ask: Ask, *, rps: float, seconds: float, connections: int = 32, token: str | None = None
) -> float:
    """Open loop at a fixed rate; the median latency in ms from the intended send time."""
    message = _message(ask, token)
    latencies: list[float] = []
    idle: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    class One(asyncio.Protocol):
        sent_at = 0.0

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            idle.put_nowait(self)

        def data_received(self, _: bytes) -> None:
            latencies.append(time.perf_counter() - self.sent_at)
            idle.put_nowait(self)

    for _ in range(connections):
        await loop.create_connection(One, "127.0.0.1", port)
    start = time.perf_counter()
    for number in range(int(rps * seconds)):
        due = start + number / rps
        while time.perf_counter() < due:
            await asyncio.sleep(0)
        one = await idle.get()
        one.sent_at = due
        one.transport.write(message)
    while idle.qsize() < connections:
        await asyncio.sleep(0.001)
    while not idle.empty():
        idle.get_nowait().transport.close()
    return statistics.median(latencies) * 1000


async def saturate(port: int, ask: Ask, *, seconds: float, connections: int) -> float:
    """Closed loop: each connection sends as soon as it has its answer; answers/s, all of them 200."""
    message = _message(ask, None)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    ended: list[asyncio.Future[None]] = []
    answers = count()

    class One(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.ended = transport, loop.create_future()
            ended.append(self.ended)
            transport.write(message)

        def data_received(self, data: bytes) -> None:
            if not data.startswith(b"HTTP/1.1 200"):
                self.ended.set_exception(AssertionError(data))
                self.transport.close()
                return
            next(answers)
            if loop.time() < until:
                self.transport.write(message)
            else:
                self.ended.set_result(None)
                self.transport.close()

        def connection_lost(self, error: Exception | None) -> None:
            if not self.ended.done():
                self.ended.set_exception(error or ConnectionError("the server closed the connection"))

    for _ in range(connections):
        await loop.create_connection(One, "127.0.0.1", port)
    await asyncio.gather(*ended)
    return next(answers) / (seconds + loop.time() - until)


def _message(ask: Ask, token: str | None) -> bytes:
    lines = [f"POST {ask.path} HTTP/1.1", "host: b", f"content-length: {len(ask.body)}"]
    lines += [f"{name}: {value}" for name, value in ask.headers().items()]
    lines += [f"authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode() + ask.body


def cpu_s(session: int) -> float:
    """CPU seconds of a session's processes, their kernel time included."""
    ticks = 0
    for fields in _processes(session):
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def main_thread_s(process: int) -> float:
    """CPU seconds of a process' first thread, to the nanosecond: `cpu_s` counts in ticks of 10 ms."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) * 1e-9


def threads_s(process: int) -> float:
    """CPU seconds of all threads of a process, to the nanosecond."""
    files = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) * 1e-9


def rss_mib(session: int) -> float:
    """Resident memory of a session's processes."""
    return sum(int(fields[21]) for fields in _processes(session)) * PAGE_MIB


def _processes(session: int) -> list[list[str]]:
    """The fields of /proc/PID/stat after the name, of each."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[3]) == session:
            found.append(fields)
    return found


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.group(1)


def _ms(text: str) -> float:
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)
