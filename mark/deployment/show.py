"""Rollouts in a terminal: tables of what would change, events as they come, and what went wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from mark.aws.stacks.cloudformation import Change, StackEvent
from mark.deployment.deployment_plan import StackPlan
from mark.domain.figures import plural
from mark.live.models import LiveModel
from mark.report.tables import make_table, texts

SIGNS = {"Add": "+", "Modify": "~", "Remove": "-"}
SHOWN_NEW = 6
"""Of a stack that is new no more kinds of resources are named than these."""


def plan_table(plans: Sequence[StackPlan]) -> Table:
    """Each stack, and each resource that changes in one that stands."""
    table = make_table(texts("stack", "", "resource", "type", "differs in"))
    for plan in plans:
        if plan.act in ("create", "create again"):
            table.add_row(plan.name, plan.act, plural(len(plan.changes), "resource"), _kinds(plan.changes), "")
        elif plan.act == "update":
            for number, change in enumerate(plan.changes):
                first = (plan.name, "update") if number == 0 else ("", "")
                kind = change.type.removeprefix("AWS::")
                sign = SIGNS.get(change.action, change.action)
                table.add_row(*first, f"{sign} {change.resource}", kind, _replaced(change))
        else:
            table.add_row(plan.name, "stays as it is" if plan.act == "keep" else "delete", "", "", "")
    return table


def _kinds(changes: Sequence[Change]) -> str:
    kinds = Counter(change.type.rpartition("::")[2] for change in changes)
    parts = [f"{count} {kind}" if count > 1 else kind for kind, count in kinds.most_common(SHOWN_NEW)]
    return ", ".join([*parts, *(["..."] if len(kinds) > SHOWN_NEW else [])])


def _replaced(change: Change) -> str:
    parts = (change.differs, {"True": "replaced", "Conditional": "perhaps replaced"}.get(change.replaced, ""))
    return "; ".join(word for word in parts if word)


def offerings_line(model: LiveModel) -> str:
    """The types that a model may rent, and the reasons for which others on which it is profiled are left out."""
    types = sorted({item.instance_type.name for item in model.served.offerings})
    reasons: dict[str, list[str]] = {}
    for excuse in model.excuses:
        reasons.setdefault(excuse.reason, []).append(excuse.offering.partition(":")[0])
    left_out = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return ", ".join(types) + (f"; left out: {left_out}" if left_out else "")


def plan_document(plans: Sequence[StackPlan]) -> list[dict[str, object]]:
    """The plan for `--json` (docs/json.md)."""
    return [
        {
            "stack": plan.name,
            "act": plan.act,
            "changes": [asdict(change) for change in plan.changes],
        }
        for plan in plans
    ]


class EventLog:
    """Events of stacks on stderr as they come; where that is no terminal, the ends alone."""

    def __init__(self, count: int) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._count, self._number = count, 0

    def stack(self, name: str, act: str) -> None:
        """The next stack begins."""
        self._number += 1
        self._console.print(f"[{self._number}/{self._count}] {name}: {act}", markup=False)

    def event(self, event: StackEvent) -> None:
        """Something happened to a resource."""
        if event.status.endswith("IN_PROGRESS") and not self._console.is_terminal:
            return
        at = time.strftime("%H:%M:%S", time.localtime(event.at))
        reason = f"  {event.reason}" if event.status.endswith("_FAILED") else ""
        self._console.print(f"  {at} {event.status:<28} {event.resource}{reason}", markup=False)

    def show_line(self, text: str) -> None:
        """Anything else."""
        self._console.print(f"  {text}", markup=False)
