"""Progress of a service's start, and what blocks it: in lines that `mark up` and `mark status` print.

The lines and the verdict are made from values alone; `look_at_start` reads those.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mark.domain.billing.spending import SpendingLimit
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import MemberState
from mark.live.local.emulator_client import EmulatedControls, EmulatedInstance
from mark.service_spec import ServedModel
from mark.store.published_status import BUDGET, HOSTS, MODEL, PublishedHosts, PublishedModel, RestartStatus
from mark.store.service import ServiceStore

MOST_STARTS = 3
"""An agent or another process that ended so often while a service starts will not come up."""
TAIL_BYTES = 64 * 1024
"""Length of a log's end that is looked through."""
MOST_LINES = 4
LINE_LENGTH = 300


class StartFailed(MarkError):
    """A service could not start: its text is the reason, `details` the lines that explain it."""

    def __init__(self, reason: str, details: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.details = tuple(details)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStart:
    """One model of a service that starts.

    `told`: the controller's status document of this life, if there is one. `overflows`: whether Lambda may answer.
    `agents`: how many serving agents are in each state. `instances`: the emulated AWS's rows of this model, and of
    the shared instances that are to hold it.
    """

    name: str
    published: PublishedModel | None
    overflows: bool
    agents: Mapping[str, int]
    instances: Sequence[EmulatedInstance]

    @property
    def planned(self) -> int:
        """Instances of the first plan."""
        return 0 if self.published is None else sum(self.published.planned.values())


def hopeless(model: ModelStart) -> str | None:
    """Reason that this model will never serve, where it is known already."""
    has_plan = model.published is not None and model.published.plan is not None
    if has_plan and not model.planned and not model.overflows and not model.instances:
        return (
            f"{model.name}: the first plan holds no instance, and no Lambda function may answer; "
            "raise expected_rps or choose another policy or instance type"
        )
    for row in model.instances:
        if row.get("starts", 0) > MOST_STARTS:
            return (
                f"{model.name}: the agent of instance {row['id']} ended {row['starts'] - 1} times while it started"
            )
    return None


def start_lines(model: ModelStart) -> list[str]:
    """Planned instances with the plan's reason, and those that are there."""
    if model.published is None:
        return [f"{model.name}: no plan yet"]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(model.published.planned.items()) if count)
    lines = [f"{model.name}: planned {counts or 'no instance'}; {_there(model)}"]
    if model.published.plan is not None and model.published.plan.reason:
        lines.append(f"{model.name}: the plan's reason: {model.published.plan.reason}")
    return lines + [f"{model.name}: {note}" for note in model.published.notes]


def _there(model: ModelStart) -> str:
    states = Counter(row["state"] for row in model.instances)
    instances = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    agents = ", ".join(f"{count} {state}" for state, count in sorted(model.agents.items())) or "none"
    return f"instances: {instances}; agents: {agents}"


def check_children(restarts: Mapping[str, RestartStatus], logs: Path) -> None:
    """Misconfigured where a process has ended too often to come up."""
    for name, ends in restarts.items():
        if ends.count >= MOST_STARTS:
            raise Misconfigured(
                f"{name} ended {ends.count} times while the service started; its log is {logs}/{name}.log"
            )


def check_models(models: Sequence[ModelStart]) -> None:
    """Misconfigured where a model will never serve."""
    for reason in map(hopeless, models):
        if reason is not None:
            raise Misconfigured(reason)


def findings(models: Sequence[ModelStart], restarts: Mapping[str, RestartStatus], logs: Path) -> list[str]:
    """Lines that plans, instances and logs give to a start that failed."""
    lines = [line for model in models for line in start_lines(model)]
    for row in (row for model in models for row in model.instances if row.get("starts", 0) > 1):
        if words := last_log_line(logs / f"{row['id']}.log"):
            lines.append(f"the agent of {row['id']} logged last: {'; '.join(words)}")
            break
    for name, ends in restarts.items():
        if ends.count and (words := last_log_line(logs / f"{name}.log")):
            lines.append(f"{name} ended {ends.count} times and logged last: {'; '.join(words)}")
    return lines


def look_at_start(
    store: ServiceStore, controls: EmulatedControls | None, overflows: Mapping[str, bool], since: float
) -> list[ModelStart]:
    """Each model as store and emulated AWS know it now. `overflows`: the models by name; `since`: service time.

    RetryLater where the store is unreachable. An emulated AWS that does not answer has no instances.
    """
    rows: Sequence[EmulatedInstance] = ()
    if controls is not None:
        with suppress(RetryLater):
            rows = controls.state()["instances"]
    found, told = [], HOSTS.read(store) or PublishedHosts()
    for name, overflows_too in overflows.items():
        members = store.membership(name).members()
        agents = Counter(member.state.value for member in members if member.role is Role.SERVING)
        hosts = {host.id for host in told.hosts if name in host.wanted}
        mine = [row for row in rows if row["tags"].get("mark:model") == name or row["id"] in hosts]
        mine = [row for row in mine if row["state"] != "terminated"]
        found.append(
            ModelStart(
                name=name,
                published=published_since(store, name, since),
                overflows=overflows_too,
                agents=agents,
                instances=mine,
            )
        )
    return found


def is_held_back(store: ServiceStore) -> bool:
    """True where a budget or a pause holds instances back. RetryLater where the store is unreachable."""
    published = BUDGET.read(store)
    return published is not None and published.limited_by is not SpendingLimit.NONE


def published_since(store: ServiceStore, model: str, since: float) -> PublishedModel | None:
    """Status that a controller published from `since` (service time) on; not one of an earlier life."""
    published = MODEL.read(store, model)
    return published if published is not None and published.at >= since else None


def is_ready(store: ServiceStore, model: str, since: float) -> bool:
    """True once all instances of the first plan from `since` on serve, those that it shares with others too."""
    try:
        published = published_since(store, model, since)
        members = store.membership(model).members()
        hosts = (HOSTS.read(store) or PublishedHosts()).hosts
    except RetryLater:
        return False
    if published is None:
        return False
    ready = sum(1 for m in members if m.state is MemberState.READY and m.role is Role.SERVING)
    return ready >= sum(published.planned.values()) + sum(model in host.wanted for host in hosts)


def is_warm(store: ServiceStore, served: ServedModel, since: float) -> bool:
    """True once the Lambda environments are warm that were ordered from `since` on, if any were."""
    try:
        published = published_since(store, served.name, since)
        versions = store.versions(served.name) if served.function_versions else None
        warmed = store.warmed(served.name, versions.stable if versions else "")
    except RetryLater:
        return False
    if published is None:
        return False
    if not any(order.kind == "warm-lambda" and order.at >= since for order in published.decisions):
        return True
    return warmed is not None and warmed.at >= since and warmed.share > 0


def last_log_line(log_file: Path) -> list[str]:
    """The end of a log that says what went wrong: its last error, or its last line. Empty where it has none."""
    try:
        with log_file.open("rb") as opened:
            opened.seek(max(0, log_file.stat().st_size - TAIL_BYTES))
            lines = opened.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    for line in reversed(lines):
        message = _error_in(line)
        if message:
            return message
    return [line[:LINE_LENGTH] for line in lines if line.strip()][-1:]


def _error_in(line: str) -> list[str]:
    """Whatever a line says of an error: the message and traceback of a logged one, or a traceback's end."""
    if not line.startswith("{"):
        name = line.partition(":")[0]
        is_raised = name.endswith(("Error", "Exception", "Misconfigured", "RetryLater")) and " " not in name
        return [line[:LINE_LENGTH]] if is_raised else []
    try:
        logged = json.loads(line)
    except ValueError:
        return []
    if logged.get("level") not in ("error", "critical") and not logged.get("error"):
        return []
    raised = [text for text in str(logged.get("error", "")).splitlines() if text.strip()][-1:]
    why = [str(logged["why"])] if logged.get("why") else []
    return [text[:LINE_LENGTH] for text in (str(logged.get("message", "")), *why, *raised)][:MOST_LINES]
