"""The floor of a service: the serving cost below which no replay stays in which every model keeps its objective.

It is the sum of its models' floors (`mark.planner.yardsticks`), in which launches of instances are free for a
model that may share. That holds whoever shares what:

- a device runs one batch at a time, so the shares of its time that its tenants take add up to 1 at most: the rent
  of a shared instance is no less than that of the fractions which its tenants' floors rent;
- a launch may be for several models, or a device's time may pass from one to another without any: it is no model's
  own, so it is left out where instances may be shared;
- standbys and Lambda are each model's own; credited starts are the account's, and each floor may use all of them.

It does not hold for pods and copies of a model on parts of instances (`kubernetes-packed` and the like), whose
times are not measured but follow from those of whole instances, and may come out cheaper.

It knows no whole instances: many small models on one instance pay for their share of its time, not for its idle
time. So it lies far below the cost of a service whose instances are mostly idle. What runs are measured by is the
reference, in whole instances (`mark.planner.shared.whole_reference`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mark.domain.offerings.offering import Offering
from mark.planner.shared.whole_reference import whole_reference_usd
from mark.planner.yardsticks import YardstickInput, floor_usd, reference_usd
from mark.simulator.experiment import feasible_usd
from mark.simulator.services.service_replay import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBound:
    """One model's part, USD of serving; None where no fleet could serve its load.

    floor_usd: its part of the service's floor. reference_usd: of a fleet of its own, which may be of fractions.
    """

    model: str
    requests: int
    may_share: bool
    floor_usd: float | None
    reference_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBound:
    """The floor of a service by its models.

    reference_usd: every request served at once, in whole instances that models share; None where one cannot be.
    """

    models: tuple[ModelBound, ...]
    reference_usd: float | None

    @property
    def floor_usd(self) -> float | None:
        """No run in which every model keeps its objective costs less; None where one cannot be served."""
        return _sum([model.floor_usd for model in self.models])

    @property
    def apart_usd(self) -> float | None:
        """Every request served at once, by fleets that share nothing."""
        return _sum([model.reference_usd for model in self.models])


def service_bound(
    members: Sequence[Member], progress: Callable[[str, float], None] = lambda _doing, _share: None
) -> ServiceBound:
    """The bound of a service's loads. `progress` is told the model and the share of all that is done."""
    sharing, found = _sharing(members), []
    for place, member in enumerate(members):
        model = member.experiment
        name = model.spec.model.name
        progress(f"computing reference and floor of {name}", place / len(members))
        shares, given = name in sharing, model.yardstick_input
        beside = replace(given, offerings=_free(given.offerings), fallbacks=_free(given.fallbacks))
        found.append(
            ModelBound(
                model=name,
                requests=int(given.arrivals.sum()),
                may_share=shares,
                floor_usd=feasible_usd(floor_usd, beside if shares else given),
                reference_usd=feasible_usd(reference_usd, given),
            )
        )
    progress("computing the reference of all", 1.0)
    return ServiceBound(models=tuple(found), reference_usd=service_reference_usd(members))


def service_reference_usd(members: Sequence[Member]) -> float | None:
    """The service's reference, USD: whole instances that models share; None where a request cannot be served."""
    sharing = _sharing(members)
    groups: dict[tuple[str, str], list[YardstickInput]] = {}
    for member in members:
        name = member.experiment.spec.model.name
        group = member.team, "" if name in sharing else name
        groups.setdefault(group, []).append(member.experiment.yardstick_input)
    return _sum([feasible_usd(whole_reference_usd, group) for group in groups.values()])


def _sharing(members: Sequence[Member]) -> frozenset[str]:
    """Models that have another to share with."""
    teams = Counter(member.team for member in members if member.shares)
    return frozenset(
        member.experiment.spec.model.name for member in members if member.shares and teams[member.team] > 1
    )


def _free(offerings: Sequence[Offering]) -> tuple[Offering, ...]:
    """The same, with launches that cost nothing."""
    return tuple(replace(item, launch_usd=0.0) for item in offerings)


def _sum(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None
