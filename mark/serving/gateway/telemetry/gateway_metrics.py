"""Prometheus metrics of a gateway. Label values are bounded: models, variants, clients, three kinds of servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import HistogramMetricFamily, Metric

from mark.dispatch.central.deadlines import DeadlineQueue
from mark.dispatch.central.queue import CentralQueue
from mark.domain.load.traffic import LATENCY_BIN_S, client_outcomes
from mark.serving.gateway.agent_pool import AgentConnections
from mark.serving.gateway.central.router import CentralRouter
from mark.serving.gateway.clients import Clients
from mark.serving.gateway.config import GatewayConfig
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.peers import Peers
from mark.serving.gateway.request import InferenceRequest
from mark.serving.http.http_server import HttpServer
from mark.serving.unexpected_errors import UnexpectedErrors
from mark.telemetry.metrics import counter, exposition, gauge, labelled, merged
from mark.telemetry.otlp.sender import TelemetrySender

EDGES_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 4.0)
HALF_S = LATENCY_BIN_S / 2
"""More than rounding may take off an edge."""
_COUNTERS = (
    ("late", "Responses that missed the latency objective"),
    ("shed", "Requests shed: no capacity to meet their deadline"),
    ("failed", "Requests that failed: an error of the model or of the service"),
    ("model_errors", "Of the failed, those that the model answered with an error of its own"),
    ("rejected", "Invalid requests, answered with a client error (4xx)"),
    ("crossed", "Responses of instances in another availability zone than the gateway's"),
    ("redispatched", "Requests sent again after their agent was lost"),
    ("deduplicated", "Requests with a known id, answered without a second execution"),
    ("forwarded", "Requests forwarded to the gateway that owns their id"),
    ("cut_short", "Of the failed, streams that ended with an error after their first part"),
    ("left", "Requests whose client left before their end: streams, and what waited here"),
    ("invocations", "Lambda invocations"),
    ("cold", "Lambda invocations with a cold start"),
    ("gib_s", "GiB seconds that Lambda billed"),
)


class Counted(Protocol):
    """A gateway, which owns what is counted; metrics only read it."""

    config: GatewayConfig
    routers: dict[str, ModelRouter]
    clients: Clients
    agents: AgentConnections
    http: HttpServer
    peers: Peers
    unexpected: UnexpectedErrors
    telemetry: TelemetrySender | None


def render_gateway(gateway: Counted) -> bytes:
    """The gateway's metrics in Prometheus' text format; with its name where others share its port."""
    families, shared_as = gateway_families(gateway), gateway.config.shared_as
    return exposition(labelled(families, "gateway", shared_as) if shared_as else families)


async def render_shared(gateway: Counted, request: InferenceRequest) -> bytes:
    """Metrics of all gateways that share a port: whichever is asked, no counter goes back."""
    return merged([render_gateway(gateway), *await gateway.peers.ask_all(request)])


def gateway_families(gateway: Counted) -> Iterator[Metric]:
    """The gateway's metrics as they are now."""
    routers = gateway.routers.values()
    by = [((router.name, server), count) for router in routers for server, count in router.tally.by.items()]
    yield counter("gateway_responses", "Responses of models, by the server that gave them", ("model", "by"), by)
    for name, text in _COUNTERS:
        rows = [((router.name,), getattr(router.tally, name)) for router in routers]
        yield counter(f"gateway_{name}", text, ("model",), rows)
    variants = [((r.name, one.decode()), count) for r in routers for one, count in r.tally.variants.items()]
    yield counter(
        "gateway_variant_responses", "Responses by the variant that gave them", ("model", "variant"), variants
    )
    yield from _shadows(routers)
    yield from _by_client(gateway)
    yield _histogram(
        "latency", "From a request's arrival to its answer",
        [(router.name, router.tally.latencies, router.tally.latency_sum_s) for router in routers],
    )  # fmt: skip
    streaming = [router for router in routers if router.streams]
    if streaming:
        yield _histogram(
            "first_byte", "From a request's arrival to the first byte of an answer that streams",
            [(router.name, router.tally.first_bytes, router.tally.first_byte_sum_s) for router in streaming],
        )  # fmt: skip
    slos = [((router.name,), router.served.slo) for router in routers]
    targets = [(name, slo.target) for name, slo in slos]
    yield gauge("gateway_objective_target", "Share of requests to be answered in time", ("model",), targets)
    bounds = [(name, slo.judged_s) for name, slo in slos]
    yield gauge("gateway_objective_seconds", "In time is no later than this", ("model",), bounds)
    agents = [((router.name,), router.agent_count) for router in routers]
    yield gauge("gateway_agents", "Agents that accept requests", ("model",), agents)
    yield from _central_queues([router for router in routers if isinstance(router, CentralRouter)])
    in_flight = dict.fromkeys(gateway.routers, 0)
    for agent in gateway.agents.open.values():
        in_flight[agent.router.name] += agent.held
    held = [((name,), count) for name, count in in_flight.items()]
    yield gauge("gateway_in_flight", "Requests in flight at agents", ("model",), held)
    calls = [((router.name,), router.overflow.in_flight) for router in routers if router.overflow is not None]
    yield gauge("gateway_lambda_in_flight", "Lambda invocations in flight", ("model",), calls)
    http = gateway.http
    yield gauge("gateway_connections", "Clients connected", (), [((), len(http.connections))])
    peers = [((), gateway.peers.count)]
    yield gauge("gateway_peers", "Other gateways that are up", (), peers)
    yield gauge("gateway_body_bytes", "Bytes of request bodies in memory", (), [((), http.budget.held)])
    yield counter(
        "gateway_refused", "Requests refused as malformed, too large or too slow", (), [((), http.refused)]
    )
    unexpected = [((), gateway.unexpected.count)]
    yield counter("gateway_internal_errors", "Unexpected exceptions; the log has their tracebacks", (), unexpected)
    if gateway.telemetry is not None:
        yield from gateway.telemetry.families("gateway")


def _by_client(gateway: Counted) -> Iterator[Metric]:
    """Requests by client; left out where the service has none."""
    if not gateway.clients.exist:
        return
    rows = [
        ((model, one.client, outcome), count)
        for model in gateway.routers
        for one in gateway.clients.traffic(model)
        for outcome, count in client_outcomes(one).items()
    ]
    waiting = [
        ((router.name,), len(router.held)) for router in gateway.routers.values() if router.held is not None
    ]
    yield gauge("gateway_async_waiting", "Requests of the async class that wait", ("model",), waiting)
    text = "Requests by client and what became of them; limited: refused by the client's own limits"
    yield counter("gateway_client_requests", text, ("model", "client", "outcome"), rows)


def _shadows(routers: Iterable[ModelRouter]) -> Iterator[Metric]:
    """Copies of requests for versions that are rolled out; left out before the first."""
    outcomes, failed, taken_us = Counter[tuple[str, str]](), Counter[tuple[str]](), Counter[tuple[str, str]]()
    for model, one in ((router.name, one.counts) for router in routers for one in router.tally.versions.values()):
        outcomes[model, "alike"] += one.compared - one.differing
        outcomes[model, "differing"] += one.differing
        outcomes[model, "dropped"] += one.shadow_dropped
        failed[model,] += one.shadow_failed
        taken_us[model, "candidate"] += one.shadow_us
        taken_us[model, "stable"] += one.shadowed_us
    if not outcomes.total():
        return
    text = "Copies of requests for a version that is rolled out, and what the comparison of answers found"
    yield counter("gateway_shadow_requests", text, ("model", "outcome"), outcomes.items())
    text = "Compared copies that the version which is rolled out failed"
    yield counter("gateway_shadow_failed", text, ("model",), failed.items())
    text = "Time that the compared answers took, of either version"
    seconds = ((labels, taken / 1e6) for labels, taken in taken_us.items())
    yield counter("gateway_shadow_seconds", text, ("model", "version"), seconds)


def _central_queues(routers: list[CentralRouter]) -> Iterator[Metric]:
    """Queues of models that have a central one; their families are left out where no model has."""
    if not routers:
        return
    queues = [((router.name,), router.queue) for router in routers]
    own = [((router.name,), router.share[0]) for router in routers]
    yield gauge("gateway_own_agents", "Agents that this gateway's central queue serves", ("model",), own)
    waiting = [(name, len(queue)) for name, queue in queues]
    yield gauge("gateway_waiting", "Requests in the central queue", ("model",), waiting)
    held = [(name, queue.held) for name, queue in queues]
    yield gauge("gateway_held", "Of those, no agent answers in time any more", ("model",), held)
    batches = [(name, queue.batches) for name, queue in queues if isinstance(queue, DeadlineQueue)]
    if batches:
        yield counter("gateway_batches", "Batches that the central queue formed", ("model",), batches)
    matching = [(name, queue) for name, queue in queues if isinstance(queue, CentralQueue)]
    if not matching:
        return
    matched = [(name, queue.matched) for name, queue in matching]
    yield counter("gateway_matchings", "Matchings of the central queue", ("model",), matched)
    parts = [(name, queue.partitioned) for name, queue in matching]
    yield counter("gateway_partitioned", "Of those, in parts: too many waited for one", ("model",), parts)


def _histogram(name: str, text: str, counted: Iterable[tuple[str, dict[int, int], float]]) -> Metric:
    """A histogram of coarser bins than those that are counted. counted: by model, bins and the sum of seconds."""
    family = HistogramMetricFamily(f"mark_gateway_{name}_seconds", text, labels=("model",))
    for model, bins, sum_s in counted:
        below = [
            (f"{edge:g}", sum(n for place, n in bins.items() if (place + 1) * LATENCY_BIN_S <= edge + HALF_S))
            for edge in EDGES_S
        ]
        family.add_metric((model,), [*below, ("+Inf", sum(bins.values()))], sum_value=sum_s)
    return family
