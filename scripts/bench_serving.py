"""The gateway beside HAProxy, and gateway with agent: requests a core, added latency, memory. `--help` says how.

Server on core 0, load generator and a trivial backend on core 1; wrk with 64 keep-alive connections posts 2 kB of
JSON and gets 11 bytes back. Rounds alternate and medians count. What is compared is CPU microseconds a request of
the server's process (`/proc/PID/stat`), because core 1 may be the one that is full; requests/s stand beside it.
HAProxy keeps its connections to a second HAProxy that answers at once; the gateway keeps one to an agent that
does. Needs `haproxy` and `wrk` (Debian packages).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from mark.controller.service import BackendSpec, ServedModel, ServiceSpec
from mark.dispatch.policy import DispatchPolicy
from mark.domain.clock import ClockAnchor
from mark.domain.fleet import Role
from mark.domain.member import Member, MemberState
from mark.domain.objective import ModelSpec, Slo
from mark.domain.offering import BatchPolicy, InstanceType, Market, Offering
from mark.domain.profile import Evidence, LatencyPoint, Profile, Provenance
from mark.domain.traffic import GatewayReport
from mark.ports import InferReply, InferRequest
from mark.protocols.frames import FrameParser, Request, Response, State, encode, encode_response
from mark.serving.agent import AgentConfig, serve_agent
from mark.serving.gateway import GatewayConfig, serve_gateway

TOKEN = "bench-token"  # noqa: S105
PATH = "/v2/models/bench/infer"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 250], "data": [0.12345] * 250}]})
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
MAX_BATCH = 32


def served() -> ServedModel:
    """A model whose batches take a third of a millisecond and more."""
    slo = Slo(latency_s=0.5, target=0.98)
    assumed = Provenance(evidence=Evidence.ASSUMED, source="bench", formula="constant")
    points = (LatencyPoint(batch=1, latency_s=0.0003), LatencyPoint(batch=MAX_BATCH, latency_s=0.001))
    offering = Offering(
        instance_type=InstanceType(
            name="bench", vcpus=1, memory_gib=1, architecture="amd64", on_demand_usd_per_hour=1
        ),
        market=Market.ON_DEMAND,
        usd_per_hour=1,
        profile=Profile(model="bench", instance_type="bench", points=points, provenance=assumed),
        batch=BatchPolicy(max_batch=MAX_BATCH, max_wait_s=0.0),
        capacity_rps=MAX_BATCH / 0.001,
        boot_s=0,
        launch_usd=0,
    )
    return ServedModel(
        model=ModelSpec(name="bench", slo=slo),
        slo=slo,
        dispatch=DispatchPolicy(),
        offerings=(offering,),
        backend=BackendSpec(kind="emulated"),
    )


class Link:
    """The store, as far as the bench needs one."""

    def __init__(self, agents: Sequence[int]) -> None:
        self._members = [_member(number, port) for number, port in enumerate(agents)]
        self.ready = asyncio.Event()

    async def members_version(self) -> int:
        """Never changes."""
        return 1

    async def members(self) -> Sequence[Member]:
        """The agents."""
        return self._members

    async def clock(self) -> ClockAnchor:
        """The wall's."""
        return ClockAnchor()

    async def report(self, report: GatewayReport) -> None:
        """Nobody reads it."""

    async def announce(self, member: Member) -> bool:
        """Nobody drains."""
        if member.state is MemberState.READY:
            self.ready.set()
        return False

    async def leave(self, instance: str) -> None:
        """Nobody counts."""


class InstantAgent(asyncio.Protocol):
    """Answers every request of a chunk at once, in one write."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say that it is there, now and four times a second."""
        self._transport: Any = transport
        self._parser = FrameParser()
        self._say()

    def connection_lost(self, _: Exception | None) -> None:
        """A gateway has gone."""
        self._saying.cancel()

    def _say(self) -> None:
        state = State(0, True, False, 0, 0, 0.0, math.inf, 1e6, (1e-6,) * MAX_BATCH)
        self._transport.write(encode(state))
        self._saying = asyncio.get_running_loop().call_later(0.25, self._say)

    def data_received(self, data: bytes) -> None:
        """Answer."""
        out = [
            encode_response(Response(frame.id, 200, b"application/json", 0, b'{"ok":true}'))
            for frame in self._parser.feed(data)
            if type(frame) is Request
        ]
        if out:
            self._transport.write(b"".join(out))


class InstantBackend:
    """Behind a real agent: the parts that are ours, and no model."""

    async def start(self) -> None:
        """Nothing to load."""

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """All the same."""
        reply = InferReply(status=200, content_type="application/json", body=b'{"ok":true}')
        return [reply] * len(batch)

    async def close(self) -> None:
        """Nothing to end."""


async def run_gateway(agents: Sequence[int], token: str | None) -> None:
    """A gateway's process; its port is the line that it prints."""
    config = GatewayConfig(name="bench", token=token)
    spec = ServiceSpec(name="bench", models=(served(),))
    await serve_gateway(
        config, spec=spec, link=Link(agents), overflow=None, stop=asyncio.Event(), on_bound=_print_port
    )


async def run_instant_agent() -> None:
    """An instant agent's process."""
    server = await asyncio.get_running_loop().create_server(InstantAgent, "127.0.0.1", 0)
    _print_port(server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


async def run_whole() -> None:
    """Gateway and real agent in one process, with batching and admission."""
    agent = AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1", frame_port=0, http_port=0)
    model, link, stop = served(), Link(()), asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def no_notice() -> float | None:
        return None

    running = asyncio.ensure_future(
        serve_agent(
            agent,
            served=model,
            offering=model.offerings[0],
            link=link,
            backend=InstantBackend(),
            interruption=no_notice,
            stop=stop,
            on_bound=lambda frames, _: port.set_result(frames),
        )
    )
    await asyncio.gather(running, run_gateway([await port], None))


def run_haproxy(folder: Path, name: str, port: int, body: str, core: int) -> subprocess.Popen[bytes]:
    """HAProxy on one core, one thread."""
    config = folder / f"{name}.cfg"
    config.write_text(
        "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  timeout client 30s\n  timeout server 30s\n"
        f"  timeout connect 5s\n  http-reuse always\nfrontend f\n  bind 127.0.0.1:{port}\n{body}"
    )
    return subprocess.Popen([*_on(core), "haproxy", "-db", "-f", str(config)], stderr=subprocess.DEVNULL)  # noqa: S603


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Something that serves, by its port and process."""

    port: int
    pid: int
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round."""

    rps: float
    cpu_us: float
    p50_ms: float
    errors: int


def drive(server: Server, folder: Path, *, seconds: float, connections: int = 64) -> Measured:
    """One round of wrk at full speed."""
    script = folder / "post.lua"
    bearer = f'wrk.headers["Authorization"] = "Bearer {server.token}"\n' if server.token else ""
    script.write_text(
        f'wrk.method = "POST"\nwrk.body = \'{BODY}\'\nwrk.headers["Content-Type"] = "application/json"\n{bearer}'
    )
    before = cpu_s(server.pid)
    command = [*_on(1), "wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", str(script)]
    done = subprocess.run(  # noqa: S603
        [*command, f"http://127.0.0.1:{server.port}{PATH}"], capture_output=True, text=True, check=True
    )
    used_s = cpu_s(server.pid) - before
    count = int(_found(r"(\d+) requests in", done.stdout))
    errors = re.findall(r"(?:Non-2xx or 3xx responses|connect|read|write|timeout):? (\d+)", done.stdout)
    return Measured(
        rps=float(_found(r"Requests/sec:\s+([\d.]+)", done.stdout)),
        cpu_us=used_s / max(1, count) * 1e6,
        p50_ms=_ms(_found(r" 50%\s+([\d.]+[mu]?s)", done.stdout)),
        errors=sum(map(int, errors)),
    )


async def paced(port: int, *, rps: float, seconds: float, connections: int = 32) -> float:
    """Open loop at a fixed rate; the median latency in ms from the intended send time."""
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    )
    message, latencies = (head + BODY).encode(), []
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


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, its kernel time included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid: int) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MIB


@contextmanager
def started(command: Sequence[str], core: int) -> Iterator[tuple[int, int]]:
    """A process of this script on a core: its pid and port."""
    process = subprocess.Popen(  # noqa: S603
        [*_on(core), sys.executable, "-m", "scripts.bench_serving", *command], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def haproxies(folder: Path) -> Iterator[tuple[int, Server]]:
    """HAProxy as the proxy on core 0 and as the trivial server on core 1; the server's port, and the proxy."""
    behind, front = free_port(), free_port()
    answer = '  http-request return status 200 content-type application/json string "{\\"ok\\":true}"\n'
    proxy = f"  default_backend b\nbackend b\n  server s 127.0.0.1:{behind} maxconn 1024\n"
    processes = [
        run_haproxy(folder, "behind", behind, answer, 1),
        run_haproxy(folder, "front", front, proxy, 0),
    ]
    try:
        time.sleep(0.5)
        yield behind, Server(port=front, pid=processes[1].pid)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def bench(rounds: int, seconds: float) -> dict[str, Any]:
    """Everything, as one document."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        behind, haproxy = stack.enter_context(haproxies(folder))
        _, agent = stack.enter_context(started(["--instant-agent"], 1))
        servers = {"haproxy": haproxy}
        for name, token in (("gateway", None), ("gateway with token", TOKEN)):
            pid, port = stack.enter_context(started(["--gateway", str(agent), *([token] if token else [])], 0))
            servers[name] = Server(port=port, pid=pid, token=token)
        pid, port = stack.enter_context(started(["--whole"], 0))
        servers["gateway + agent"] = Server(port=port, pid=pid)
        time.sleep(0.5)
        return _measure(servers, behind, folder, rounds, seconds)


def _measure(servers: dict[str, Server], behind: int, folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    found: dict[str, list[Measured]] = {name: [] for name in servers}
    memory: dict[str, list[float]] = {name: [] for name in servers}
    for server in servers.values():
        drive(server, folder, seconds=1)
    for _ in range(rounds):
        for name, server in servers.items():
            found[name].append(drive(server, folder, seconds=seconds))
            memory[name].append(rss_mib(server.pid))
    rows = {name: _row(found[name], memory[name], found["haproxy"]) for name in servers}
    for rps in (1000, 10_000):
        direct = uvloop.run(paced(behind, rps=rps, seconds=2))
        for name in ("haproxy", "gateway", "gateway + agent"):
            through = uvloop.run(paced(servers[name].port, rps=rps, seconds=2))
            rows[name][f"added_p50_ms_at_{rps}"] = round(through - direct, 3)
    return rows


def _row(rounds: list[Measured], memory: list[float], peer: list[Measured]) -> dict[str, Any]:
    def median(of: Callable[[Measured], float], measured: list[Measured] = rounds) -> float:
        return statistics.median(map(of, measured))

    return {
        "requests_per_s": round(median(lambda m: m.rps)),
        "cpu_us_per_request": round(median(lambda m: m.cpu_us), 2),
        "requests_per_s_and_core": round(1e6 / median(lambda m: m.cpu_us)),
        "x_haproxy": round(median(lambda m: m.cpu_us, peer) / median(lambda m: m.cpu_us), 3),
        "errors": sum(m.errors for m in rounds),
        "rss_mib": [round(mib, 1) for mib in memory],
    }


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def _member(number: int, port: int) -> Member:
    return Member(
        instance=f"i-{number}",
        model="bench",
        offering="bench:on-demand",
        role=Role.SERVING,
        host="127.0.0.1",
        port=port,
        state=MemberState.READY,
        max_batch=MAX_BATCH,
        batch_s=(0.001,) * MAX_BATCH,
        capacity_rps=1e4,
    )


def _on(core: int) -> list[str]:
    return ["taskset", "-c", str(core)]


def _print_port(port: int) -> None:
    print(port, flush=True)


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.group(1)


def _ms(text: str) -> float:
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--gateway", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--instant-agent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.gateway:
        uvloop.run(run_gateway([int(asked.gateway[0])], asked.gateway[1] if len(asked.gateway) > 1 else None))
    elif asked.instant_agent:
        uvloop.run(run_instant_agent())
    elif asked.whole:
        uvloop.run(run_whole())
    else:
        lacking = [name for name in ("haproxy", "wrk", "taskset") if shutil.which(name) is None]
        if lacking:
            sys.exit(f"install {', '.join(lacking)} first")
        print(json.dumps(bench(asked.rounds, asked.seconds), indent=2))


if __name__ == "__main__":
    main()
