"""Readings of a run's journal: times of launches, wakes and notices, and what its fleet used. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mark.accounting.ledger import fleet_usage
from mark.catalog.billing import Load, bill_fleet
from mark.catalog.listed import listed_usd_per_hour
from mark.controller.journal import Header, Tick
from mark.domain.billing.costs import FleetUsage, LambdaUsage, Transition
from mark.domain.billing.footprint import Footprint
from mark.domain.fleet.instances import Instance, InstanceState
from mark.domain.fleet.orders import SpotWarned
from mark.domain.offerings.offering import Market
from mark.domain.offerings.times import CloudTimes
from mark.offline.explanation.boot_times import BootTimes, Way
from scripts.real_account.table import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All of it. Times in seconds, instants of the service's clock."""

    boots: BootTimes
    #: From a spot notice until a controller's tick counts it.
    notices_s: tuple[float, ...]
    usage: FleetUsage
    began_at: float
    ended_at: float

    def times_s(self, way: Way) -> tuple[float, ...]:
        """Times of launches, or of wakes, of all offerings."""
        return tuple(one for (_, kind), found in self.boots.found.items() if kind == way for one in found)


@dataclass(slots=True)
class _Seen:
    """An instance as the last tick had it, and its price."""

    last: Instance
    usd_per_hour: float | None
    billed: bool = False
    history: list[Transition] = field(default_factory=list)


def measured(header: Header, ticks: Sequence[Tick]) -> Measured:
    """Read a journal to its end. Its first tick is the beginning of the run."""
    boots, notices = BootTimes(), dict[str, float]()
    known, standby = dict[str, _Seen](), header.policy.standby
    offered = (*header.policy.offerings, *((standby.offering,) if standby else ()))
    prices = {one.name: one.usd_per_hour for one in offered}
    for tick in ticks:
        boots.note(tick)
        for fact in tick.seen.facts:
            if isinstance(fact, SpotWarned):
                notices.setdefault(fact.instance, tick.seen.now - fact.at)
        _follow(known, tick, prices)
    ended_at = ticks[-1].seen.now if ticks else 0.0
    return Measured(
        boots=boots,
        notices_s=tuple(notices.values()),
        usage=fleet_usage((one for item in known.values() for one in item.history), ended_at),
        began_at=ticks[0].seen.now if ticks else 0.0,
        ended_at=ended_at,
    )


def _follow(known: dict[str, _Seen], tick: Tick, prices: dict[str, float]) -> None:
    """Note which instances began to be billed at this tick, and which ended."""
    now, spot = tick.seen.now, dict(tick.seen.fleet.spot_usd_per_hour)
    there = {one.id: one for one in tick.seen.fleet}
    for one in there.values():
        item = known.get(one.id)
        if item is None:
            names = (f"{one.offering}:{one.zone}", one.offering)
            price = next((some[name] for some in (spot, prices) for name in names if name in some), None)
            item = known[one.id] = _Seen(last=one, usd_per_hour=price or listed_usd_per_hour(one.offering))
            _change(item, "running", one.launched_at + CloudTimes().pending_s)
        asleep = one.state is InstanceState.STOPPED
        if asleep == item.billed:
            _change(item, "stopped" if asleep else "running", now)
        item.last = one
    for name, item in known.items():
        if name not in there and item.billed:
            _change(item, "terminated", now)


def _change(item: _Seen, state: str, at: float) -> None:
    one = item.last
    item.billed = state == "running"
    item.history.append(
        Transition(
            instance=one.id,
            model="",
            offering=one.offering,
            role=one.role,
            state=state,  # type: ignore[arg-type] # one of EC2's
            at=at,
            usd_per_hour=item.usd_per_hour,
        )
    )


def expected_usd(usage: FleetUsage, footprint: Footprint, duration_s: float) -> dict[Part, float]:
    """Expected cost of a fleet's use and of all that stood around it for so long, without Lambda."""
    found = dict.fromkeys(Part, 0.0)
    lines = bill_fleet(
        usage,
        {},
        (),
        overflow=None,
        lambda_usage=LambdaUsage(requests=0, cold_starts=0, gib_s=0.0),
        footprint=footprint,
        load=Load(duration_s=duration_s),
    )
    for line in lines:
        if line.component == "overhead":
            part = Part.ON_DEMAND if line.item == footprint.gateways.name else Part.ELSE
        else:
            is_spot = line.item.partition(":")[2].startswith(Market.SPOT.value)
            part = Part.SPOT if is_spot else Part.ON_DEMAND
        found[part] += line.usd
    return found
