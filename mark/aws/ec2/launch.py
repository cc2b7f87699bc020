"""Instances on the wire: tags, EC2 Fleet requests and their answers, rows of DescribeInstances (pure)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from mark.aws.ec2.observed import Ec2Row
from mark.aws.ec2.tags import (
    MODEL,
    MODEL_VERSION,
    OFFERING,
    OWNER,
    ROLE,
    RUN,
    SERVICE,
    TOKEN,
    VERSION,
)
from mark.aws.errors import cause_of, code_of
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import Launch, LaunchRefused, RefusalCause, StartStandby
from mark.domain.offerings.offering import Market, Offering, of_type

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import (
        CreateFleetErrorTypeDef,
        CreateFleetInstanceTypeDef,
        CreateFleetRequestTypeDef,
        CreateFleetResultTypeDef,
        FleetLaunchTemplateOverridesTypeDef,
        InstanceTypeDef,
    )

TAGGED = ("fleet", "instance", "volume")
"""Resources that a launch makes and tags: its permission hangs on the tags (`aws/permissions/policies.py`)."""
NOT_SOLD = "InvalidFleetConfiguration"
"""EC2 Fleet's code for a type that is not sold in the zone of the override (aws/karpenter-provider-aws #6483)."""
RESERVED_FIRST = "use-capacity-reservations-first"
LIVE = ["pending", "running", "stopping", "stopped"]
"""States of instances that are not gone."""
UNLISTED_LIMIT_S = 120.0
"""After so long AWS lists what it launched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSetup:
    """The ingredients of a model's fleet, and the time-outs of its cloud, in seconds of service time.

    `run` names this life of the service: tokens of an earlier one mean nothing to it. `offerings`: by name.
    `templates`: the launch template of each role and kind of machine.
    `version` names what agents run (`RolloutSettings.agent_version`): instances bear it, and one that bears
    another is outdated. `owner` answers for what is rented, as its tag says; `tags` are the owner's own.
    `subnets`: (zone, subnet), none for the default network.
    Ended are instances that drain for `drain_limit_s` or have been running without a ready agent for
    `silent_limit_s`, or whose agent was heard and then not for `lost_limit_s`. An order that could not be sent is
    sent again for `resend_limit_s`, less than a controller waits for its launches. A listing that cannot be
    renewed is believed for `stale_limit_s`. What AWS said it launched is there until it was listed, and is gone
    where no listing has it after `unlisted_limit_s`: EC2 is eventually consistent.
    """

    service: str
    model: str
    run: str
    offerings: Mapping[str, Offering]
    templates: Mapping[tuple[Role, str], str]
    version: str = ""
    owner: str = "mark"
    tags: Mapping[str, str] = field(default_factory=dict)
    subnets: tuple[tuple[str, str], ...] = ()
    drain_limit_s: float = 600.0
    silent_limit_s: float = 1800.0
    lost_limit_s: float = 300.0
    resend_limit_s: float = 600.0
    stale_limit_s: float = 120.0
    unlisted_limit_s: float = UNLISTED_LIMIT_S

    def template(self, role: Role, offering: Offering) -> str:
        """The launch template that instances of an offering start from in a role.

        Misconfigured where none is made: no other kind's will do, its image has another processor, or no driver.
        """
        machine = offering.instance_type.machine
        try:
            return self.templates[role, machine]
        except KeyError:
            raise Misconfigured(
                f"no launch template of {self.service} is for {machine}, which {offering.name} needs: declare it "
                "in rollout.machines and deploy"
            ) from None


def client_token(setup: FleetSetup, token: str) -> str:
    """EC2's idempotency token of an order: the same order of the same run is the same launch (64 characters)."""
    words = "\0".join((setup.service, setup.model, setup.run, token))
    return hashlib.sha256(words.encode()).hexdigest()


def tags_of(setup: FleetSetup, order: Launch) -> dict[str, str]:
    """The tags by which an instance knows itself and is found again."""
    return {
        **setup.tags,
        SERVICE: setup.service,
        OWNER: setup.owner,
        MODEL: setup.model,
        OFFERING: order.offering,
        ROLE: order.role.value,
        TOKEN: order.token,
        RUN: setup.run,
        VERSION: setup.version,
        **({MODEL_VERSION: order.version} if order.version else {}),
    }


def fleet_request(setup: FleetSetup, order: Launch) -> CreateFleetRequestTypeDef:
    """The CreateFleet call of an order: type instant, so that its answer says what was had and what was not.

    Nothing in it depends on the time: the same token with other parameters would be refused.
    """
    named = [setup.offerings[name] for name in order.offerings]
    offering = named[0]
    spot = offering.market is Market.SPOT
    tags = [{"Key": key, "Value": value} for key, value in tags_of(setup, order).items()]
    request: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": client_token(setup, order.token),
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": setup.template(order.role, offering),
                    "Version": "$Latest",
                },
                "Overrides": [override for item in named for override in _overrides(setup, order, item)],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": order.count,
            "OnDemandTargetCapacity": 0 if spot else order.count,
            "SpotTargetCapacity": order.count if spot else 0,
            "DefaultTargetCapacityType": offering.market.value,
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in TAGGED],
    }
    if not spot:  # capacity that the account has reserved is paid for already
        request["OnDemandOptions"] = {"CapacityReservationOptions": {"UsageStrategy": RESERVED_FIRST}}
    if spot:
        request["SpotOptions"] = {
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
        }
    return cast("CreateFleetRequestTypeDef", request)  # the stubs spell every instance type out


def _overrides(setup: FleetSetup, order: Launch, offering: Offering) -> list[dict[str, str]]:
    """The offering's type in each subnet that it may stand in and that the order does not leave out."""
    kind, zone = offering.instance_type.name, offering.zone
    if places := _places(setup, order, offering):
        return [{"InstanceType": kind, "SubnetId": subnet} for _, subnet in places]
    return [{"InstanceType": kind}] if zone == "any" else [{"InstanceType": kind, "AvailabilityZone": zone}]


def _places(setup: FleetSetup, order: Launch, offering: Offering) -> list[tuple[str, str]]:
    """Zones and subnets in which an order asks for an offering."""
    out = order.zones_without(offering.name)
    return [place for place in setup.subnets if offering.zone in ("any", place[0]) and place[0] not in out]


def launched_rows(
    setup: FleetSetup, order: Launch, reply: CreateFleetResultTypeDef, now: float
) -> dict[str, Ec2Row]:
    """The instances that an EC2 Fleet answer names, as pending rows."""
    return {
        name: Ec2Row(
            id=name,
            model=setup.model,
            offering=of_type(order.offering, group.get("InstanceType", "")),
            role=order.role,
            token=order.token,
            state="pending",
            launched_at=now,
            zone=_zone(setup, group) or "",
            version=order.version,
        )
        for group in reply.get("Instances", [])
        for name in group.get("InstanceIds", [])
    }


def shortfall(
    setup: FleetSetup, order: Launch, reply: CreateFleetResultTypeDef, now: float
) -> list[LaunchRefused]:
    """The refusals in an answer: a fact for each code, type and zone, all that is lacking in the first."""
    had = sum(len(group.get("InstanceIds", [])) for group in reply.get("Instances", []))
    if had >= order.count:
        return []
    told = {
        (
            error.get("ErrorCode", ""),
            of_type(order.offering, _override(error).get("InstanceType", "")),
            _zone(setup, error),
        )
        for error in reply.get("Errors", [])
    } or {("", order.offering, None)}
    ordered = sorted(
        told, key=lambda item: (not item[0], item[0], item[1] != order.offering, item[1], item[2] or "")
    )
    counts = (order.count - had, *(0 for _ in ordered[1:]))
    return [
        replace(refused(order, _cause(code, zone), now, code=code, count=count), offering=offering, zone=zone)
        for (code, offering, zone), count in zip(ordered, counts, strict=True)
    ]


def unfilled(setup: FleetSetup, order: Launch, lacking: int, now: float) -> list[LaunchRefused]:
    """The refusals of an order to which EC2 answered nothing: a fact for each zone that it asked for its offering.

    Which of them refused is not known: DescribeFleets tells an instant fleet's errors by its id, and AWS does not
    promise that a repeated order names the first one's fleet. But zones that the order left out were not asked.
    Its equivalents may not have been tried, so they stay: the next order hears.
    """
    offering = setup.offerings[order.offering]
    asked = dict.fromkeys(zone for zone, _ in _places(setup, order, offering))
    zones = tuple(asked) or (None if offering.zone == "any" else offering.zone,)
    return [
        replace(refused(order, RefusalCause.CAPACITY, now, count=0 if index else lacking), zone=zone)
        for index, zone in enumerate(zones)
    ]


def _cause(code: str, zone: str | None) -> RefusalCause:
    """The cause of an error in an answer; a zone that does not sell the type says nothing of the others."""
    return RefusalCause.CAPACITY if zone and code == NOT_SOLD else cause_of(code)


def _override(
    part: CreateFleetErrorTypeDef | CreateFleetInstanceTypeDef,
) -> FleetLaunchTemplateOverridesTypeDef:
    """The override that a launch or an error in the answer is of; empty where it names none."""
    return part.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})


def _zone(setup: FleetSetup, part: CreateFleetErrorTypeDef | CreateFleetInstanceTypeDef) -> str | None:
    """The zone of a launch or an error in the answer; None where it names none."""
    override = _override(part)
    zones = {subnet: zone for zone, subnet in setup.subnets}
    return override.get("AvailabilityZone") or zones.get(override.get("SubnetId", ""))


def refused(
    order: Launch,
    cause: RefusalCause,
    now: float,
    *,
    code: str = "",
    detail: str = "",
    count: int | None = None,
) -> LaunchRefused:
    """The fact that `count` instances of an order (all of them by default) cannot be had."""
    count = order.count if count is None else count
    return LaunchRefused(
        token=order.token, offering=order.offering, count=count, cause=cause, code=code, detail=detail, at=now
    )


def wakes_held_back(
    order: StartStandby, whys: Mapping[str, str], rows: Mapping[str, Ec2Row], now: float
) -> list[LaunchRefused]:
    """The facts that guardrails let these standbys sleep, one for each offering: it cannot be had now.

    What is not there any more is missed by nobody.
    """
    slept = [(rows[name].offering, why) for name, why in whys.items() if name in rows]
    first = dict(reversed(slept))
    return [
        LaunchRefused(
            token=order.token,
            offering=offering,
            count=count,
            cause=RefusalCause.GUARDRAIL,
            detail=f"waking: {first[offering]}",
            at=now,
        )
        for offering, count in Counter(offering for offering, _ in slept).items()
    ]


def wakes_refused(
    order: StartStandby, errors: Mapping[str, MarkError], rows: Mapping[str, Ec2Row], now: float
) -> list[LaunchRefused]:
    """The facts that AWS starts these standbys not now, one for each offering, zone and code."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, error in errors.items():
        if name in rows:
            found.setdefault((rows[name].offering, rows[name].zone, code_of(error)), []).append(name)
    return [
        LaunchRefused(
            token=order.token,
            offering=offering,
            count=len(names),
            cause=cause_of(code),
            code=code,
            zone=zone or None,
            at=now,
            instances=tuple(names),
        )
        for (offering, zone, code), names in found.items()
    ]


def row_of(setup: FleetSetup, instance: InstanceTypeDef) -> Ec2Row:
    """A row of DescribeInstances. A token of another run bears that run's name: no order of this one has it."""
    tags = {tag.get("Key", ""): tag.get("Value", "") for tag in instance.get("Tags", [])}
    token, run = tags.get(TOKEN, ""), tags.get(RUN, "")
    launched = instance.get("LaunchTime")
    return Ec2Row(
        id=instance["InstanceId"],
        model=tags.get(MODEL, ""),
        offering=of_type(tags.get(OFFERING, ""), instance["InstanceType"]),
        role=Role.STANDBY if tags.get(ROLE) == Role.STANDBY.value else Role.SERVING,
        token=token if run == setup.run else f"{run}/{token}",
        state=instance["State"]["Name"],
        launched_at=launched.timestamp() if launched else 0.0,
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        outdated=tags.get(VERSION, "") != setup.version,
        version=tags.get(MODEL_VERSION, ""),
        host=instance.get("PrivateIpAddress", ""),
    )
