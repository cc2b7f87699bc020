"""Guardrails: a check against the inventory before anything is rented or woken, whatever the plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from mark.aws.ec2.observed import Ec2Row
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import Offering, SpotPrice, current_usd_per_hour
from mark.domain.plans.service_cap import EXACT, NOTHING, ServiceCap, Takes, takes_of

AWAKE = ("pending", "running")
"""States in which an instance costs money by the hour, or is about to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """Limits that a service never exceeds, all its models together.

    `max_instances` counts standbys asleep; the others what runs and boots.
    """

    max_instances: int
    max_usd_per_hour: float = math.inf
    max_vcpus: float = math.inf
    max_gpus: float = math.inf

    @property
    def cap(self) -> ServiceCap:
        """The limits of what runs and boots."""
        return ServiceCap(usd_per_hour=self.max_usd_per_hour, vcpus=self.max_vcpus, gpus=self.max_gpus)


class Guard:
    """The guardrails of one service, shared by the clouds of its models.

    `offerings` are those of all its models, by name. An instance of an offering that is no longer known counts
    as much as the dearest one that is. Spot instances count at the prices of now (`update_prices`).
    """

    def __init__(self, rails: Guardrails, offerings: Mapping[str, Offering]) -> None:
        self._rails, self._cap = rails, rails.cap
        self._offerings = offerings
        self._spot: Mapping[str, SpotPrice] = {}
        self._lock = Lock()
        self._inventory: dict[str, Ec2Row] = {}
        self._reserved: dict[tuple[str, str], Launch] = {}

    def update_inventory(self, model: str, rows: Mapping[str, Ec2Row]) -> None:
        """Replace the inventory of a model: by what is listed, and what is too young to be."""
        with self._lock:
            others = {name: row for name, row in self._inventory.items() if row.model != model}
            self._inventory = others | dict(rows)

    def update_prices(self, spot: Mapping[str, SpotPrice]) -> None:
        """Replace the prices of these spot offerings, by name. Until they are known, list prices count."""
        with self._lock:
            self._spot = {**self._spot, **spot}

    def launched(self, rows: Mapping[str, Ec2Row]) -> None:
        """Add instances that were rented since the last listing."""
        with self._lock:
            self._inventory |= rows

    def forbidden_reason(self, name: str) -> str | None:
        """The limit that forbids even one instance of an offering; None where it may run."""
        offering = self._offerings.get(name)
        if offering is None:
            return f"offering {name} is unknown"
        one, limits = self._takes_one(offering), self._cap.limits
        if one.usd_per_hour > limits.usd_per_hour:
            return f"one costs {one.usd_per_hour:.4f} USD an hour, the limit is {limits.usd_per_hour:g}"
        if self._cap.holds(one):
            return None
        return f"one has {one.vcpus:g} vCPUs and {one.gpus:g} GPUs, the limit is {self._cap.words}"

    def reserve(self, model: str, order: Launch) -> tuple[int, str | None]:
        """Reserve what an order may launch: the count, and why not all. It counts until the order's `release`.

        No limit forbids its offering (`forbidden_reason`). What its token launched before does not count twice.
        """
        with self._lock:
            own = (model, order.token)
            there = [row for row in self._inventory.values() if (row.model, row.token) != own]
            asked = [launch for key, launch in self._reserved.items() if key != own]
            count, why = self._fitting(there, asked, order)
            self._reserved[own] = replace(order, count=count)
        return count, why

    def release(self, model: str, order: Launch) -> None:
        """End an order's reservation once AWS has answered, or has not; `launched` has added what it gave."""
        with self._lock:
            self._reserved.pop((model, order.token), None)

    def reserve_wake(self, name: str) -> str | None:
        """Count a standby as running until a pass lists it asleep; or the reason why it may not be woken.

        One that runs already costs no more than it does. One that no pass listed is refused.
        """
        with self._lock:
            row = self._inventory.get(name)
            if row is None:
                return "it is not there"
            if row.state in AWAKE:
                return None
            why = self.forbidden_reason(row.offering)
            running = self._running(self._inventory.values(), self._reserved.values())
            more = self._takes(row)
            if why is None and not self._cap.holds(running.plus(more)):
                why = self._excess(running, more)
            if why is None:
                self._inventory[name] = replace(row, state="pending")
            return why

    def release_wakes(self, rows: Mapping[str, Ec2Row]) -> None:
        """End the reservation of standbys that AWS did not start: they are as they were listed."""
        with self._lock:
            self._inventory |= {name: row for name, row in rows.items() if name in self._inventory}

    def _fitting(self, there: Sequence[Ec2Row], asked: Sequence[Launch], order: Launch) -> tuple[int, str | None]:
        """The instances of an order that fit beside inventory and reservations, and why not all."""
        count, most = len(there) + sum(launch.count for launch in asked), self._rails.max_instances
        running, one = self._running(there, asked), self._largest_of(order)
        roomy = max(0, min(order.count, most - count))
        paid = self._cap.fitting(one, order.count, running)
        if min(roomy, paid) == order.count:
            return order.count, None
        if roomy <= paid:
            return roomy, f"{count} instances and {order.count} more exceed {most}"
        return paid, self._excess(running, NOTHING.plus(one, order.count))

    def _excess(self, running: Takes, more: Takes) -> str:
        """The refusal of so much more beside what runs: the first limit that it would exceed."""
        limits, total = self._cap.limits, running.plus(more)
        if total.usd_per_hour > limits.usd_per_hour * (1.0 + EXACT):
            spent, asked, limit = running.usd_per_hour, more.usd_per_hour, limits.usd_per_hour
            return f"{spent:.4f} USD an hour and {asked:.4f} more exceed {limit:g}"
        if total.vcpus > limits.vcpus:
            return f"{running.vcpus:g} vCPUs and {more.vcpus:g} more exceed {limits.vcpus:g}"
        return f"{running.gpus:g} GPUs and {more.gpus:g} more exceed {limits.gpus:g}"

    def _running(self, there: Iterable[Ec2Row], asked: Iterable[Launch]) -> Takes:
        """What runs, boots and is reserved."""
        total = NOTHING
        for row in there:
            total = total.plus(self._takes(row)) if row.state in AWAKE else total
        for launch in asked:
            total = total.plus(self._largest_of(launch), launch.count)
        return total

    def _largest_of(self, order: Launch) -> Takes:
        """The most of each limit that one instance may take of what an order may bring."""
        return self._largest(self._offerings[name] for name in order.offerings)

    def _largest(self, offerings: Iterable[Offering]) -> Takes:
        most = NOTHING
        for offering in offerings:
            most = most.largest(self._takes_one(offering))
        return most

    def _takes_one(self, offering: Offering) -> Takes:
        """What one more takes, in whichever zone it comes."""
        return takes_of(offering.at_price(self._price(offering)))

    def _price(self, offering: Offering) -> float:
        """The price of one more, in whichever zone it comes, USD an hour."""
        return current_usd_per_hour(offering, "", self._spot)

    def _takes(self, row: Ec2Row) -> Takes:
        offering = self._offerings.get(row.offering)
        if offering is None:
            return self._largest(self._offerings.values())
        return takes_of(offering.at_price(current_usd_per_hour(offering, row.zone, self._spot)))
