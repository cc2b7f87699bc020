"""The status page and the fragments of it that change, from the live status alone.

A fragment is the inside of one element; the page holds all of them when it is loaded, afterwards only those that
changed are sent. What a reader scrolls or opens lies around the fragments, so that an update leaves it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jinja2 import Environment
from markupsafe import Markup

from mark.report.formatting import usd
from mark.report.html import make_environment, trusted
from mark.report.live import formatting
from mark.report.live.chart import load_chart, spend_chart
from mark.report.live.overview import model_state
from mark.report.live.processes import format_restarts, process_banners
from mark.report.live.service_status import LatencyStatus, ModelState, ModelStatus, ObservedInstance, ServiceStatus

WIDE, NARROW, WIDE_SPEND = (1112, 300), (360, 240), (1112, 200)
"""Charts in CSS pixels: on a desk, on a phone."""
PARTS = ("head", "tiles", "chart", "fleet", "instances", "answers", "decisions", "spend", "notes")
"""The macros of live_parts.html.j2 that draw one model."""
SLOWEST_SHOWN = 1.25
"""Latency bars end here times the objective, unless an answer was slower."""
INSTANCES_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragments:
    """Current content of the page: id of an element -> its inside. `shape` changes with the page's outline."""

    shape: str
    html: Mapping[str, str]

    def changed_since(self, before: Fragments | None) -> dict[str, str]:
        """Those that differ from what a reader already has."""
        if before is None:
            return dict(self.html)
        return {key: html for key, html in self.html.items() if before.html.get(key) != html}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A row of figures with a bar beside it; `share` of the full width, 0..1."""

    name: str
    value: str
    share: float
    key: str = ""


class LivePage:
    """Draws the page; templates are compiled once."""

    def __init__(self) -> None:
        environment = live_environment()
        self._page = environment.get_template("live.html.j2")
        self._login = environment.get_template("live_login.html.j2")
        self._parts = environment.get_template("live_parts.html.j2")

    def fragments(self, status: ServiceStatus) -> Fragments:
        """All fragments of a status."""
        macros = cast("Any", self._parts.module)
        html = {
            "top": str(macros.top(_top(status))),
            "month": str(
                macros.month(formatting.format_counterfactual(status) or formatting.format_month(status))
            ),
            "hours": str(macros.hours(*_hours(status))),
            "shared": str(macros.shared(status.shared, _numbers(status), INSTANCES_SHOWN)),
            "models": str(macros.models(status.overview, formatting.format_overhead(status), _numbers(status))),
            "banners": str(macros.banners((*formatting.banners(status), *process_banners(status)))),
        }
        for number, model in enumerate(status.models):
            cells = _cells(model, now=status.now, prefix=f"m{number}")
            for part in PARTS:
                html[f"m{number}-{part}"] = str(getattr(macros, part)(model, cells))
        return Fragments(shape=_shape(status), html=html)

    def page(self, status: ServiceStatus, shown: Fragments, *, nonce: str) -> str:
        """The whole page, `shown` inside: the models as the table has them now, the first one open."""
        numbers = _numbers(status)
        return self._page.render(
            service=status.service,
            models=[(row.model, numbers[row.model]) for row in status.overview.rows],
            shape=shown.shape,
            fragments={key: trusted(html) for key, html in shown.html.items()},
            nonce=nonce,
        )

    def login(self, *, nonce: str, refused: bool) -> str:
        """The form that asks for the token."""
        return self._login.render(nonce=nonce, refused=refused)


def live_environment() -> Environment:
    """Templates of the live pages, their words as filters."""
    return make_environment(
        usd=usd,
        rps=formatting.format_rps,
        ms=formatting.format_ms,
        share=formatting.format_share,
        clock=formatting.format_time,
        span=formatting.format_span,
        budget=formatting.format_budget,
        accuracy=formatting.format_accuracy,
        trained=formatting.format_training,
        assumed=formatting.format_assumed_load,
        planned=formatting.format_plan_times,
        hourly=formatting.format_hourly,
        usd_per_hour=formatting.format_usd_per_hour,
        pool=formatting.format_pool_status,
        gateways=formatting.format_gateway_shares,
        tenancies=formatting.format_tenancies,
        host=formatting.format_host,
        shared_cost=formatting.format_shared_cost,
        shared_part=formatting.format_shared_part,
        tenant=formatting.format_tenant,
        overhead=formatting.format_overhead,
        expected=formatting.format_expected_load,
        components=formatting.components,
    )


def _shape(status: ServiceStatus) -> str:
    names = "\n".join([status.service, *(model.name for model in status.models)])
    return hashlib.sha256(names.encode()).hexdigest()[:12]


def _numbers(status: ServiceStatus) -> dict[str, int]:
    """The number of each model's elements: its place in the status, which does not change with its cost."""
    return {model.name: number for number, model in enumerate(status.models)}


def _hours(status: ServiceStatus) -> tuple[Markup, Markup] | tuple[None, None]:
    """The wide and the narrow chart of spending by the hour; none before the first hour is over."""
    if not status.hours:
        return None, None
    wide, narrow = (
        spend_chart(status.hours, width=width, height=height, prefix=f"hours-{name}")
        for name, (width, height) in (("wide", WIDE_SPEND), ("narrow", NARROW))
    )
    return wide, narrow


def _top(status: ServiceStatus) -> dict[str, str]:
    return {
        "clock": formatting.format_clock(status),
        "controller": formatting.format_controller(status),
        "restarted": format_restarts(status),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """Values of a model that the macros print beside its status and the words of their filters."""

    wide: Markup
    narrow: Markup
    objective: str
    state: ModelState
    keeps: bool
    budget: formatting.ErrorBudget
    failures: Sequence[str]
    rows: Sequence[formatting.FleetRow]
    observed: Sequence[ObservedInstance]
    unshown: int
    answerers: Sequence[_Bar]
    quantiles: Sequence[_Bar]
    limit_share: float
    is_lambda_alone: bool
    judged: LatencyStatus
    quantile: tuple[str, float | None]


def _cells(model: ModelStatus, *, now: float, prefix: str) -> _Cells:
    rows, limit_ms = formatting.fleet_rows(model), model.objective.latency_ms
    observed = sorted(model.fleet.observed, key=lambda row: (row.offering, row.role, row.id))
    planned_rps = model.plan.capacity_rps if model.plan is not None else None
    wide, narrow = (
        load_chart(
            model.series, now=now, planned_rps=planned_rps, width=width, height=height, prefix=f"{prefix}-{name}"
        )
        for name, (width, height) in (("wide", WIDE), ("narrow", NARROW))
    )
    latencies = formatting.quantiles(formatting.judged(model))
    end_ms = max(SLOWEST_SHOWN * limit_ms, *(ms or 0.0 for _, ms in latencies))
    return _Cells(
        wide=wide,
        narrow=narrow,
        objective=formatting.format_objective(
            target=model.objective.target, latency_ms=limit_ms, measured=model.objective.measured
        ),
        state=model_state(model),
        keeps=not model.objective.is_missed,
        budget=formatting.budget_of(model),
        failures=[formatting.format_failure(failure, now) for failure in model.failures],
        rows=rows,
        observed=observed[:INSTANCES_SHOWN],
        unshown=max(0, len(observed) - INSTANCES_SHOWN),
        answerers=_answerers(model),
        quantiles=[
            _Bar(
                name=name,
                value=formatting.format_ms(ms),
                share=(ms or 0.0) / end_ms,
                key="slow" if ms is not None and ms > limit_ms else "fine",
            )
            for name, ms in latencies
        ],
        limit_share=limit_ms / end_ms,
        is_lambda_alone=formatting.is_lambda_alone(model),
        judged=formatting.judged(model),
        quantile=formatting.objective_quantile(model),
    )


def _answerers(model: ModelStatus) -> list[_Bar]:
    counts = formatting.outcomes(model)
    total = max(1, sum(count for _, _, count in counts))
    return [_Bar(name=label, value=f"{n:,}", share=n / total, key=key) for key, label, n in counts]
