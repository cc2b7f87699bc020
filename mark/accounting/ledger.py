"""The bill of a live fleet, from the transitions that AWS reported. Pure.

A stretch is billed from `running` to the next state that is not: EC2 bills neither pending nor stopping instances.
Transitions may come late, twice and out of order; only their instants count.

A stretch is billed at the price that was written down when it began, on spot that of its zone: an offering may
have become dearer since, or be none of the service's any more. Where none was written it is the offering's of
today, else the catalogue's; what is in neither is `unpriced`: it is named, and stands on no bill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mark.accounting.hourly_totals import Totals
from mark.catalog.billing import Load, bill_fleet
from mark.catalog.listed import listed_usd_per_hour
from mark.domain.billing.costs import BillLine, FleetUsage, InstanceUsage, LambdaUsage, Transition
from mark.domain.billing.footprint import Footprint
from mark.domain.fleet.instances import Role
from mark.domain.load.traffic import ModelTraffic
from mark.service_spec import ServedModel

_ORDER = {"pending": 0, "running": 1, "stopping": 2, "stopped": 3, "shutting-down": 4, "terminated": 5}
"""States that an instance may enter at one instant, in their order."""
SECONDS_PER_HOUR = 3600.0


def fleet_usage(transitions: Iterable[Transition], now: float) -> FleetUsage:
    """Usage by `now`; what still runs or sleeps is counted to then."""
    by_instance: dict[str, set[Transition]] = defaultdict(set)
    for transition in transitions:
        if transition.at <= now:
            by_instance[transition.instance].add(transition)
    usages: list[InstanceUsage] = []
    asleep_s = 0.0
    for name in sorted(by_instance):
        ordered = in_order(by_instance[name])
        stretches, naps = stretches_of(ordered, now)
        usages.extend(stretches)
        asleep_s += sum(end - start for start, end in naps)
    running_s = sum(usage.ended_at - usage.started_at for usage in usages)
    return FleetUsage(usages=tuple(usages), asleep_s=asleep_s, running_s=running_s)


BilledAs = tuple[Role, str, float | None, str]
"""Role, offering, the price that was recorded, and the version."""


def usages_of(
    billed: Mapping[BilledAs, int], surplus_vcpu_s: Mapping[BilledAs, float]
) -> tuple[InstanceUsage, ...]:
    """Seconds that were billed, as one stretch for each role, offering, price and version."""
    return tuple(
        InstanceUsage(
            instance="over",
            offering=offering,
            role=role,
            started_at=-float(seconds),
            ended_at=0.0,
            surplus_vcpu_s=surplus_vcpu_s.get((role, offering, usd_per_hour, version), 0.0),
            usd_per_hour=usd_per_hour,
            version=version,
        )
        for (role, offering, usd_per_hour, version), seconds in sorted(
            billed.items(), key=lambda item: billing_order(item[0])
        )
        if seconds > 0
    )


def billing_order(billed_as: BilledAs) -> tuple[str, str, float, str]:
    """The sorting key of what is billed alike; no price comes first."""
    role, offering, usd_per_hour, version = billed_as
    return role.value, offering, -1.0 if usd_per_hour is None else usd_per_hour, version


def joined(usage: FleetUsage, earlier: FleetUsage) -> FleetUsage:
    """Both together."""
    return FleetUsage(
        usages=(*earlier.usages, *usage.usages),
        asleep_s=earlier.asleep_s + usage.asleep_s,
        running_s=earlier.running_s + usage.running_s,
    )


def usage_before(transitions: Iterable[Transition], at: float) -> FleetUsage:
    """Usage by `at` of what had happened before; what begins right then is not there yet."""
    return fleet_usage((item for item in transitions if item.at < at), at)


def running_now(usage: FleetUsage, now: float) -> list[InstanceUsage]:
    """Instances billed at `now`, up to which `usage` was counted, by offering and instance."""
    running = (item for item in usage.usages if item.ended_at == now)
    return sorted(running, key=lambda item: (item.offering, item.instance))


def offered_usd_per_hour(served: ServedModel, usages: Iterable[InstanceUsage]) -> dict[str, float]:
    """Prices by offering: of what is offered today, and by the catalogue of what was where none was recorded."""
    prices = {offering.name: offering.usd_per_hour for offering in served.offerings}
    for item in usages:
        if item.usd_per_hour is None and item.offering not in prices:
            listed = listed_usd_per_hour(item.offering)
            if listed is not None:
                prices[item.offering] = listed
    return prices


def unpriced(served: ServedModel, usages: Sequence[InstanceUsage]) -> tuple[str, ...]:
    """Offerings that were used and have no price."""
    prices = offered_usd_per_hour(served, usages)
    return tuple(sorted({u.offering for u in usages if u.usd_per_hour is None and u.offering not in prices}))


def unpriced_words(names: Sequence[str]) -> str:
    """The note on `unpriced` offerings in a status, a log or a report."""
    return f"{', '.join(names)}: no longer offered and in no price list; no sum holds what they cost"


def live_bill(
    usage: FleetUsage,
    traffic: ModelTraffic,
    served: ServedModel,
    footprint: Footprint | None,
    *,
    requests: int,
    peak_rps: float,
    duration_s: float,
    crossed: int | None = None,
) -> tuple[BillLine, ...]:
    """The lines of a bill, in the words of a replay's.

    Lambda's GiB seconds, `requests` and `crossed`, as `crossed_requests` has it, are on the service's clock: each
    counts for as many as it is fast. What is `unpriced` is left out.
    """
    prices = offered_usd_per_hour(served, usage.usages)
    priced = [item for item in usage.usages if item.usd_per_hour is not None or item.offering in prices]
    return bill_fleet(
        replace(usage, usages=tuple(priced)),
        prices,
        served.offerings,
        overflow=served.overflow,
        lambda_usage=LambdaUsage(requests=round(traffic.billed), cold_starts=traffic.cold, gib_s=traffic.gib_s),
        footprint=footprint,
        load=Load(
            duration_s=duration_s,
            peak_rps=peak_rps,
            requests=requests,
            lambda_requests=round(traffic.billed),
            payload_mib=served.model.payload_mib,
            crossed=crossed,
        ),
    )


def crossed_requests(requests: float, counted: Totals | ModelTraffic, footprint: Footprint | None) -> int | None:
    """Of `requests`, those that crossed to an instance in another zone; None where no gateway knew its zone.

    What came in at gateways that knew none, as those of an earlier version, went to any zone.
    """
    if footprint is None or counted.zoned <= 0:
        return None
    unknown = max(0.0, counted.finished - counted.zoned)
    anywhere = unknown * (footprint.zones - 1) / footprint.zones
    return round(requests * (counted.crossed + anywhere) / (counted.zoned + unknown))


def rent_usd_per_hour(served: ServedModel, running: Sequence[InstanceUsage]) -> float:
    """The price of the instances that run now, USD an hour."""
    prices = offered_usd_per_hour(served, running)
    return sum(prices.get(u.offering, 0.0) if u.usd_per_hour is None else u.usd_per_hour for u in running)


def in_order(transitions: Iterable[Transition]) -> list[Transition]:
    """One instance's transitions as they followed each other."""
    return sorted(
        transitions, key=lambda transition: (transition.at, _ORDER[transition.state], transition.is_reading)
    )


def stretches_of(
    ordered: Sequence[Transition], now: float
) -> tuple[list[InstanceUsage], list[tuple[float, float]]]:
    """One instance's stretches in state running, and from when to when it slept. ordered: `in_order`.

    A stretch used as much beyond its credits as the largest reading in it says: an agent that begins anew counts
    from zero again, and what it used before it read is not billed.
    """
    usages: list[InstanceUsage] = []
    began: Transition | None = None
    surplus_vcpu_s = 0.0
    asleep_at: float | None = None
    naps: list[tuple[float, float]] = []
    for item in ordered:
        if item.surplus_vcpu_s is not None:
            surplus_vcpu_s = max(surplus_vcpu_s, item.surplus_vcpu_s) if began else 0.0
            continue
        if item.state == "running":
            began = began or item
        elif began is not None and item.state != "pending":
            usages.append(_usage(began, item.at, surplus_vcpu_s))
            began, surplus_vcpu_s = None, 0.0
        if item.state == "stopped" and asleep_at is None:
            asleep_at = item.at
        elif item.state in ("pending", "running", "shutting-down", "terminated") and asleep_at is not None:
            naps.append((asleep_at, item.at))
            asleep_at = None
    if began is not None:
        usages.append(_usage(began, now, surplus_vcpu_s))
    if asleep_at is not None:
        naps.append((asleep_at, now))
    return usages, naps


def _usage(began: Transition, ended_at: float, surplus_vcpu_s: float) -> InstanceUsage:
    return InstanceUsage(
        instance=began.instance,
        offering=began.offering,
        role=began.role,
        started_at=began.at,
        ended_at=ended_at,
        surplus_vcpu_s=surplus_vcpu_s,
        usd_per_hour=began.usd_per_hour,
        version=began.version,
    )
