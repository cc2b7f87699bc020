"""Guardrails at the actuator: looked at once more before anything is rented or woken, whatever the plan said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from mark.controller.observed import Ec2Row
from mark.domain.offering import Offering
from mark.domain.orders import Launch

AWAKE = ("pending", "running")
"""States in which an instance costs money by the hour, or is about to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """What a service may never exceed, all its models together.

    `max_instances` counts standbys asleep; `max_usd_per_hour` what runs and boots. No `allowed_types`: any.
    """

    max_instances: int
    max_usd_per_hour: float
    allowed_types: frozenset[str] = frozenset()


class Guard:
    """The guardrails of one service, shared by the clouds of its models.

    `offerings` are those of all its models, by name. An instance of an offering that is no longer known counts
    as much as the dearest one that is.
    """

    def __init__(self, rails: Guardrails, offerings: Mapping[str, Offering]) -> None:
        self._rails = rails
        self._offerings = offerings
        self._dearest = max((item.usd_per_hour for item in offerings.values()), default=0.0)
        self._lock = Lock()
        self._there: dict[str, Ec2Row] = {}
        self._asked: dict[tuple[str, str], Launch] = {}

    def saw(self, model: str, rows: Mapping[str, Ec2Row]) -> None:
        """The instances of a model, as its last pass listed them."""
        with self._lock:
            others = {name: row for name, row in self._there.items() if row.model != model}
            self._there = others | dict(rows)

    def launched(self, rows: Mapping[str, Ec2Row]) -> None:
        """Instances rented since the last pass."""
        with self._lock:
            self._there |= rows

    def refusal(self, model: str, order: Launch) -> str | None:
        """Why the order may not be sent, or None: then it counts as launched until it is `settled`.

        What its own token launched before does not count twice.
        """
        barred = self._barred(order.offering)
        if barred is not None:
            return barred
        with self._lock:
            own = (model, order.token)
            there = [row for row in self._there.values() if (row.model, row.token) != own]
            asked = [launch for key, launch in self._asked.items() if key != own]
            why = self._excess(there, asked, order)
            if why is None:
                self._asked[own] = order
        return why

    def settled(self, model: str, order: Launch) -> None:
        """AWS has answered, or has not: what it gave was told by `launched`."""
        with self._lock:
            self._asked.pop((model, order.token), None)

    def wake_refusal(self, name: str) -> str | None:
        """Why this standby may not be woken, or None: then it counts as running until a pass lists it asleep.

        One that runs already costs no more than it does. One that no pass listed is refused.
        """
        with self._lock:
            row = self._there.get(name)
            if row is None:
                return "it is not there"
            if row.state in AWAKE:
                return None
            why = self._barred(row.offering) or self._overspent(
                self._there.values(), self._asked.values(), self._usd_per_hour(row)
            )
            if why is None:
                self._there[name] = replace(row, state="pending")
            return why

    def _barred(self, name: str) -> str | None:
        """Why nothing of this offering may run."""
        offering = self._offerings.get(name)
        if offering is None:
            return f"offering {name} is unknown"
        kind = offering.instance_type.name
        if self._rails.allowed_types and kind not in self._rails.allowed_types:
            return f"type {kind} is not allowed"
        return None

    def _excess(self, there: Sequence[Ec2Row], asked: Sequence[Launch], order: Launch) -> str | None:
        count = len(there) + sum(launch.count for launch in asked)
        if count + order.count > self._rails.max_instances:
            return f"{count} instances and {order.count} more exceed {self._rails.max_instances}"
        return self._overspent(there, asked, self._asked_usd_per_hour(order))

    def _overspent(self, there: Iterable[Ec2Row], asked: Iterable[Launch], more: float) -> str | None:
        """Why no more may be spent. more: USD an hour."""
        running = sum(self._usd_per_hour(row) for row in there if row.state in AWAKE)
        running += sum(self._asked_usd_per_hour(launch) for launch in asked)
        if running + more > self._rails.max_usd_per_hour:
            limit = self._rails.max_usd_per_hour
            return f"{running:.4f} USD an hour and {more:.4f} more exceed {limit:g}"
        return None

    def _asked_usd_per_hour(self, order: Launch) -> float:
        return order.count * self._offerings[order.offering].usd_per_hour

    def _usd_per_hour(self, row: Ec2Row) -> float:
        offering = self._offerings.get(row.offering)
        return offering.usd_per_hour if offering else self._dearest
