"""Prometheus' rules, `infra/prometheus/rules.yaml`: `make docs` writes them.

The alerts on the objective are those of Google's SRE workbook ("Alerting on SLOs", 5: multiple windows and burn
rates): the share of requests that missed, over the share that the objective forgives.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import yaml

PATH = Path(__file__).parents[1] / "infra" / "prometheus" / "rules.yaml"
NOTICE = "# Written by `make docs` (scripts/prometheus_rules.py); docs/telemetry.md says how to use it.\n"
WINDOWS = ("5m", "30m", "1h", "6h")
FAST, SLOW = 14.4, 6.0
"""Of a month's misses 2 % in an hour, 5 % in six (the workbook's figures for a page)."""
FORGIVEN = "(1 - max by (model) (mark_gateway_objective_target))"


Rule = TypedDict(
    "Rule",
    {
        "record": str,
        "alert": str,
        "expr": str,
        "for": str,
        "labels": dict[str, str],
        "annotations": dict[str, str],
    },
    total=False,
)
"""A rule as Prometheus reads it: `record` or `alert` is its name."""


def text() -> str:
    """The file."""
    groups = [{"name": "mark-objective", "rules": objective()}, {"name": "mark-service", "rules": service()}]
    return NOTICE + yaml.safe_dump({"groups": groups}, sort_keys=False, width=110)


def objective() -> list[Rule]:
    """Shares of requests that missed, and what rings when they burn the budget of misses too fast."""
    return [
        *(Rule(record=f"mark:missed:share{window}", expr=_missed(window)) for window in WINDOWS),
        _burns("MarkObjectiveBurnsFast", FAST, ("1h", "5m"), "page"),
        _burns("MarkObjectiveBurns", SLOW, ("6h", "30m"), "ticket"),
    ]


def service() -> list[Rule]:
    """What rings when the service itself is not as it should be."""
    return [
        _alert(
            "MarkGatewaysNotSeen",
            "absent(mark_gateway_connections)",
            "5m",
            "no gateway's metrics have come for five minutes",
            "is a gateway up, and does Prometheus have its address and the token?",
        ),
        _alert(
            "MarkNoAgents",
            "sum by (model) (mark_gateway_agents) == 0 and sum by (model) (rate(mark_gateway_shed_total[5m])) > 0",
            "2m",
            "{{ $labels.model }} has no agent that accepts requests, and requests are shed",
            "`mark status`: are launches refused?",
        ),
        _alert(
            "MarkUnexpectedErrors",
            "sum by (instance) (increase(mark_gateway_internal_errors_total[15m])) > 0 "
            "or sum by (instance) (increase(mark_agent_internal_errors_total[15m])) > 0",
            "0m",
            "{{ $labels.instance }} met exceptions that nobody expected",
            "its log has each as `internal error`, with its traceback",
            severity="ticket",
        ),
        _alert(
            "MarkNoController",
            "mark_controller_holds_lease == 0 or mark_controller_silent_seconds > 180",
            "1m",
            "no controller acts: the fleet stays as it is, and gateways go on",
            "the controllers' logs; `mark status`",
        ),
        _alert("MarkStoreUnreachable", "mark_store_reachable == 0", "1m", "the store does not answer", "its log"),
    ]


def _missed(window: str) -> str:
    def rates(*names: str) -> str:
        return " + ".join(f"sum by (model) (rate(mark_gateway_{name}_total[{window}]))" for name in names)

    return f"({rates('late', 'shed', 'failed')}) / (({rates('responses', 'shed', 'failed')}) > 0)"


def _burns(name: str, rate: float, windows: tuple[str, str], severity: str) -> Rule:
    burning = " and ".join(f"mark:missed:share{window} > on(model) {rate:g} * {FORGIVEN}" for window in windows)
    says = f"{{{{ $labels.model }}}} misses its objective {rate:g} times faster than it may"
    return _alert(name, burning, "0m", says, "`mark status`: is a launch refused?", severity=severity)


def _alert(name: str, expr: str, lasts: str, says: str, look: str, *, severity: str = "page") -> Rule:
    told = {"summary": says, "look": look}
    return {"alert": name, "expr": expr, "for": lasts, "labels": {"severity": severity}, "annotations": told}


def write() -> None:
    """Write the file."""
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text())
