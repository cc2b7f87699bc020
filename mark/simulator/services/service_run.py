"""A service replayed: its models' runs under one policy, with one bill.

Each model has a fleet of its own, and some share instances. What stands around the fleets is there once, sized by
the load of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.catalog.billing import bill_shared, cost_of
from mark.domain.billing.costs import BillLine, CostUsd
from mark.domain.billing.footprint import Footprint
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import LambdaGuess
from mark.simulator.results import Ints, RunResult, ServedCounts
from mark.simulator.services.service_commitments import bill_service_commitments
from mark.simulator.services.service_replay import ServiceReplay
from mark.simulator.services.shared_instances import SharedInstance, shared_instances


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """One model of a service under a policy. cost: without what stands around all fleets.

    instances: rented and ready, in the mean over time. attained: None where nobody asked.
    """

    model: str
    slo: Slo
    served: ServedCounts
    attained: float | None
    cost: CostUsd
    instances: float
    #: Requests that shared instances took.
    on_shared: int
    mean_rps: float
    p99_s: float | None
    notes: tuple[str, ...]
    #: Its part of the rent of shared instances, by the device time that it took; not in `cost`.
    shared_usd: float = 0.0
    #: A latency is a formula, which nobody measured.
    is_assumed: bool = False
    #: Lambda where only its profile is missing; None elsewhere.
    lambda_guess: LambdaGuess | None = None

    @property
    def keeps_objective(self) -> bool:
        """At least the target share of its requests was answered in time, or too few came to tell."""
        return self.attained is None or not self.is_sure or self.attained >= self.slo.target

    @property
    def is_sure(self) -> bool:
        """Enough requests came to tell whether it keeps its objective, or far too many of the few were late."""
        finished = self.served.total - self.served.in_flight
        missed = round((1.0 - (1.0 if self.attained is None else self.attained)) * finished)
        return self.slo.can_tell(finished) or self.slo.is_missed_surely(finished, missed)

    @property
    def is_on_lambda(self) -> bool:
        """It has no instance of its own, and instances that it shares did not take most of its requests.

        So it is with a model that got no request and rented nothing.
        """
        answers = self.served.lambda_ > 0 or self.served.total == 0
        return self.instances == 0 and not self.is_shared and answers

    @property
    def is_shared(self) -> bool:
        """Instances that it shares with others took most of its requests."""
        return 2 * self.on_shared > self.served.total


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRun:
    """All models of a service under one policy.

    Parts of the bill are around_usd: what stands around all fleets, hosts_usd: instances that several models
    share, and commitments_usd: what the account's commitments cost less what they cover of all other lines.
    reference_usd: the least that serves every request at once, or None.
    """

    policy: str
    models: tuple[ModelRun, ...]
    bill: tuple[BillLine, ...]
    cost: CostUsd
    around_usd: float
    hosts_usd: float
    #: Shared instances rented, in the mean over time.
    hosts: float
    duration_s: float
    commitments_usd: float = 0.0
    reference_usd: float | None = None
    #: Those that models shared by decisions.
    shared: tuple[SharedInstance, ...] = ()

    @property
    def idle_usd(self) -> float:
        """Of `hosts_usd`, what no model took: idle time, disks and addresses."""
        return max(0.0, self.hosts_usd - sum(model.shared_usd for model in self.models))

    @property
    def keeps_objectives(self) -> bool:
        """Every model keeps its own."""
        return all(model.keeps_objective for model in self.models)

    @property
    def instances_rented(self) -> float:
        """Of all models, shared ones too, in the mean over time."""
        return self.hosts + sum(model.instances for model in self.models)


def join_runs(replayed: ServiceReplay, footprint: Footprint) -> ServiceRun:
    """The equally long runs of a service's models under one policy as one; `footprint` is the service's."""
    results = replayed.results
    (duration_s,) = {result.duration_s for result in results}
    own = [_own_lines(result, footprint) for result in results]
    gateways = [result for result in results if result.gateways is not None]
    around = _around(gateways, footprint, duration_s) if gateways else ()
    hosts = replayed.shared.bill(footprint) if replayed.shared else ()
    owned = _commitments(replayed, gateways, footprint)
    bill = (*_added(line for lines in (hosts, *own) for line in lines), *around, *owned)
    on_shared = replayed.on_shared or (0,) * len(results)
    rent = replayed.shared.rent.by_model if replayed.shared else {}
    return ServiceRun(
        policy=results[0].policy,
        models=tuple(
            replace(_model_run(*one, packed=replayed.packed), shared_usd=rent.get(one[0].model, 0.0))
            for one in zip(results, own, on_shared, strict=True)
        ),
        bill=bill,
        cost=cost_of(bill),
        around_usd=sum(line.usd for line in around),
        hosts_usd=sum(line.usd for line in hosts),
        commitments_usd=sum(line.usd for line in owned),
        hosts=replayed.shared.instances if replayed.shared else 0.0,
        duration_s=duration_s,
        shared=shared_instances(replayed.shared) if replayed.shared else (),
    )


def _own_lines(result: RunResult, footprint: Footprint) -> tuple[BillLine, ...]:
    """The lines of a run's bill that are of its model alone."""
    if result.gateways is None:
        return result.bill
    alone = bill_shared(footprint, result.load.peak_rps, result.duration_s, mib_per_s=result.load.mib_per_s)
    names = {(line.component, line.item) for line in alone}
    return tuple(line for line in result.bill if (line.component, line.item) not in names)


def _around(results: Sequence[RunResult], footprint: Footprint, duration_s: float) -> tuple[BillLine, ...]:
    """Lines around the fleets, for the load of all models together."""
    mib_per_s = sum(result.load.mib_per_s for result in results)
    return bill_shared(footprint, peak_rps(results), duration_s, mib_per_s=mib_per_s)


def _commitments(
    replayed: ServiceReplay, gateways: Sequence[RunResult], footprint: Footprint
) -> tuple[BillLine, ...]:
    """The account's commitments, which all of the service uses together."""
    first = replayed.results[0]
    mib_per_s = sum(result.load.mib_per_s for result in gateways)
    return bill_service_commitments(
        footprint,
        [result.usage for result in replayed.results],
        replayed.shared,
        gateways=(peak_rps(gateways), mib_per_s) if gateways else None,
        since=first.start_at,
        until=first.start_at + first.duration_s,
    )


def peak_rps(results: Sequence[RunResult]) -> float:
    """Arrivals of all models in the busiest second, requests/s."""
    total: Ints = np.sum([result.seconds.arrivals * result.speed for result in results], axis=0)
    return float(total.max(initial=0))


def _added(lines: Iterable[BillLine]) -> tuple[BillLine, ...]:
    """Lines of the same item as one."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    for line in lines:
        key = line.component, line.item, line.unit
        quantity, usd = found.get(key, (0.0, 0.0))
        found[key] = quantity + line.quantity, usd + line.usd
    return tuple(
        BillLine(component=component, item=item, unit=unit, quantity=quantity, usd=usd)
        for (component, item, unit), (quantity, usd) in found.items()
    )


def _model_run(result: RunResult, lines: Sequence[BillLine], on_shared: int, *, packed: bool) -> ModelRun:
    """Packed models have no instances: what is rented for them is the service's."""
    finished = result.served.total - result.served.in_flight
    answered = finished - result.served.shed
    ready = result.minutes.ready
    return ModelRun(
        model=result.model,
        slo=result.slo,
        served=result.served,
        attained=result.attained if finished else None,
        cost=cost_of(lines),
        instances=0.0 if packed or not ready.size else float(ready.sum(axis=1).mean()),
        on_shared=on_shared,
        mean_rps=result.requests * result.speed / result.duration_s,
        p99_s=result.latency.p99_s if answered else None,
        notes=result.notes,
        is_assumed=bool(result.assumed_profiles),
        lambda_guess=result.lambda_guess,
    )
