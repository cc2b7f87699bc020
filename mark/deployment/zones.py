"""Availability zones of a service: AWS is asked once, and what was chosen is kept while the service stands.

A zone's letter says little: an account may lack us-east-1b, and Tokyo has no ap-northeast-1b.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from string import ascii_lowercase

from mark.aws.account.preflight import available_zones, without_ipv6, zones_of
from mark.aws.names import name_of
from mark.aws.prices import zones_by_type
from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import FAILED_NEW, Stacks, StackTemplate
from mark.config.footprint import DEFAULT_ZONES
from mark.config.settings import Settings
from mark.deployment.checks.findings import Finding
from mark.domain.errors import Misconfigured
from mark.report.terminal import note

NETWORK, SUBNET = "network", "AWS::EC2::Subnet"
ASK = "aws ec2 describe-availability-zones"
LISTED = "`rollout.network.zones`"
IPV6_REMEDY = "add an IPv6 block and a route of ::/0 to an egress-only internet gateway, and deploy again"


def in_zones(settings: Settings, stacks: Stacks, aws: Aws) -> Settings:
    """The settings with their zones: those that are named, those where the service stands, or AWS's first.

    Misconfigured where the service stands elsewhere than the settings say.
    """
    settings = _with_way_out(settings, aws)
    network = settings.rollout.network
    standing = _standing(stacks, settings.service.name) if network.vpc is None else ()
    if network.zones:
        _refuse_moved(network.zones, standing)
        return settings
    found = zones_of(aws, network.subnets) if network.vpc else standing or chosen_zones(available_zones(aws))
    rollout = settings.rollout.model_copy(update={"network": network.model_copy(update={"zones": found})})
    return settings.model_copy(update={"rollout": rollout})


def _with_way_out(settings: Settings, aws: Aws) -> Settings:
    """The settings with public addresses, after saying so, where subnets of one's own have no IPv6."""
    network = settings.rollout.network
    lacking = without_ipv6(aws, network.subnets) if network.vpc and network.egress == "ipv6" else ()
    if not lacking:
        return settings
    note(
        f"rollout.network.egress ipv6: {', '.join(lacking)} has no IPv6 addresses, so instances get public ones; "
        f"{IPV6_REMEDY}"
    )
    changed = network.model_copy(update={"egress": "public"})
    rollout = settings.rollout.model_copy(update={"network": changed})
    return settings.model_copy(update={"rollout": rollout})


def any_zones(settings: Settings) -> Settings:
    """The settings with zones, where they name none, that the region may not have: for what only counts them."""
    network, region = settings.rollout.network, settings.service.aws.region
    count = len(network.subnets) or DEFAULT_ZONES
    zones = network.zones or tuple(f"{region}{letter}" for letter in ascii_lowercase[:count])
    rollout = settings.rollout.model_copy(update={"network": network.model_copy(update={"zones": zones})})
    return settings.model_copy(update={"rollout": rollout})


def chosen_zones(available: Sequence[str]) -> tuple[str, ...]:
    """The zones that a new service takes. Misconfigured where there are too few."""
    if len(available) < DEFAULT_ZONES:
        raise Misconfigured(
            f"this account has {', '.join(available) or 'no zones'} in the region, and a service stands in "
            f"{DEFAULT_ZONES} availability zones: take another service.aws.region"
        )
    return tuple(sorted(available)[:DEFAULT_ZONES])


def require_zones(settings: Settings) -> None:
    """Misconfigured where no zones are named: without credentials nobody can be asked."""
    if not settings.rollout.network.zones:
        region = settings.service.aws.region
        raise Misconfigured(
            f"rollout.network.zones is missing: `{ASK} --region {region}` lists your account's, write two; "
            "`mark deploy` asks by itself"
        )


def check_zones(settings: Settings, aws: Aws) -> Iterator[Finding]:
    """Check that the account has the zones that the settings name, or enough to choose from."""
    named, there = settings.rollout.network.zones, available_zones(aws)
    lacking = [zone for zone in named if zone not in there]
    listed = ", ".join(there)
    if lacking:
        detail = f"the account has no {', '.join(lacking)}; it has {listed}"
        remedy = f"write zones: [{', '.join(there[:DEFAULT_ZONES])}] as {LISTED}"
        yield Finding(check="zones", state="error", message=detail, remedy=remedy)
    elif len(there) < DEFAULT_ZONES:
        yield Finding(check="zones", state="error", message=f"only {listed}", remedy="take another region")
    else:
        yield Finding(check="zones", state="ok", message=", ".join(named or there))


def check_types_by_zone(settings: Settings, types: Collection[str], aws: Aws) -> Iterator[Finding]:
    """Check that each zone has the types that may be rented; those that no zone has are another finding."""
    named, network = settings.rollout.network.zones, settings.rollout.network
    zones = named or (zones_of(aws, network.subnets) if network.vpc else available_zones(aws)[:DEFAULT_ZONES])
    sold = zones_by_type(aws, types)
    lacking = {
        zone: [name for name, there in sorted(sold.items()) if there and zone not in there] for zone in zones
    }
    said = [f"{zone} has no {', '.join(names)}" for zone, names in lacking.items() if names]
    if said:
        remedy = f"nothing must be done: requests there cross to another zone, which AWS bills; or choose {LISTED}"
        yield Finding(check="types by zone", state="warning", message="; ".join(said), remedy=remedy)
    else:
        yield Finding(check="types by zone", state="ok", message=f"all in {', '.join(zones)}")


def check_way_out(settings: Settings, aws: Aws) -> Iterator[Finding]:
    """Check that instances have the way out that the settings name."""
    network = settings.rollout.network
    lacking = without_ipv6(aws, network.subnets) if network.vpc and network.egress == "ipv6" else ()
    if lacking:
        message = (
            f"{', '.join(lacking)} has no IPv6 addresses, so instances get public ones, 3.65 USD a month each"
        )
        yield Finding(check="egress", state="warning", message=message, remedy=IPV6_REMEDY)
    else:
        yield Finding(check="egress", state="ok", message=network.egress)


def _standing(stacks: Stacks, service: str) -> tuple[str, ...]:
    """The zones in which the service's own network has subnets, in their order; none where there is no such."""
    name = name_of(service, NETWORK)
    state = stacks.state(name)
    if state is None or state.status in (*FAILED_NEW, "REVIEW_IN_PROGRESS"):
        return ()
    return subnet_zones(stacks.template(name))


def subnet_zones(template: StackTemplate) -> tuple[str, ...]:
    """The zones of a network's subnets, in the order of their numbers."""
    found = {
        int(name.removeprefix("Subnet")): str(resource["Properties"]["AvailabilityZone"])
        for name, resource in template.get("Resources", {}).items()
        if resource["Type"] == SUBNET
    }
    return tuple(found[number] for number in sorted(found))


def _refuse_moved(named: tuple[str, ...], standing: tuple[str, ...]) -> None:
    """Misconfigured where a subnet would move: its addresses are still taken when the new one is made."""
    if named[: len(standing)] != standing:
        raise Misconfigured(
            f"rollout.network.zones cannot change while the service stands in {', '.join(standing)}: write these "
            "first, in this order, and new ones behind them"
        )
