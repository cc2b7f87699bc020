"""Comparison of a live run with the replay of the same slice: document, table and page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from mark.domain.demand import WINDOW_S
from mark.domain.figures import plural
from mark.report.files import write_json, write_whole
from mark.report.formatting import MISSING, finite, usd
from mark.report.live.chart import ChartSeries, Stretch, pair_chart
from mark.report.live.formatting import (
    ANSWERERS,
    COMPONENTS,
    SUMS,
    answerers,
    components,
    format_ms,
    format_objective,
    format_share,
    quantiles,
)
from mark.report.live.service_status import ModelStatus
from mark.report.live.status_page import NARROW, WIDE, live_environment
from mark.report.runs.run_documents import RunDocument
from mark.report.tables import figures, make_table, texts
from mark.simulator.results import RunResult
from mark.store.published_status import LoadSeries

PAGE_NAME, DOCUMENT_NAME = "live.html", "live.json"
MINUTE_S = 60
HEIGHT = 220
"""Of its charts, CSS pixels."""
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
    """The document `live.json` of a rehearsal."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """A row as it is printed."""

    name: str
    live: str
    replayed: str
    difference: str
    is_sum: bool = False


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


def comparison_rows(document: ComparisonDocument) -> tuple[ComparedRow, ...]:
    """All figures in the order that they are read: did it keep its objective, what did it cost, who answered."""
    rows = [_row("answered in time", document["attained"], format_share, _points)]
    rows += [
        _row(f"{label}, USD", document["cost_usd"][key], _usd, _usd_apart, is_sum=key in SUMS)
        for key, label in COMPONENTS
    ]
    rows += [
        _row(f"latency {name}, ms", document["latency_ms"][name], format_ms, _signed) for name in SHOWN_QUANTILES
    ]
    rows.append(_row("requests", document["requests"], _count, _signed))
    rows += [
        _row(f"by {label}" if key != "shed" else label, document["served"][key], _count, _signed)
        for key, label in ANSWERERS
    ]
    rows += [
        _row(name, pair, _count, _signed)
        for name, pair in (("failed", document["failed"]), ("rejected", document["rejected"]))
        if pair["live"]
    ]
    rows.append(_row("Lambda started cold", document["cold_start_rate"], format_share, _points))
    for order in document["orders"]:
        rows.append(_row(f"ordered: {order['kind']} {order['offering']}".strip(), order, _count, _signed))
    return tuple(rows)


def comparison_table(document: ComparisonDocument) -> Table:
    """Live | replayed | difference, for a terminal."""
    subject = Text(f"{document['model']}, {format_objective(**document['objective'])}")
    table = make_table([*texts(subject, max_width=48), *figures("live", "replayed", "difference")], gap=3)
    for row in comparison_rows(document):
        table.add_row(Text(row.name), row.live, row.replayed, row.difference, style="bold" if row.is_sum else None)
    return table


def comparison_page(
    document: ComparisonDocument, *, live: LoadSeries, replayed: RunResult, title: str, command: str
) -> str:
    """One page that needs nothing else. `command` repeats the run."""
    here, there = ChartSeries.of(live), ChartSeries.of(replay_series(replayed))
    # the live series tells the capacity at a minute's end, the replay's at its start
    ready = replace(here.capacity, start_at=here.capacity.start_at + here.capacity.unit_s)
    figures = [
        ("Load", "mean requests/s of each minute", _charts("load", here.mean, there.mean)),
        ("Capacity", "requests/s the ready carry", _charts("capacity", ready, there.capacity)),
    ]
    template = live_environment().get_template("live_report.html.j2")
    return template.render(
        title=title,
        document=document,
        headline=headline(document),
        agreement=agreement(document),
        rows=comparison_rows(document),
        figures=figures,
        command=command,
    )


def _charts(name: str, live: Stretch, replayed: Stretch) -> list[Markup]:
    """Wide and narrow."""
    title = f"{name}, live and replayed"
    return [
        pair_chart(live, replayed, title=title, width=width, height=HEIGHT, prefix=f"{name}{width}")
        for width, _ in (WIDE, NARROW)
    ]


def write_comparison(
    out_dir: Path,
    document: ComparisonDocument,
    *,
    live: LoadSeries,
    replayed: RunResult,
    title: str,
    command: str,
) -> Path:
    """Writes `live.json`, then `live.html`; returns the page's path. Misconfigured when the folder cannot be."""
    write_json(out_dir / DOCUMENT_NAME, document)
    page = comparison_page(document, live=live, replayed=replayed, title=title, command=command)
    write_whole(out_dir / PAGE_NAME, page)
    return out_dir / PAGE_NAME


def headline(document: ComparisonDocument) -> str:
    """Both worlds in a sentence."""
    cost, attained = document["cost_usd"]["total"], document["attained"]
    return (
        f"Live: {_usd(cost['live'])} USD and {format_share(attained['live'])} in time; "
        f"the replay of the same slice: {_usd(cost['replayed'])} USD and {format_share(attained['replayed'])}."
    )


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


def replay_series(result: RunResult) -> LoadSeries:
    """A replay in the form of the live status's series, its whole length."""
    arrivals = result.seconds.arrivals.astype(np.float64) * result.speed
    minutes = -(-arrivals.size // MINUTE_S)
    lengths = np.minimum(MINUTE_S, arrivals.size - np.arange(minutes) * MINUTE_S)
    padded = np.pad(arrivals, (0, minutes * MINUTE_S - arrivals.size)).reshape(minutes, MINUTE_S)
    window = int(WINDOW_S)
    peaks = padded.reshape(minutes, MINUTE_S // window, window).sum(axis=2).max(axis=1, initial=0.0) / window
    return LoadSeries(
        start_at=result.start_at,
        unit_s=MINUTE_S,
        mean_rps=tuple(padded.sum(axis=1) / np.maximum(lengths, 1)),
        max_rps=tuple(peaks),
        capacity_rps=tuple(result.minutes.capacity_rps.sum(axis=1)),
        forecast_start_at=result.start_at,
        forecast_max_rps=tuple(map(finite, result.minutes.forecast_max_rps)),
    )


def _row(
    name: str,
    pair: Pair,
    form: Callable[[float | None], str],
    apart: Callable[[Pair, float], str],
    *,
    is_sum: bool = False,
) -> ComparedRow:
    return ComparedRow(
        name=name,
        live=form(pair["live"]),
        replayed=form(pair["replayed"]),
        difference=MISSING if (difference := pair["difference"]) is None else apart(pair, difference),
        is_sum=is_sum,
    )


def _usd(amount: float | None) -> str:
    return MISSING if amount is None else usd(amount)


def _usd_apart(pair: Pair, difference: float) -> str:
    """`+0.03 (+1.2 %)`; without the share where the replay cost nothing."""
    text = f"{'-' if difference < 0 else '+'}{usd(abs(difference))}"
    return f"{text} ({_share_apart(pair)})" if pair["replayed"] else text


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


def _count(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"


def _signed(_pair: Pair, difference: float) -> str:
    return f"{difference:+,.0f}" if round(difference) else "0"
