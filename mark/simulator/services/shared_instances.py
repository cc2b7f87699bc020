"""The shared instances of a run, each from its start to its end: what it cost, and who sat on it when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mark.catalog.billing import SECONDS_PER_HOUR, bill_instances
from mark.controller.hosts.placement_journal import PlacementStep, placement_steps
from mark.domain.billing.costs import InstanceUsage
from mark.domain.fleet.orders import Drain
from mark.simulator.services.shared_hosts import SharedFleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One model on an instance, as it was ordered. In seconds after the start of the run."""

    model: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedInstance:
    """One shared instance while it was billed. In seconds after the start of the run."""

    name: str
    offering: str
    from_s: float
    to_s: float
    #: Rent.
    usd: float
    #: Share of its time that its tenants were expected to take, in the mean.
    busy: float
    stays: tuple[Stay, ...]

    @property
    def hours(self) -> float:
        """How long it was billed."""
        return (self.to_s - self.from_s) / SECONDS_PER_HOUR


def shared_instances(fleet: SharedFleet) -> tuple[SharedInstance, ...]:
    """Those that a run shared by decisions, in the order of their launches; none where they are nodes."""
    steps = tuple(placement_steps(fleet.decisions))
    if not steps:
        return ()
    start_at = steps[0].decision.at
    prices = {name: offering.usd_per_hour for name, offering in fleet.offerings.items()}
    usages = sorted(fleet.usage.usages, key=lambda usage: usage.instance)
    return tuple(
        SharedInstance(
            name=usage.instance,
            offering=usage.offering,
            from_s=usage.started_at - start_at,
            to_s=usage.ended_at - start_at,
            usd=sum(line.usd for line in bill_instances([usage], prices)),
            busy=_busy(usage, steps),
            stays=tuple(_stays(usage, steps, start_at)),
        )
        for usage in usages
    )


def _busy(usage: InstanceUsage, steps: Sequence[PlacementStep]) -> float:
    """Mean over its time of what each decision expected."""
    ends = [*(step.decision.at for step in steps[1:]), usage.ended_at]
    busy_s = 0.0
    for step, end in zip(steps, ends, strict=True):
        seconds = min(end, usage.ended_at) - max(step.decision.at, usage.started_at)
        expected = (host.busy for host in step.decision.hosts if host.name == usage.instance)
        busy_s += max(0.0, seconds) * next(expected, 0.0)
    return busy_s / max(usage.ended_at - usage.started_at, 1e-9)


def _stays(usage: InstanceUsage, steps: Sequence[PlacementStep], start_at: float) -> Iterator[Stay]:
    """By their start and model. A model is there until it is evicted, or the instance ends."""
    since: dict[str, float] = {}
    for step in steps:
        at, held = step.decision.at, step.after.get(usage.instance)
        if held is None and not _is_drained(step, usage.instance):  # not there yet, or lost: it ends by itself
            continue
        models = {tenant.model for tenant in held or ()}
        for model in sorted(since.keys() - models):
            yield from _stay(usage, model, since.pop(model), at, start_at)
        since |= dict.fromkeys(sorted(models - since.keys()), at)
    for model, at in sorted(since.items()):
        yield from _stay(usage, model, at, usage.ended_at, start_at)


def _stay(usage: InstanceUsage, model: str, begin: float, end: float, start_at: float) -> Iterator[Stay]:
    """The part of it in which the instance was billed."""
    begin, end = max(begin, usage.started_at), min(end, usage.ended_at)
    if begin < end:
        yield Stay(model=model, from_s=begin - start_at, to_s=end - start_at)


def _is_drained(step: PlacementStep, name: str) -> bool:
    return any(isinstance(order, Drain) and name in order.instances for order in step.decision.orders)
