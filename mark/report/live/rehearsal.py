"""Comparison of a live run with the replay of the same slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from mark.domain.figures import plural
from mark.report.formatting import MISSING, finite
from mark.report.live.formatting import answerers, components, quantiles
from mark.report.live.service_status import ModelStatus
from mark.report.runs.run_documents import RunDocument

SHOWN_QUANTILES = ("mean", "p50", "p95", "p99")
"""Those that a replay's document has."""

Orders = Mapping[tuple[int, str, str], int]
"""(ten minutes, kind of order, offering) -> instances ordered."""


class Pair(TypedDict):
    """A figure of the live run beside the replay's; null where one of them has none."""

    live: float | None
    replayed: float | None
    #: Live minus replayed.
    difference: float | None


class OrderPair(Pair):
    """Instances ordered over the run, of one kind of order and offering."""

    kind: str
    offering: str


class ObjectiveObject(TypedDict):
    """The objective that both runs had."""

    latency_ms: float
    target: float


class ComparisonDocument(TypedDict):
    """Each figure of a rehearsal, live and replayed."""

    model: str
    policy: str
    market: str
    trace: str
    objective: ObjectiveObject
    requests: Pair
    attained: Pair
    #: USD by component and sum.
    cost_usd: dict[str, Pair]
    #: By mean and quantile.
    latency_ms: dict[str, Pair]
    #: Requests by who answered, and those that were shed.
    served: dict[str, Pair]
    failed: Pair
    rejected: Pair
    cold_start_rate: Pair
    orders: list[OrderPair]
    #: The largest difference of any ten minutes, kind and offering, instances.
    orders_most_apart: int
    notes: list[str]


def comparison_document(
    live: ModelStatus,
    replayed: RunDocument,
    *,
    live_orders: Orders | None = None,
    replayed_orders: Orders | None = None,
) -> ComparisonDocument:
    """`live`: one model of the live service; `replayed`: a run of `mark simulate --json`.

    Each figure is `{"live", "replayed", "difference"}`, live minus replayed; null where one of them is missing.
    """
    by, cost, latency_ms = answerers(live.by), components(live.cost_usd), dict(quantiles(live.latency_ms))
    requests = sum(count for _, _, count in by) + live.failed + live.rejected
    cold, invocations = live.lambda_.cold, live.lambda_.invocations
    orders_here, orders_there = live_orders or {}, replayed_orders or {}
    apart = [abs(orders_here.get(k, 0) - orders_there.get(k, 0)) for k in orders_here.keys() | orders_there.keys()]
    return {
        "model": live.name,
        "policy": replayed["policy"],
        "market": replayed["market"],
        "trace": replayed["trace"],
        "objective": {"latency_ms": live.objective.latency_ms, "target": live.objective.target},
        "requests": _pair(requests, replayed["requests"]),
        "attained": _pair(live.objective.attained, replayed["slo"]["attained"]),
        "cost_usd": {key: _pair(amount, replayed["cost_usd"][key]) for key, _, amount in cost},
        "latency_ms": {key: _pair(latency_ms[key], replayed["latency_ms"][key]) for key in SHOWN_QUANTILES},
        "served": {key: _pair(count, replayed["served"][key]) for key, _, count in by},
        "failed": _pair(live.failed, 0),
        "rejected": _pair(live.rejected, 0),
        "cold_start_rate": _pair(cold / invocations if invocations else 0.0, replayed["cold_start_rate"]),
        "orders": _orders(orders_here, orders_there),
        "orders_most_apart": max(apart, default=0),
        "notes": list(dict.fromkeys((*live.notes, *replayed["notes"]))),
    }


def _pair(live: float | None, replayed: float | None) -> Pair:
    here, there = finite(live), finite(replayed)
    difference = None if here is None or there is None else here - there
    return {"live": here, "replayed": there, "difference": difference}


def _orders(live: Orders, replayed: Orders) -> list[OrderPair]:
    """Instances ordered over the run, by kind and offering."""
    kinds = sorted({key[1:] for key in (*live, *replayed)})

    def total(orders: Orders, kind: tuple[str, str]) -> int:
        return sum(count for key, count in orders.items() if key[1:] == kind)

    return [
        {"kind": kind[0], "offering": kind[1], **_pair(total(live, kind), total(replayed, kind))} for kind in kinds
    ]


def agreement(document: ComparisonDocument) -> str:
    """The distance between live and replay, in a sentence."""
    cost = document["cost_usd"]
    figures = [
        f"total {_share_apart(cost['total'])}",
        f"serving {_share_apart(cost['serving'])}",
        f"standby {_share_apart(cost['standby'])}",
        f"in time {_points_apart(document['attained'])}",
        f"cold starts {_points_apart(document['cold_start_rate'])}",
    ]
    apart = plural(document["orders_most_apart"], "instance")
    return f"Live against its replay: {', '.join(figures)}; orders in any ten minutes at most {apart} apart."


def _share_apart(pair: Pair) -> str:
    """`+1.2 %` of the replay's; a dash where it cost nothing."""
    if pair["difference"] is None or not pair["replayed"]:
        return MISSING
    percent = round(100 * pair["difference"] / pair["replayed"], 1)
    return f"{percent:+.1f} %" if percent else "0.0 %"


def _points(_pair: Pair, difference: float) -> str:
    return f"{100 * difference:+.2f} points"


def _points_apart(pair: Pair) -> str:
    return MISSING if pair["difference"] is None else _points(pair, pair["difference"])
