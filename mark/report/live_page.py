"""The status page and the fragments of it that change, from the live document alone.

A fragment is the inside of one element; the page holds all of them when it is loaded, afterwards only those that
changed are sent. What a reader scrolls or opens lies around the fragments, so that an update leaves it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mark.report import live_words as words
from mark.report.live_chart import load_chart
from mark.report.live_processes import process_banners, restart_words
from mark.report.wording import usd

WIDE, NARROW = (1112, 300), (360, 240)
"""Charts in CSS pixels: on a desk, on a phone."""
PARTS = ("head", "tiles", "chart", "fleet", "instances", "answers", "decisions", "spend", "notes")
"""The macros of live_parts.html.j2 that draw one model."""
SLOWEST_SHOWN = 1.25
"""Latency bars end here times the objective, unless an answer was slower."""
INSTANCES_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragments:
    """What the page shows now: id of an element -> its inside. `shape` changes with the page's outline."""

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

    def fragments(self, document: Mapping[str, Any]) -> Fragments:
        """All fragments of a document."""
        macros = cast("Any", self._parts.module)
        html = {
            "top": str(macros.top(_top(document))),
            "banners": str(macros.banners((*words.banners(document), *process_banners(document)))),
        }
        for number, model in enumerate(document["models"]):
            cells = _cells(model, now=float(document["now"]), prefix=f"m{number}")
            for part in PARTS:
                html[f"m{number}-{part}"] = str(getattr(macros, part)(model, cells))
        return Fragments(shape=_shape(document), html=html)

    def page(self, document: Mapping[str, Any], shown: Fragments, *, nonce: str) -> str:
        """The whole page, `shown` inside."""
        return self._page.render(
            service=document["service"],
            models=[model["name"] for model in document["models"]],
            shape=shown.shape,
            fragments={key: _trusted(html) for key, html in shown.html.items()},
            nonce=nonce,
        )

    def login(self, *, nonce: str, refused: bool) -> str:
        """The form that asks for the token."""
        return self._login.render(nonce=nonce, refused=refused)


def live_environment() -> Environment:
    """Templates of the live pages, their words as filters."""
    environment = Environment(
        loader=PackageLoader("mark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        usd=_usd,
        rps=words.rps_words,
        ms=words.ms_words,
        share=words.share_words,
        clock=words.time_words,
        span=words.span_words,
    )
    return environment


def _trusted(html: str) -> Markup:
    """What our own templates escaped a moment ago."""
    return Markup(html)  # noqa: S704


def _shape(document: Mapping[str, Any]) -> str:
    names = "\n".join([document["service"], *(model["name"] for model in document["models"])])
    return hashlib.sha256(names.encode()).hexdigest()[:12]


def _usd(amount: Any) -> str:
    number = words.finite(amount)
    return usd(number if number is not None else float("nan"))


def _top(document: Mapping[str, Any]) -> dict[str, str]:
    return {
        "time": words.time_words(document.get("now")),
        "speed": words.speed_words(document),
        "controller": words.controller_words(document),
        "restarted": restart_words(document),
    }


def _cells(model: Mapping[str, Any], *, now: float, prefix: str) -> dict[str, Any]:
    """What the macros print and the document does not say by itself."""
    rows = words.fleet_rows(model)
    observed = sorted(model["fleet"]["observed"], key=lambda row: (row["offering"], row["role"], row["id"]))
    wide, narrow = (
        load_chart(model["series"], now=now, width=width, height=height, prefix=f"{prefix}-{name}")
        for name, (width, height) in (("wide", WIDE), ("narrow", NARROW))
    )
    budget = words.budget_of(model)
    return {
        "wide": wide,
        "narrow": narrow,
        "objective": words.objective_words(model),
        "keeps": words.keeps_objective(model),
        "budget": budget,
        "budget_words": words.budget_words(budget),
        "trained": words.trained_words(model),
        "assumed": words.assumed_words(model),
        "planned": words.plan_words(model),
        "hourly": words.hourly_words(model),
        "rows": rows,
        "top_rps": max((row.rps for row in rows), default=0.0),
        "capacity_rps": sum(row.rps for row in rows),
        "expected": words.expected_words(model),
        "ready": sum(row.states.get("ready", 0) for row in rows),
        "observed": observed[:INSTANCES_SHOWN],
        "unshown": max(0, len(observed) - INSTANCES_SHOWN),
        "answerers": _answerers(model),
        "quantiles": _quantiles(model),
        "limit_share": _limit_share(model),
        "components": [(label, model["cost_usd"].get(key), key in words.SUMS) for key, label in words.COMPONENTS],
    }


def _answerers(model: Mapping[str, Any]) -> list[_Bar]:
    counts = [(key, label, int(model["by"].get(key) or 0)) for key, label in words.ANSWERERS]
    counts += [(key, key, int(model[key])) for key in ("failed", "rejected") if model.get(key)]
    total = max(1, sum(count for _, _, count in counts))
    return [_Bar(name=label, value=f"{n:,}", share=n / total, key=key) for key, label, n in counts]


def _end_ms(model: Mapping[str, Any]) -> float:
    """Where the latency bars end."""
    slowest = max((words.finite(model["latency_ms"].get(name)) or 0.0 for name in words.QUANTILES), default=0.0)
    return max(SLOWEST_SHOWN * float(model["objective"]["latency_ms"]), slowest)


def _limit_share(model: Mapping[str, Any]) -> float:
    return float(model["objective"]["latency_ms"]) / _end_ms(model)


def _quantiles(model: Mapping[str, Any]) -> list[_Bar]:
    limit, end = float(model["objective"]["latency_ms"]), _end_ms(model)
    bars = []
    for name in words.QUANTILES:
        latency = words.finite(model["latency_ms"].get(name))
        bars.append(
            _Bar(
                name=name,
                value=words.ms_words(latency),
                share=(latency or 0.0) / end,
                key="slow" if latency is not None and latency > limit else "fine",
            )
        )
    return bars
