"""The live service beside its peers: `make bench`. `--help` says how; docs/speed.md says what for.

The server is on core 0, load generator and a trivial backend on core 1; wrk with 64 keep-alive connections posts
2 kB of JSON and gets 11 bytes back, or posts a digit and gets its label. Rounds alternate and medians count. What
is compared is CPU microseconds a request of the server's processes, because core 1 may be the one that is full;
requests/s stand beside it. HAProxy keeps its connections to a second HAProxy that answers at once; the gateway
keeps one to an agent that does. What is missing here (haproxy, wrk, the peers) is said and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from mark.protocols.oip.bodies import compose_infer
from scripts.bench.engine import cache_dir, say
from scripts.bench.load import (
    LOAD_CORE,
    SERVER_CORE,
    Ask,
    Measured,
    Server,
    drive,
    main_thread_s,
    on_core,
    paced,
    rss_mib,
    threads_s,
)
from scripts.bench.load_grpc import grpc_message, paced_grpc
from scripts.bench.peers import LITSERVE, MLSERVER, NoPeers, peers_python, start_peer
from scripts.bench.servers import EARLY

TOKEN, KEY = "bench-token", "bench-key"
SIZES = (250, 1_500, 4_000, 12_500, 100_000)
"""Numbers in a body: the usual one of 2.3 kB first, then 14, 36, 113 and 900 kB."""


def numbers(count: int) -> Ask:
    """Request with so many numbers, written as text."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, count], "data": [0.12345] * count}
    return Ask(path="/v2/models/bench/infer", body=json.dumps({"inputs": [tensor]}).encode())


INSTANT = numbers(SIZES[0])
ZERO = (
    "0 0 5 13 9 1 0 0 0 0 13 15 10 15 5 0 0 3 15 2 0 11 8 0 0 4 12 0 0 8 8 0 "
    "0 5 8 0 0 9 8 0 0 4 11 0 1 12 7 0 0 2 14 5 10 12 0 0 0 0 6 13 10 0 0 0"
)
"""The first of scikit-learn's digits."""
STARTS_WITHIN_S = 60.0
PARTS = ["central", "clients", "traces", "grpc", "gateway", "bodies", "digits"]
RATIOS = (0.0, 0.01, 1.0)
CENTRAL = ("kairos", "fcfs")
PACED_ROUNDS, PACED_S = 3, 1.0
MEMORY_PARTS = 5

Rounds = dict[str, list[Measured]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Length of a measurement."""

    rounds: int
    seconds: float
    requests: int


def digit(*, binary: bool) -> Ask:
    """A handwritten nought."""
    image = np.array(ZERO.split(), dtype=np.float32).reshape(1, 8, 8)
    request = compose_infer({"image": image}, path="/v2/models/digits/infer", binary=binary)
    return Ask(path=request.path, body=request.body, header_length=request.header_length)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session of its own; all of that ends."""
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def ours(*role: str, core: int | None = SERVER_CORE) -> Iterator[Server]:
    """A process of `scripts.bench.servers`, on any processor where no core is named."""
    command = [*(() if core is None else on_core(core)), sys.executable, "-m", "scripts.bench.servers", *role]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)) as process:  # noqa: S603
        assert process.stdout is not None
        yield Server(port=int(process.stdout.readline()), pid=process.pid)


@contextmanager
def haproxy(folder: Path, name: str, lines: Sequence[str], core: int) -> Iterator[Server]:
    """HAProxy on one core, one thread."""
    port, config = free_port(), folder / f"{name}.cfg"
    front = [
        *("global", "  nbthread 1", "  maxconn 4096", "defaults", "  mode http", "  timeout client 30s"),
        *("  timeout server 30s", "  timeout connect 5s", "  http-reuse always", "frontend f"),
        f"  bind 127.0.0.1:{port}",
    ]
    config.write_text("\n".join([*front, *lines, ""]))
    command = [*on_core(core), "haproxy", "-db", "-f", str(config)]
    with ended(subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)) as process:  # noqa: S603
        yield Server(port=port, pid=process.pid)


@contextmanager
def haproxies(folder: Path) -> Iterator[tuple[Server, Server]]:
    """HAProxy as the trivial server on core 1, and as the proxy before it on core 0."""
    answer = '  http-request return status 200 content-type application/json string "{\\"ok\\":true}"'
    with haproxy(folder, "behind", [answer], LOAD_CORE) as behind:
        lines = ["  default_backend b", "backend b", f"  server s 127.0.0.1:{behind.port} maxconn 1024"]
        with haproxy(folder, "front", lines, SERVER_CORE) as front:
            yield behind, front


def wait_until_answered(server: Server, ask: Ask, token: str | None = None) -> bytes:
    """The body that the server answers, as soon as it does. Errors: NoPeers if it never does."""
    headers = ask.headers() | ({"authorization": f"Bearer {token}"} if token else {})
    url = f"http://127.0.0.1:{server.port}{ask.path}"
    end = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            request = urllib.request.Request(url, ask.body, headers)
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return bytes(answer.read())
        except OSError as error:
            if time.monotonic() > end:
                raise NoPeers(f"no answer after {STARTS_WITHIN_S:g} s: {error}") from error
            time.sleep(0.1)


def alternate(runs: dict[str, Callable[..., Measured]], length: Length) -> Rounds:
    """A warm-up, then round by round."""
    found: Rounds = {name: [] for name in runs}
    for run in runs.values():
        run(seconds=1)
    for _ in range(length.rounds):
        for name, run in runs.items():
            found[name].append(run(seconds=length.seconds))
    return found


def middle(found: Rounds, name: str, of: str) -> float:
    """The median of the rounds."""
    return float(statistics.median(getattr(measured, of) for measured in found[name]))


def say_rounds(found: Rounds) -> None:
    """One line for each server."""
    for name in found:
        cpu_us, errors = middle(found, name, "cpu_us"), sum(m.errors for m in found[name])
        say(
            f"{name}: requests/s and core, CPU a request, requests/s",
            f"{1e6 / cpu_us:,.0f}  {cpu_us:.1f} us  {middle(found, name, 'rps'):,.0f}",
            f"{errors} errors" if errors else "",
        )


def ratio(found: Rounds, name: str, peer: str) -> float:
    """Requests that a core answers for each one of the peer's core."""
    return middle(found, peer, "cpu_us") / middle(found, name, "cpu_us")


def bench_gateway(folder: Path, length: Length) -> None:
    """The gateway beside HAProxy; then latency at fixed rates, and memory."""
    with ExitStack() as stack:
        behind, proxy = stack.enter_context(haproxies(folder))
        agent = stack.enter_context(ours("agent", core=LOAD_CORE))
        gateway = stack.enter_context(ours("gateway", str(agent.port)))
        guarded = stack.enter_context(ours("gateway", str(agent.port), TOKEN))
        whole = stack.enter_context(ours("whole", "bench"))
        for server, token in ((proxy, None), (gateway, None), (guarded, TOKEN), (whole, None)):
            wait_until_answered(server, INSTANT, token)
        runs: dict[str, Callable[..., Measured]] = {}
        for own_ids in (False, True):
            ids = ", own ids" if own_ids else ""
            for name, server, token in (
                ("HAProxy", proxy, None),
                ("gateway", gateway, None),
                ("gateway with token", guarded, TOKEN),
                ("gateway and agent", whole, None),
            ):
                runs[name + ids] = partial(drive, server, INSTANT, folder, token=token, own_ids=own_ids)
        found = alternate(runs, length)
        say_rounds(found)
        for ids in ("", ", own ids"):
            say(f"gateway / HAProxy{ids}", f"{ratio(found, 'gateway' + ids, 'HAProxy' + ids):.2f} x", ">= 0.95")
            guarded_ratio = ratio(found, "gateway with token" + ids, "HAProxy" + ids)
            say(f"gateway with token / HAProxy{ids}", f"{guarded_ratio:.2f} x", ">= 0.85")
        bench_paced(behind, {"HAProxy": proxy, "gateway": gateway, "gateway and agent": whole})
        bench_memory(whole, folder, length.requests, middle(found, "gateway and agent, own ids", "rps"))


def bench_paced(behind: Server, servers: dict[str, Server]) -> None:
    """The addition of each to the median latency of the trivial server alone, at fixed rates."""
    for rps in (1_000, 10_000):
        took: dict[str, list[float]] = {name: [] for name in ("", *servers)}
        for _ in range(PACED_ROUNDS):
            for name, server in {"": behind, **servers}.items():
                took[name].append(uvloop.run(paced(server.port, INSTANT, rps=rps, seconds=PACED_S)))
        direct = statistics.median(took[""])
        for name in servers:
            added_ms = statistics.median(took[name]) - direct
            say(
                f"{name}: added p50 at {rps:,} requests/s",
                f"{added_ms:.3f} ms",
                "" if name == "HAProxy" else "<= 0.3",
            )


def bench_memory(server: Server, folder: Path, requests: int, rps: float) -> None:
    """Resident memory of gateway and agent before and after many requests, each with an id of its own."""
    sizes, done = [rss_mib(server.pid)], 0
    for _ in range(MEMORY_PARTS):
        measured = drive(server, INSTANT, folder, seconds=requests / rps / MEMORY_PARTS, own_ids=True)
        done += round(measured.rps * max(1, round(requests / rps / MEMORY_PARTS)))
        sizes.append(rss_mib(server.pid))
    shown = " ".join(f"{size:.0f}" for size in sizes)
    say(f"gateway and agent: memory over {done / 1e6:.1f} M requests", f"{shown} MiB", "flat")


def bench_central(length: Length) -> None:
    """A gateway's CPU for a request with a central queue, and with early binding to the same agents."""
    with ExitStack() as stack:
        agent = stack.enter_context(ours("agent", core=LOAD_CORE))
        servers = {rule: stack.enter_context(ours("pool", rule, str(agent.port))) for rule in (EARLY, *CENTRAL)}
        for server in servers.values():
            wait_until_answered(server, INSTANT)
        for rps in (500, 2_000):
            used: dict[str, list[float]] = {rule: [] for rule in servers}
            for _ in range(length.rounds):
                for rule, server in servers.items():
                    before = main_thread_s(server.pid)
                    uvloop.run(paced(server.port, INSTANT, rps=rps, seconds=length.seconds))
                    used[rule].append((main_thread_s(server.pid) - before) / (rps * length.seconds) * 1e6)
            middle_us = {rule: statistics.median(found) for rule, found in used.items()}
            for rule in servers:
                share = middle_us[rule] / middle_us[EARLY] - 1
                say(
                    f"gateway, {rule}: CPU a request at {rps:,} requests/s",
                    f"{middle_us[rule]:.1f} us",
                    "" if rule == EARLY else f"{share:+.1%} (<= +10 %)",
                )


def bench_bodies(folder: Path, length: Length) -> None:
    """The gateway with larger bodies: what each MiB more takes (`mark/catalog/sizing.py` plans with it)."""
    with ExitStack() as stack:
        agent = stack.enter_context(ours("agent", core=LOAD_CORE))
        gateway = stack.enter_context(ours("gateway", str(agent.port)))
        wait_until_answered(gateway, INSTANT)
        asks = {f"gateway, body of {len(ask.body) / 1000:.0f} kB": ask for ask in map(numbers, SIZES)}
        runs: dict[str, Callable[..., Measured]] = {
            name: partial(drive, gateway, ask, folder, own_ids=True, connections=32) for name, ask in asks.items()
        }
        found = alternate(runs, length)
        say_rounds(found)
        (usual, small), *larger = asks.items()
        for name, ask in larger:
            more_mib = (len(ask.body) - len(small.body)) / 2**20
            more_ms = (middle(found, name, "cpu_us") - middle(found, usual, "cpu_us")) / 1000
            say(f"{name}: CPU for each MiB more", f"{more_ms / more_mib:.2f} ms", "")


def bench_digits(folder: Path, length: Length, peers: Path) -> None:
    """Gateway and agent serving the digits network in torch, beside model servers that do."""
    as_json = digit(binary=False)
    with ExitStack() as stack:
        servers = {"gateway, agent, digits": stack.enter_context(ours("whole", "digits"))}
        try:
            python = peers_python(peers)
        except NoPeers as error:
            say("MLServer and LitServe", "left out", str(error))
        else:
            for peer in (MLSERVER, LITSERVE):
                port = free_port()
                process = stack.enter_context(ended(start_peer(python, peer, port, prefix=on_core(SERVER_CORE))))
                servers[peer] = Server(port=port, pid=process.pid)
        runs: dict[str, Callable[..., Measured]] = {}
        for name, server in servers.items():
            try:
                answer = json.loads(wait_until_answered(server, as_json))
            except NoPeers as error:
                say(name, "left out", str(error))
                continue
            assert answer["outputs"][1]["data"] == [0], (name, answer)
            runs[name] = partial(drive, server, as_json, folder)
        whole = servers["gateway, agent, digits"]
        runs["gateway, agent, digits, binary"] = partial(drive, whole, digit(binary=True), folder)
        found = alternate(runs, length)
    say_rounds(found)
    for peer in (MLSERVER, LITSERVE):
        for name in ("gateway, agent, digits", "gateway, agent, digits, binary"):
            if peer in found:
                by_rps = middle(found, name, "rps") / middle(found, peer, "rps")
                figure = f"{ratio(found, name, peer):.1f} x by CPU, {by_rps:.1f} x by requests/s"
                say(f"{name} / {peer}", figure, ">= 10" if name.endswith("digits") else "")


def bench_clients(length: Length) -> None:
    """A gateway's CPU for a request with a client's key and limits, and with the one token."""
    with ExitStack() as stack:
        agent = str(stack.enter_context(ours("agent", core=LOAD_CORE)).port)
        servers = {
            "one token": (stack.enter_context(ours("gateway", agent, TOKEN)), TOKEN),
            "key and limits": (stack.enter_context(ours("gateway", agent, TOKEN, KEY)), KEY),
        }
        for server, token in servers.values():
            wait_until_answered(server, INSTANT, token)
        for rps in (2_000, 5_000):
            used: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(length.rounds):
                for name, (server, token) in servers.items():
                    before = main_thread_s(server.pid)
                    uvloop.run(paced(server.port, INSTANT, rps=rps, seconds=length.seconds, token=token))
                    used[name].append((main_thread_s(server.pid) - before) / (rps * length.seconds) * 1e6)
            pairs = zip(used["key and limits"], used["one token"], strict=True)
            share = statistics.median(keyed / one for keyed, one in pairs) - 1  # of neighbours in time
            for name, found_us in used.items():
                beside = f"{share:+.1%} (<= +5 %)" if name != "one token" else ""
                shown = f"{statistics.median(found_us):.1f} us"
                say(f"gateway, {name}: CPU a request at {rps:,} requests/s", shown, beside)


def bench_traces(length: Length) -> None:
    """Gateway and agent with a share of the requests traced: CPU of all threads, and what the collector took."""
    with ExitStack() as stack:
        collector = str(stack.enter_context(ours("collector", core=LOAD_CORE)).port)
        servers = {ratio: stack.enter_context(ours("traced", str(ratio), collector)) for ratio in RATIOS}
        for server in servers.values():
            wait_until_answered(server, INSTANT)
        for rps in (500, 2_000):
            used: dict[float, list[float]] = {ratio: [] for ratio in servers}
            took: dict[float, list[float]] = {ratio: [] for ratio in servers}
            for _ in range(length.rounds):
                for ratio, server in servers.items():
                    before = threads_s(server.pid)
                    took[ratio].append(uvloop.run(paced(server.port, INSTANT, rps=rps, seconds=length.seconds)))
                    used[ratio].append((threads_s(server.pid) - before) / (rps * length.seconds) * 1e6)
            for ratio, found_us in used.items():
                more_us = statistics.median(one - off for one, off in zip(found_us, used[0.0], strict=True))
                shown = f"{statistics.median(found_us):.1f} us, p50 {statistics.median(took[ratio]):.3f} ms"
                beside = f"{more_us:+.1f} us a request" if ratio else ""
                say(f"gateway and agent, ratio {ratio:g}: CPU a request at {rps:,} requests/s", shown, beside)
        for ratio, server in servers.items():
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
                lines = [
                    line for line in answer.read().decode().splitlines() if line.startswith("mark_gateway_spans")
                ]
            if ratio:
                say(f"gateway and agent, ratio {ratio:g}: spans", ", ".join(lines), "")


def bench_grpc(length: Length) -> None:
    """A gateway's CPU for a request by gRPC beside the same one by HTTP: 250 numbers, answered by ten."""
    values = np.full((1, SIZES[0]), 0.12345, dtype=np.float32)
    binary = compose_infer({"x": values}, path=INSTANT.path)
    over_http = {
        "HTTP, JSON": INSTANT,
        "HTTP, binary": Ask(path=binary.path, body=binary.body, header_length=binary.header_length),
    }
    message = grpc_message(values)
    with ExitStack() as stack:
        agent = str(stack.enter_context(ours("agent", "oip", core=LOAD_CORE)).port)
        http = stack.enter_context(ours("gateway", agent))
        grpc = stack.enter_context(ours("grpc", agent))
        wait_until_answered(http, INSTANT)
        for rps in (100, 300):
            runs: dict[str, tuple[Server, Callable[[], Coroutine[Any, Any, float]]]] = {
                name: (http, partial(paced, http.port, ask, rps=rps, seconds=length.seconds))
                for name, ask in over_http.items()
            }
            runs["gRPC, raw"] = grpc, partial(paced_grpc, grpc.port, message, rps=rps, seconds=length.seconds)
            used: dict[str, list[float]] = {name: [] for name in runs}
            took: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(length.rounds):
                for name, (server, run) in runs.items():
                    before = threads_s(server.pid)
                    took[name].append(uvloop.run(run()))
                    used[name].append((threads_s(server.pid) - before) / (rps * length.seconds) * 1e6)
            for name, found_us in used.items():
                shown = (
                    f"{statistics.median(found_us):.0f} us, median latency {statistics.median(took[name]):.2f} ms"
                )
                times = statistics.median(found_us) / statistics.median(used["HTTP, binary"])
                say(f"gateway, {name}: CPU a request at {rps:,} requests/s", shown, f"{times:.1f} x HTTP, binary")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS, nargs="*", default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--requests", type=int, default=1_000_000, help="over which memory is watched")
    parser.add_argument("--peers", type=Path, default=cache_dir() / "peers", help="the peers' environment")
    asked = parser.parse_args()
    length = Length(rounds=asked.rounds, seconds=asked.seconds, requests=asked.requests)
    if "central" in asked.part and shutil.which("taskset"):
        bench_central(length)
    if "clients" in asked.part and shutil.which("taskset"):
        bench_clients(length)
    if "traces" in asked.part and shutil.which("taskset"):
        bench_traces(length)
    if "grpc" in asked.part and shutil.which("taskset"):
        bench_grpc(length)
    lacking = [name for name in ("wrk", "taskset") if shutil.which(name) is None]
    if lacking:
        say("the live service", "left out", f"needs {' and '.join(lacking)}")
        return
    with tempfile.TemporaryDirectory() as folder:
        if "gateway" in asked.part:
            if shutil.which("haproxy"):
                bench_gateway(Path(folder), length)
            else:
                say("gateway", "left out", "needs haproxy")
        if "bodies" in asked.part:
            bench_bodies(Path(folder), length)
        if "digits" in asked.part:
            bench_digits(Path(folder), length, asked.peers)


if __name__ == "__main__":
    main()
