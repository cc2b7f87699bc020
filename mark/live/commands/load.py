"""`mark load`: an open loop of requests at a rate or after a trace, and what became of them."""

from __future__ import annotations

import asyncio
import secrets
import signal
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

import numpy as np
import typer
import uvloop
from numpy.typing import NDArray

from mark.dispatch.client_limits import FORBIDDEN, UNAUTHORIZED
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.domain.figures import plural
from mark.domain.load.sizes import SizeDistribution
from mark.live.clock import adopt_wall
from mark.live.commands.client import as_client, refusal_hint
from mark.live.local.clock_control import run_clock
from mark.live.local.run_dir import find_running
from mark.live.local.running import Running, RunningModel
from mark.offline.trace_source import TraceReading, read_place
from mark.report.formatting import percent
from mark.report.terminal import note, progress, show, show_json
from mark.serving.loadgen.run import Load, LoadResult, Target
from mark.simulator.traces.bursts import with_bursts
from mark.simulator.traces.generators import constant
from mark.simulator.workload import Workload
from mark.steady_time import steady_time
from mark.store.connect import connect
from mark.store.service import ServiceStore

NOT_ANSWERED = 1
"""The exit status where no model answered."""
LEAD_S = 0.3
"""Between reading the clock and the first request: connections are made in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Flags of `mark load`. `duration_s` and `start_s` are on the trace's clock."""

    service: str
    model: str | None
    trace: str | None
    rate_rps: float | None
    mean_rps: float | None
    start_s: float
    duration_s: float | None
    speed: float
    seed: int
    #: items of the requests; None where all have one
    sizes: SizeDistribution | None = None
    reading: TraceReading = field(default_factory=TraceReading)
    #: file with the key of the client that sends; None for the service's token
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """Requests to a model. due_s: seconds from the start. sizes: their items, None where all have one."""

    model: RunningModel
    due_s: NDArray[np.float64]
    sizes: NDArray[np.int64] | None = None


class LoadDocument(TypedDict):
    """The document of `mark load --json` (docs/json.md)."""

    sent: int
    #: Requests that were answered.
    answered: int
    #: Share of the finished requests in time, from when each was due; refused input (4xx but 408 and 429) does
    #: not count.
    attained: float | None
    #: Not answered when the load ended.
    in_flight: int
    #: `mean`, `p50`, `p95`, `p98`, `p99`, `max`; null where nothing was answered.
    latency_ms: dict[str, float | None]
    #: `instance`, `standby`, `lambda`, `shed` (503).
    by: dict[str, int]
    #: Answers by the variant that gave them; empty for a model without variants.
    variants: dict[str, int]
    #: `retried` after a reset, and what went wrong: `http_...`, `reset`, `timeout`, `refused`.
    errors: dict[str, int]


def load_service(options: LoadOptions, *, as_json: bool) -> None:
    """Send the load and print what became of it; typer.Exit where no request was answered."""
    running = as_client(find_running(options.service), options.key_file)
    due_s, sizes = due_requests(options)
    if not due_s.size:
        raise Misconfigured(_nothing_due(options))
    model = chosen(running, options.model)
    with progress() as report:
        (result,) = send(
            running,
            [ModelLoad(model, due_s, sizes)],
            speed=options.speed,
            report=lambda share: report("sending", share),
        )
    document = load_document(result)
    if as_json:
        show_json(document)
    else:
        _show(document, model)
    for status in (UNAUTHORIZED, FORBIDDEN):
        if result.errors[f"http_{status}"]:
            note(refusal_hint(status, model["name"], options.key_file))
    if not result.answered:
        raise typer.Exit(NOT_ANSWERED)


def due_requests(options: LoadOptions) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Due times of the requests, real seconds from the start, and their items; None where all have one.

    A replay at that speed draws the same instants and sizes.
    """
    if (options.trace is None) == (options.rate_rps is None):
        raise Misconfigured("give the load to send: either --trace FILE or --rate RPS")
    if options.trace is not None:
        trace = read_place(options.trace, options.reading)
        if options.mean_rps is not None:
            trace = trace.scaled(options.mean_rps, options.start_s, options.duration_s)
        trace = with_bursts(trace, options.reading.bursts, options.seed)
    else:
        if options.rate_rps is not None and not options.rate_rps > 0:
            raise Misconfigured(f"--rate must be above 0, not {options.rate_rps:g}")
        if options.duration_s is None:
            raise Misconfigured("give the duration: --duration SECONDS")
        assert options.rate_rps is not None
        trace = constant(options.rate_rps, duration_s=options.start_s + options.duration_s, seed=options.seed)
    workload = Workload(
        trace=trace,
        seed=options.seed,
        start_s=options.start_s,
        duration_s=options.duration_s,
        speed=options.speed,
        sizes=options.sizes,
    )
    for text in workload.notes:
        note(text)
    due_s = (workload.arrivals(workload.start_s, workload.end_s) - workload.start_s) / options.speed
    return due_s, workload.items(workload.start_s, workload.end_s) if workload.sizes is not None else None


def _nothing_due(options: LoadOptions) -> str:
    if options.duration_s is None:
        return "nothing would be sent: the trace holds no request from --start-s on"
    real_s = options.duration_s / options.speed
    return (
        f"nothing would be sent in {real_s:g} real seconds: give a longer --duration, more load or a lower --speed"
    )


def send(
    running: Running,
    loads: Sequence[ModelLoad],
    *,
    speed: float,
    report: Callable[[float], None] = lambda _share: None,
) -> list[LoadResult]:
    """Send the loads of several models at once; the service's clock runs `speed` times as fast meanwhile.

    report: told the share of a load that is sent.
    """
    length_s = max((float(one.due_s[-1]) for one in loads if one.due_s.size), default=0.0)
    adopt_wall(ServiceStore(connect(running.store), running.name))
    began_wall = steady_time() + LEAD_S
    with run_clock(running, speed=speed, from_wall=began_wall, for_s=length_s):
        return uvloop.run(_send_all(running, loads, began_wall, report))


async def _send_all(
    running: Running, loads: Sequence[ModelLoad], began_wall: float, report: Callable[[float], None]
) -> list[LoadResult]:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    return await asyncio.gather(*(_send(running, one, began_wall, stop, report) for one in loads))


async def _send(
    running: Running, sent: ModelLoad, began_wall: float, stop: asyncio.Event, report: Callable[[float], None]
) -> LoadResult:
    load = Load(
        _target(running, sent.model), objective_s=sent.model["latency_ms"] / 1000, run_id=secrets.token_hex(4)
    )
    await load.connect()
    ahead_s = began_wall - steady_time()
    return await load.run(
        (sent.due_s + ahead_s).tolist(),
        None if sent.sizes is None else sent.sizes.tolist(),
        stop=stop,
        progress=lambda _result, share: report(share),
    )


def _target(running: Running, model: RunningModel) -> Target:
    url = urlsplit(running.gateway)
    tls = None
    if url.scheme == "https":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # our own gateway, at an address we started
    return Target(
        host=url.hostname or "127.0.0.1",
        port=url.port or 80,
        path=f"/v2/models/{model['name']}/infer",
        body=json_text(model["example"], compact=True).encode(),
        token=running.token,
        tls=tls,
    )


def chosen(running: Running, name: str | None) -> RunningModel:
    """The model of that name, or the first. Misconfigured where it is not served."""
    for model in running.models:
        if name in (None, model["name"]):
            return model
    known = ", ".join(model["name"] for model in running.models)
    raise Misconfigured(f"the service {running.name} does not serve {name}; it serves {known}")


def load_document(result: LoadResult) -> LoadDocument:
    """The document of `mark load --json` (docs/json.md)."""
    latencies_ms = np.sort(np.array(result.latencies_s)) * 1000
    points: dict[str, float | None] = dict.fromkeys(("mean", "p50", "p95", "p98", "p99", "max"))
    if latencies_ms.size:
        quantiles = np.quantile(latencies_ms, (0.5, 0.95, 0.98, 0.99))
        values = (latencies_ms.mean(), *quantiles, latencies_ms[-1])
        points = {name: round(float(value), 3) for name, value in zip(points, values, strict=True)}
    return {
        "sent": result.sent,
        "answered": result.answered,
        "attained": result.attained,
        "in_flight": result.in_flight,
        "latency_ms": points,
        "by": {name: result.by[name] for name in ("instance", "standby", "lambda", "shed")},
        "variants": dict(sorted(result.variants.items())),
        "errors": {"retried": 0, **dict(sorted(result.errors.items()))},
    }


def _show(document: LoadDocument, model: RunningModel) -> None:
    attained = document["attained"]
    share = (
        "nothing was answered"
        if attained is None
        else f"{percent(attained, digits=2)} within {model['latency_ms']:g} ms"
    )
    show(f"{plural(document['sent'], 'request')} sent, {document['answered']:,} answered: {share}")
    points = document["latency_ms"]
    if points["p50"] is not None:
        show("latency  " + "  ".join(f"{name} {value:,.1f} ms" for name, value in points.items()))
    show("answered by  " + "  ".join(f"{name} {count:,}" for name, count in document["by"].items()))
    wrong = "  ".join(f"{name} {count:,}" for name, count in document["errors"].items() if count)
    if wrong:
        show(f"errors  {wrong}")
