"""Commitments of the account in a replay of a service: what each model may count, and the bill of all once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from mark.catalog.billing import gateway_count
from mark.catalog.commitment_bill import HourlyUsage, Hours, bill_commitments
from mark.domain.billing.costs import BillLine
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.applied import left_for_each
from mark.domain.commitments.eligible import running_hour
from mark.domain.commitments.owned import Commitments
from mark.domain.fleet.host_spec import SHARED
from mark.simulator.services.shared_hosts import SharedFleet

Running = Callable[[], Iterable[tuple[str, float]]]
"""Instances that are billed now: the offering of each, and its price, USD an hour."""


class OwnedService:
    """Commitments that all models of a service count on. They are taken in the order of `running`."""

    def __init__(self, owned: Commitments, running: Mapping[str, Running]) -> None:
        """owned: what stands around the fleets leaves. running: of shared instances, then by model."""
        self._owned, self._running = owned, running

    def left_for(self, model: str) -> Commitments:
        """What is left for a model now by shared instances and the models before it."""
        before = {}
        for name, running in self._running.items():
            if name == model:
                break
            before[name] = running_hour(running())
        return left_for_each(self._owned, {**before, model: ()})[model]


def running_by_name(shared: Running, models: Mapping[str, Running]) -> dict[str, Running]:
    """Shared instances first, then the models by name, as the running service counts them."""
    return {SHARED: shared, **{name: models[name] for name in sorted(models)}}


def bill_service_commitments(
    footprint: Footprint,
    used: Iterable[Hours],
    shared: SharedFleet | None,
    *,
    gateways: tuple[float, float] | None,
    since: float,
    until: float,
) -> tuple[BillLine, ...]:
    """The lines of the account's commitments; none where it has none.

    used: by each model's own instances and Lambda. shared: instances of several models. gateways: peak requests/s
    and mean MiB/s of all models that gateways serve, None where they serve none.
    """
    if not footprint.commitments:
        return ()
    found = HourlyUsage()
    if shared is not None and shared.overhead:  # the price of a managed service's instances is not AWS's
        found.add_instances(shared.usage.usages, shared.usd_per_hour)
    if gateways is not None:
        found.add_footprint(footprint, since, until, gateways=gateway_count(footprint, *gateways))
    parts = [found.hours(), *used]
    hours = {hour: list(chain.from_iterable(part.get(hour, ()) for part in parts)) for hour in set().union(*parts)}
    return bill_commitments(footprint.commitments, hours, since, until)
