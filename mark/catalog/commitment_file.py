"""The file of commitments that the account has, JSON, amounts in USD an hour.

    {"format": "mark-commitments/1",
     "share": 0.5,
     "savings_plans": [
       {"name": "compute", "kind": "compute", "usd_per_hour": 1.5, "starts": "2026-01-15", "years": 1,
        "rates": {"c5.large": 0.062}, "discounts": {"ec2": 0.27, "fargate": 0.2, "lambda": 0.12}},
       {"name": "c5", "kind": "ec2-instance", "family": "c5", "usd_per_hour": 0.8}],
     "reserved_instances": [
       {"name": "four", "instance_type": "c5.xlarge", "count": 4, "usd_per_hour": 0.107, "zone": "us-east-1a"}],
     "capacity_reservations": [{"name": "kept", "instance_type": "g5.xlarge", "count": 2, "zone": "us-east-1a"}]}

`share`: of all of them, what this service may count; 1 where it is left out. A plan's instances cost `rates`, else
what `discounts` take off, else an assumed discount. `usd_per_hour` of a reservation is what one costs, with what
was paid upfront spread over the term. `starts` is a day of UTC; without it a term has no end. Unknown keys are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from mark.catalog.schema import Entry, Name, Positive, parse_file
from mark.domain.commitments.eligible import Compute, family_of
from mark.domain.commitments.owned import (
    CapacityReservation,
    Commitments,
    OfferingClass,
    Payment,
    PlanKind,
    ReservedInstances,
    SavingsPlan,
    check_names,
)
from mark.domain.errors import MarkError, Misconfigured, file_errors

FORMAT: Literal["mark-commitments/1"] = "mark-commitments/1"
YEAR = timedelta(days=365)
"""Of a term (EC2 user guide, "Reserved Instances": 31,536,000 s)."""

NotNegative = Annotated[float, Field(ge=0)]
Discount = Annotated[float, Field(ge=0, lt=1)]


def _zone(text: str) -> str:
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d(-[a-z]+-\d)?[a-z]", text):
        raise PydanticCustomError("zone", "should be a zone's name, such as us-east-1a")
    return text


class _TermEntry(Entry):
    name: Name
    usd_per_hour: NotNegative
    payment: Payment = Payment.NO_UPFRONT
    starts: date | None = None
    years: Literal[1, 3] = 1

    @property
    def starts_at(self) -> float | None:
        """Begin of the term, epoch seconds."""
        if self.starts is None:
            return None
        return datetime(self.starts.year, self.starts.month, self.starts.day, tzinfo=UTC).timestamp()

    @property
    def ends_at(self) -> float | None:
        """End of the term, epoch seconds."""
        return None if self.starts_at is None else self.starts_at + self.years * YEAR.total_seconds()

    def fields(self) -> dict[str, Any]:
        """Fields of the domain's word for it."""
        return {**self.model_dump(exclude={"starts"}), "starts_at": self.starts_at, "ends_at": self.ends_at}


class SavingsPlanEntry(_TermEntry):
    """A Savings Plan."""

    kind: PlanKind
    family: str = ""
    region: str = ""
    rates: dict[str, Positive] = Field(default_factory=dict)
    discounts: dict[Compute, Discount] = Field(default_factory=dict)

    def to_domain(self) -> SavingsPlan:
        """The domain's word for it."""
        pairs = {"rates": tuple(sorted(self.rates.items())), "discounts": tuple(sorted(self.discounts.items()))}
        return SavingsPlan(**{**self.fields(), **pairs})


class ReservedEntry(_TermEntry):
    """Reserved Instances of one type."""

    instance_type: Name
    count: Positive
    zone: str = ""
    offering_class: OfferingClass = OfferingClass.STANDARD

    def to_domain(self) -> ReservedInstances:
        """The domain's word for it."""
        return ReservedInstances(**self.fields())


class CapacityEntry(Entry):
    """A capacity reservation; it costs what the type does on demand."""

    name: Name
    instance_type: Name
    count: Annotated[int, Field(gt=0)]
    zone: Annotated[str, AfterValidator(_zone)]

    def to_domain(self) -> CapacityReservation:
        """The domain's word for it."""
        return CapacityReservation(**self.model_dump())


class CommitmentFile(Entry):
    """All commitments of an account, and the share of them that a service may count."""

    format: Literal["mark-commitments/1"]
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    savings_plans: tuple[SavingsPlanEntry, ...] = ()
    reserved_instances: tuple[ReservedEntry, ...] = ()
    capacity_reservations: tuple[CapacityEntry, ...] = ()

    def to_domain(self) -> Commitments:
        """The part of them that the service may count."""
        found = Commitments(
            plans=tuple(entry.to_domain() for entry in self.savings_plans),
            reservations=tuple(entry.to_domain() for entry in self.reserved_instances),
            capacity_reservations=tuple(entry.to_domain() for entry in self.capacity_reservations),
        )
        check_names(found)
        kept = found.capacity_reservations  # their counts are of places that the service may use
        return replace(found.share(self.share), capacity_reservations=kept)


def file_of(owned: Commitments) -> dict[str, object]:
    """The document of a file of these commitments, without their terms: as if all held for ever."""
    plans = tuple(
        SavingsPlanEntry(**{**_entry(plan), "rates": dict(plan.rates), "discounts": dict(plan.discounts)})
        for plan in owned.plans
    )
    reservations = tuple(ReservedEntry(**_entry(item)) for item in owned.reservations)
    kept = tuple(
        CapacityEntry(name=item.name, instance_type=item.instance_type, count=int(item.count), zone=item.zone)
        for item in owned.capacity_reservations
    )
    file = CommitmentFile(
        format=FORMAT, savings_plans=plans, reserved_instances=reservations, capacity_reservations=kept
    )
    return file.model_dump(mode="json", exclude_defaults=True)


def _entry(item: SavingsPlan | ReservedInstances) -> dict[str, Any]:
    """Its fields in the file, without its term."""
    told = asdict(item)
    del told["starts_at"], told["ends_at"]
    return {**told, "years": 3 if item.years >= 3 else 1}


def load_commitments(path: Path) -> Commitments:
    """The commitments of a file, as far as the service may count them. Misconfigured, one line."""
    with file_errors(f"read the commitments {path}"):
        text = path.expanduser().read_text(encoding="utf-8")
    file = parse_file(text, CommitmentFile, str(path))
    try:
        return file.to_domain()
    except MarkError as error:
        raise Misconfigured(f"{path}: {error}") from error


def unknown_words(owned: Commitments, known: Collection[str]) -> str:
    """A sentence on names in commitments that are no known instance type or family; empty without any."""
    families = {family_of(name) for name in known}
    types = [item.instance_type for item in owned.reserved]
    types += [name for plan in owned.plans for name, _ in plan.rates]
    odd = [name for name in types if name not in known]
    odd += [plan.family for plan in owned.plans if plan.family and plan.family not in families]
    if not odd:
        return ""
    return f"the commitments name {', '.join(dict.fromkeys(odd))}, which the price table lacks; check the spelling"
