"""Commitments of an account: Savings Plans, Reserved Instances, Capacity Reservations. Paid used or not.

Prices are those of an hour with what was paid upfront spread over the term. Times are epoch seconds; None leaves a
term open at that end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain

from mark.domain.commitments.discounts import assumed_discount
from mark.domain.commitments.eligible import Compute, Usage
from mark.domain.errors import Misconfigured


class PlanKind(StrEnum):
    """The kind of a Savings Plan."""

    #: Any EC2 instance, Fargate and Lambda, in any region.
    COMPUTE = "compute"
    #: Instances of one family in one region.
    EC2_INSTANCE = "ec2-instance"


class Payment(StrEnum):
    """The part of a term that was paid when it began."""

    NO_UPFRONT = "no-upfront"
    PARTIAL_UPFRONT = "partial-upfront"
    ALL_UPFRONT = "all-upfront"


class OfferingClass(StrEnum):
    """Whether reservations can be exchanged for others during their term."""

    STANDARD = "standard"
    CONVERTIBLE = "convertible"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsPlan:
    """A commitment to use so many USD an hour, at the plan's own rates."""

    name: str
    kind: PlanKind
    usd_per_hour: float
    #: Family of instance types, such as c5; of an EC2 Instance Savings Plan alone.
    family: str = ""
    #: Region of an EC2 Instance Savings Plan; empty for the service's own.
    region: str = ""
    #: USD an hour of instance types at the plan's rates, where they are known.
    rates: tuple[tuple[str, float], ...] = ()
    #: Discount on what `rates` lack, by kind of compute; an assumed one where this lacks it, too.
    discounts: tuple[tuple[Compute, float], ...] = ()
    years: int = 1
    payment: Payment = Payment.NO_UPFRONT
    starts_at: float | None = None
    ends_at: float | None = None

    def __post_init__(self) -> None:
        _check_amount(f"the Savings Plan {self.name}", self.usd_per_hour)
        if (self.kind is PlanKind.EC2_INSTANCE) != bool(self.family):
            raise Misconfigured(
                f"the Savings Plan {self.name}: an ec2-instance plan names its family, such as c5; no other does"
            )
        for kind, discount in self.discounts:
            if not 0.0 <= discount < 1.0:
                raise Misconfigured(
                    f"the Savings Plan {self.name}: a discount is at least 0 and below 1, such as 0.27, not "
                    f"{discount:g} for {kind.value}"
                )
        for usage, rate in self.rates:
            _check_amount(f"the Savings Plan {self.name}, rate of {usage}", rate)

    def covers(self, usage: Usage) -> bool:
        """True where its terms include that usage."""
        if self.kind is PlanKind.COMPUTE:
            return True
        return usage.compute is Compute.EC2 and usage.family == self.family

    def usd_for(self, usage: Usage) -> float:
        """USD of the commitment that all of this usage takes; never above its price on demand."""
        rate = dict(self.rates).get(usage.instance_type) if usage.compute is Compute.EC2 else None
        if rate is not None:
            return min(usage.on_demand_usd, rate * usage.hours)
        return usage.on_demand_usd * (1.0 - self.discount_on(usage.compute))

    def discount_on(self, compute: Compute) -> float:
        """The discount on what has no rate of its own, in [0, 1)."""
        known = dict(self.discounts).get(compute)
        if known is not None:
            return known
        return assumed_discount(compute, years=self.years, one_family=self.kind is PlanKind.EC2_INSTANCE)

    @property
    def is_assumed(self) -> bool:
        """True where the discount on instances is assumed."""
        return not self.rates and Compute.EC2 not in dict(self.discounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedInstances:
    """Reservations of one kind."""

    name: str
    instance_type: str
    #: A part of one where a service may count only a share of them.
    count: float
    #: Cost of one, used or not.
    usd_per_hour: float
    #: Availability zone; empty for the region.
    zone: str = ""
    offering_class: OfferingClass = OfferingClass.STANDARD
    years: int = 1
    payment: Payment = Payment.NO_UPFRONT
    starts_at: float | None = None
    ends_at: float | None = None

    def __post_init__(self) -> None:
        _check_amount(f"the reservation {self.name}, its price", self.usd_per_hour)
        _check_amount(f"the reservation {self.name}, its count", self.count)
        if "." not in self.instance_type:
            raise Misconfigured(
                f"the reservation {self.name}: an instance type reads like c5.xlarge, not {self.instance_type!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReservation:
    """Instances of a type that EC2 keeps for the account in a zone: none is refused, none has a discount.

    Reserved Instances and Savings Plans cover them, used or not.
    """

    name: str
    instance_type: str
    zone: str
    #: Those that the service may use: free ones, and its own in it.
    count: float
    #: Price on demand of one (`with_prices`).
    usd_per_hour: float = 0.0
    starts_at: float | None = None
    ends_at: float | None = None

    def __post_init__(self) -> None:
        _check_amount(f"the capacity reservation {self.name}, its count", self.count)

    def is_in(self, zone: str) -> bool:
        """True for its zone by its name, or by its letter as replays have it; empty is any."""
        return self.zone.endswith(zone)


Owned = SavingsPlan | ReservedInstances | CapacityReservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitments:
    """All that may be counted for a service."""

    plans: tuple[SavingsPlan, ...] = ()
    reservations: tuple[ReservedInstances, ...] = ()
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    #: Zones that instances are spread over: nobody tells a bill which.
    zones: int = 1

    def __bool__(self) -> bool:
        return bool(self.plans or self.reservations or self.capacity_reservations)

    @property
    def usd_per_hour(self) -> float:
        """USD that they cost in each hour, used or not."""
        plans = sum(plan.usd_per_hour for plan in self.plans)
        return plans + sum(item.count * item.usd_per_hour for item in self.reserved)

    def active_at(self, at: float) -> Commitments:
        """Those whose term holds at an instant."""
        return self._where(
            lambda item: (
                (item.starts_at is None or item.starts_at <= at) and (item.ends_at is None or at < item.ends_at)
            )
        )

    def in_region(self, region: str) -> Commitments:
        """Those that may cover what runs in a region; of reservations without a zone nobody says theirs."""
        return replace(
            self,
            plans=tuple(plan for plan in self.plans if plan.region in ("", region)),
            reservations=tuple(
                item for item in self.reservations if not item.zone or item.zone.startswith(region)
            ),
            capacity_reservations=tuple(
                item for item in self.capacity_reservations if item.zone.startswith(region)
            ),
        )

    def in_zones(self, zones: Collection[str]) -> Commitments:
        """Those that may cover what runs in these zones; all where none is named."""
        held = tuple(item for item in self.reservations if not zones or item.zone in ("", *zones))
        kept = tuple(item for item in self.capacity_reservations if not zones or item.zone in zones)
        return replace(self, reservations=held, capacity_reservations=kept)

    def with_prices(self, usd_per_hour: Mapping[str, float]) -> Commitments:
        """The same, with the price on demand of what capacity reservations hold, by type."""
        return replace(
            self,
            capacity_reservations=tuple(
                replace(item, usd_per_hour=usd_per_hour.get(item.instance_type, item.usd_per_hour))
                for item in self.capacity_reservations
            ),
        )

    def share(self, share: float) -> Commitments:
        """A share of each, in (0, 1]: what others of the account use is left to them."""
        return self.with_amounts(
            {plan.name: plan.usd_per_hour * share for plan in self.plans},
            {item.name: item.count * share for item in self.reserved},
        )

    def with_amounts(self, usd_per_hour: Mapping[str, float], counts: Mapping[str, float]) -> Commitments:
        """The same with other amounts, by name; what is left with nothing is left out."""
        return replace(
            self,
            plans=tuple(
                replace(plan, usd_per_hour=usd_per_hour[plan.name])
                for plan in self.plans
                if usd_per_hour[plan.name] > 0.0
            ),
            reservations=tuple(
                replace(item, count=counts[item.name]) for item in self.reservations if counts[item.name] > 0.0
            ),
            capacity_reservations=tuple(
                replace(item, count=counts[item.name])
                for item in self.capacity_reservations
                if counts[item.name] > 0.0
            ),
        )

    def with_rates_of(self, earlier: Commitments) -> Commitments:
        """The same, with earlier rates of plans that have none: AWS tells none of one that ended."""
        rates = {plan.name: plan.rates for plan in earlier.plans}
        plans = tuple(plan if plan.rates else replace(plan, rates=rates.get(plan.name, ())) for plan in self.plans)
        return replace(self, plans=plans)

    def without_terms(self) -> Commitments:
        """The same without begin and end: for a load that is replayed as if all of it were today's."""
        return replace(
            self,
            plans=tuple(replace(plan, starts_at=None, ends_at=None) for plan in self.plans),
            reservations=tuple(replace(item, starts_at=None, ends_at=None) for item in self.reservations),
            capacity_reservations=tuple(
                replace(item, starts_at=None, ends_at=None) for item in self.capacity_reservations
            ),
        )

    @property
    def items(self) -> tuple[Owned, ...]:
        """All of them."""
        return (*self.plans, *self.reserved)

    @property
    def reserved(self) -> tuple[ReservedInstances | CapacityReservation, ...]:
        """Those of instances of a type."""
        return (*self.reservations, *self.capacity_reservations)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Names of the plans whose discount is assumed."""
        return tuple(plan.name for plan in self.plans if plan.is_assumed)

    @property
    def changes_at(self) -> tuple[float, ...]:
        """Instants at which one begins or ends, in order."""
        both = chain.from_iterable((item.starts_at, item.ends_at) for item in self.items)
        return tuple(sorted({at for at in both if at is not None}))

    def _where(self, holds: Callable[[Owned], bool]) -> Commitments:
        if not self:
            return self
        return replace(
            self,
            plans=tuple(filter(holds, self.plans)),
            reservations=tuple(filter(holds, self.reservations)),
            capacity_reservations=tuple(filter(holds, self.capacity_reservations)),
        )


NO_COMMITMENTS = Commitments()


def check_names(given: Commitments) -> None:
    """Refuse two of one name: amounts are told apart by it. Misconfigured."""
    names = [item.name for item in given.items]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Misconfigured(f"two commitments are called {twice[0]}: give each a name of its own")


def _check_amount(what: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise Misconfigured(f"{what}: an amount is at least 0, not {value:g}")
