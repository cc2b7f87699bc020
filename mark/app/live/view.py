"""The service as `mark status` and the status page show it: one document, made from the store alone.

It needs no controller to be alive; what a controller alone knows (plan, forecast, requested launches) is what the
last acting one said.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mark.app.live.alerting import ALERTS
from mark.app.live.archiving import ARCHIVE
from mark.app.live.clock import adopt_wall
from mark.app.live.folder import process_of
from mark.app.live.process_watch import PROCESSES
from mark.app.live.replaying import REPLAYING
from mark.app.live.troubles import trouble_lines, troubles_name
from mark.controller.compaction import rolled_up
from mark.controller.ledger import (
    cost_words,
    joined,
    live_bill,
    running_now,
    unpriced,
    unpriced_words,
    usd_per_hour,
)
from mark.controller.live_plane import window_speeds
from mark.controller.service import ServedModel, ServiceSpec
from mark.controller.usage_book import UsageBook
from mark.domain.demand import WINDOW_S
from mark.domain.errors import RetryLater
from mark.domain.member import Member, MemberState
from mark.domain.traffic import LATENCY_BIN_S, ModelTraffic
from mark.store.service import ServiceStore
from mark.telemetry.steady_time import steady_time

RATE_WINDOWS = 12
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p98", 0.98), ("p99", 0.99))
SILENT_PERIODS = 3.0


class LiveView:
    """Reads the store; keeps the last document for a store that is away."""

    def __init__(self, store: ServiceStore, service: str) -> None:
        self._store = store
        self._service = service
        self._spec: ServiceSpec | None = None
        self._books: dict[str, UsageBook] = {}
        self._last: dict[str, Any] = {"service": service, "now": steady_time(), "speed": 1.0, "models": []}

    def document(self) -> dict[str, Any]:
        """The service as it is now (the fields: docs/json.md)."""
        try:
            self._last = self._made()
        except RetryLater:
            return {**self._last, "store": {"reachable": False}}
        return self._last

    def _made(self) -> dict[str, Any]:
        store = self._store
        if self._spec is None:
            adopt_wall(store)
            self._spec = store.spec()
        anchor, wall = store.clock(), steady_time()
        now = anchor.service_time(wall)
        holder = store.leases.held_by()
        failing = trouble_lines(store.status(troubles_name(holder)) if holder else None, wall)
        return {
            "service": self._service,
            "now": now,
            "speed": anchor.speed_at(wall),
            "clock_stands": anchor.speed_at(wall) == 0.0,
            "behind_wall_s": time.time() - now,
            "controller": {"holder": process_of(holder), "silent_s": self._silent_s(now)},
            "store": {"reachable": True},
            **_processes(store.status(PROCESSES)),
            "budget": store.status("budget"),
            "replays": _replays(store.status(REPLAYING)),
            "alerts": store.status(ALERTS),
            "archive": store.status(ARCHIVE),
            "models": [self._model(served, now, failing) for served in self._spec.models],
        }

    def _silent_s(self, now: float) -> float | None:
        """Service seconds since the last tick that any model was told of."""
        assert self._spec is not None
        told = [self._store.status(f"model:{served.name}") for served in self._spec.models]
        at = [document["at"] for document in told if document]
        return max(0.0, now - max(at)) if at else None

    def _model(self, served: ServedModel, now: float, failing: Sequence[str]) -> dict[str, Any]:
        store, name = self._store, served.name
        told = store.status(f"model:{name}") or {}
        traffic = store.traffic(name)
        cost, hourly, lacking = self._spend(served, traffic, told, now)
        members = {member.instance: member for member in store.membership(name).members()}
        observed = _observed(told.get("observed", ()), members, now)
        return {
            "name": name,
            "policy": told.get("policy"),
            "market": told.get("market"),
            "rates": self._rates(name, now),
            "series": told.get("series", _NO_SERIES),
            "assumed": told.get("assumed"),
            "trained": told.get("trained"),
            **_answers(served, traffic, told),
            "fleet": {
                "planned": told.get("planned", {}),
                "requested": told.get("requested", {}),
                "observed": observed,
            },
            "capacity": _capacity(served, observed),
            "cost_usd": cost,
            "usd_per_hour": hourly["instances"] + hourly["lambda"] + hourly["overhead"],
            "usd_per_hour_by": hourly,
            "plan": told.get("plan"),
            "decisions": told.get("decisions", []),
            "notes": [*failing, *lacking, *told.get("notes", [])],
        }

    def _spend(
        self, served: ServedModel, traffic: ModelTraffic, told: Mapping[str, Any], now: float
    ) -> tuple[dict[str, float], dict[str, float], list[str]]:
        """The cost words so far; what is spent an hour, by what and as a mean over how long; what has no price."""
        book = self._books.setdefault(served.name, UsageBook())
        record = self._store.ledger(served.name)
        usage = joined(book.before(record.transitions, now), rolled_up(record.rollups, now))
        duration_s = max(0.0, now - told.get("began_at", now))
        bill = live_bill(
            usage,
            traffic,
            served,
            requests=told.get("requests", 0),
            peak_rps=told.get("peak_rps", 0.0),
            duration_s=duration_s,
        )
        cost = cost_words(bill)
        hourly = usd_per_hour(served, running_now(usage, now), cost, duration_s)
        names = unpriced(served, usage.usages)
        return cost, {**hourly, "mean_over_s": duration_s}, [unpriced_words(names)] if names else []

    def _rates(self, name: str, now: float) -> dict[str, float]:
        """Requests/s of the last whole window, and mean and maximum of the last twelve."""
        last = math.floor(now / WINDOW_S)
        counts = self._store.arrivals(name, last - RATE_WINDOWS, last - 1)
        speeds = window_speeds(self._store.clocks(), last - RATE_WINDOWS, last - 1)
        rates = [count * speed / WINDOW_S for count, speed in zip(counts, speeds, strict=True)]
        return {"now_rps": rates[-1], "last_minute_rps": sum(rates) / len(rates), "max_rps": max(rates)}


_NO_SERIES: Mapping[str, Any] = {
    "start_at": 0.0,
    "unit_s": 60,
    "mean_rps": [],
    "max_rps": [],
    "capacity_rps": [],
    "forecast_start_at": 0.0,
    "forecast_max_rps": [],
    "forecaster": "",
}


def _processes(told: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the supervisor told of the service's processes; nothing where there is none, as in an account."""
    told = told or {}
    return {
        "restarts": told.get("restarts", {}),
        "down": told.get("down", []),
        "account": told.get("account"),
        "clock_set_by_s": told.get("clock_set_by_s", 0.0),
    }


def _replays(told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How far the replays of past days are: the last one that is done, what runs, what failed."""
    if told is None:
        return None
    last = max(told["days"], default=None)
    return {"last_day": last, "running": told["running"], "failed": told["failed"]}


def _observed(
    told: Sequence[Mapping[str, Any]], members: Mapping[str, Member], now: float
) -> list[dict[str, Any]]:
    """The fleet as the last tick saw it, brought up to date by what agents say of themselves since."""
    rows = {row["id"]: dict(row) for row in told}
    for name, member in members.items():
        known = rows.setdefault(
            name, {"id": name, "offering": member.offering, "role": member.role.value, "interrupt_at": None}
        )
        state = "pending" if member.state is MemberState.STARTING else member.state.value
        known.update(state=state, credits=member.credits, interrupt_at=member.gone_at or known["interrupt_at"])
    for row in rows.values():
        taken_at = row.pop("interrupt_at")
        row["gone_in_s"] = None if taken_at is None else max(0.0, taken_at - now)
    return [rows[name] for name in sorted(rows) if (rows[name]["gone_in_s"] != 0.0 or name in members)]


def _answers(served: ServedModel, traffic: ModelTraffic, told: Mapping[str, Any]) -> dict[str, Any]:
    """What became of requests, and who answered them.

    Gateways that have nothing to report do not say what is warm: then the last tick's belief stands.
    """
    return {
        "objective": _objective(served, traffic),
        "latency_ms": _latency_ms(traffic),
        "by": {
            "instance": traffic.instance,
            "standby": traffic.standby,
            "lambda": traffic.lambda_,
            "shed": traffic.shed,
        },
        "failed": traffic.failed,
        "rejected": traffic.rejected,
        "redispatched": traffic.redispatched,
        "lambda": {
            "in_flight": traffic.lambda_in_flight,
            "warm": max(traffic.lambda_warm, told.get("lambda_warm", 0)),
            "invocations": traffic.invocations,
            "cold": traffic.cold,
        },
    }


def _objective(served: ServedModel, traffic: ModelTraffic) -> dict[str, Any]:
    finished = traffic.answered + traffic.shed + traffic.failed
    in_time = traffic.answered - traffic.late
    return {
        "latency_ms": served.slo.latency_s * 1000,
        "target": served.slo.target,
        "answered": traffic.answered,
        "late": traffic.late,
        "shed": traffic.shed,
        "attained": in_time / finished if finished else None,
    }


def _latency_ms(traffic: ModelTraffic) -> dict[str, float | None]:
    """Mean and quantiles (upper edge of their bin) of what was answered."""
    if not traffic.latency_counts:
        return dict.fromkeys(("mean", *(name for name, _ in QUANTILES)))
    bins, counts = np.array(sorted(traffic.latency_counts)).T
    below = np.cumsum(counts)
    edges_ms = (bins + 1) * LATENCY_BIN_S * 1000
    found = {name: float(edges_ms[np.searchsorted(below, q * below[-1])]) for name, q in QUANTILES}
    return {"mean": traffic.latency_sum_s / int(below[-1]) * 1000, **found}


def _capacity(served: ServedModel, observed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Instances, requests/s and USD an hour by offering, of those that are there."""
    rows = []
    for offering in served.offerings:
        states = [row["state"] for row in observed if row["offering"] == offering.name]
        if not states:
            continue
        ready, billed = states.count("ready"), len(states) - states.count("stopped")
        rows.append(
            {
                "offering": offering.name,
                "ready": ready,
                "pending": states.count("pending"),
                "draining": states.count("draining"),
                "stopped": states.count("stopped"),
                "rps": ready * offering.capacity_rps,
                "usd_per_hour": billed * offering.usd_per_hour,
            }
        )
    return rows
