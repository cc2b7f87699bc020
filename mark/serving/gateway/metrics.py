"""A gateway's page for Prometheus. Labels are models and the servers' three kinds: their number is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mark.domain.traffic import LATENCY_BIN_S
from mark.serving.gateway.model_router import Lane
from mark.serving.gateway.stats import Tally
from mark.serving.metrics import render_histogram, render_metric

if TYPE_CHECKING:
    from mark.serving.gateway.server import Gateway

EDGES_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 4.0)
_COUNTERS = (
    ("late", "Answers that missed the objective"),
    ("shed", "Requests refused because nobody could answer in time"),
    ("failed", "Requests answered with an error of the model or of ours"),
    ("rejected", "Requests that the model refused as wrong in themselves"),
    ("redispatched", "Requests sent again after their agent was lost"),
    ("repeated", "Repetitions answered without a second execution"),
    ("forwarded", "Requests with an id that belongs to another gateway, which were asked of it"),
    ("invocations", "Calls of Lambda"),
    ("cold", "Cold starts among the calls of Lambda"),
    ("gib_s", "GiB seconds that Lambda billed"),
)


def render_gateway(gateway: Gateway) -> str:
    """The page."""
    lanes = gateway.lanes.values()
    parts = [
        render_metric(
            "mark_gateway_answers_total",
            "counter",
            "Requests answered, by who answered them",
            [
                ({"model": lane.name, "by": server}, count)
                for lane in lanes
                for server, count in lane.tally.by.items()
            ],
        )
    ]
    parts += [
        render_metric(
            f"mark_gateway_{name}_total",
            "counter",
            text,
            [({"model": lane.name}, getattr(lane.tally, name)) for lane in lanes],
        )
        for name, text in _COUNTERS
    ]
    parts.append(
        render_histogram(
            "mark_gateway_latency_seconds",
            "From a request's arrival to its answer",
            [_latencies(lane, lane.tally) for lane in lanes],
            bin_s=LATENCY_BIN_S,
            edges_s=EDGES_S,
        )
    )
    return "".join(parts) + _gauges(gateway)


def _latencies(lane: Lane, tally: Tally) -> tuple[dict[str, str], dict[int, int], float]:
    return {"model": lane.name}, tally.latencies, tally.latency_sum_s


def _gauges(gateway: Gateway) -> str:
    lanes = gateway.lanes.values()
    in_flight = dict.fromkeys(gateway.lanes, 0)
    for agent in gateway.agents.open.values():
        in_flight[agent.lane.name] += len(agent.in_flight)
    calls = [({"model": lane.name}, lane.overflow.in_flight) for lane in lanes if lane.overflow is not None]
    return "".join(
        (
            render_metric(
                "mark_gateway_agents",
                "gauge",
                "Agents that accept requests",
                [({"model": lane.name}, lane.agent_count) for lane in lanes],
            ),
            render_metric(
                "mark_gateway_in_flight",
                "gauge",
                "Requests that agents hold",
                [({"model": name}, count) for name, count in in_flight.items()],
            ),
            render_metric("mark_gateway_lambda_in_flight", "gauge", "Calls of Lambda under way", calls),
            render_metric(
                "mark_gateway_connections", "gauge", "Clients connected", [({}, len(gateway.http.connections))]
            ),
            render_metric(
                "mark_gateway_peers",
                "gauge",
                "Other gateways that share the ids with this one",
                [({}, gateway.peers.count)],
            ),
            render_metric(
                "mark_gateway_body_bytes",
                "gauge",
                "Bytes of requests' bodies held",
                [({}, gateway.http.budget.held)],
            ),
            render_metric(
                "mark_gateway_refused_total",
                "counter",
                "Requests refused as malformed, oversize or slow",
                [({}, gateway.http.refused)],
            ),
            render_metric(
                "mark_gateway_defects_total",
                "counter",
                "Exceptions that nobody foresaw; the log has their causes",
                [({}, gateway.defects.count)],
            ),
        )
    )
