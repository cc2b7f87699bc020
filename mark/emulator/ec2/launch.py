"""RunInstances and CreateFleet (type instant): what is launched where, what is refused, and tokens."""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mark.domain.offerings.offering import InstanceType, Market
from mark.emulator.ec2.account_limits import AccountLimits
from mark.emulator.ec2.capacity_reservations import ReservedCapacity
from mark.emulator.ec2.launch_templates import Data, Template, find_template, named_zone, resolve
from mark.emulator.ec2.machine import LaunchSpec, Machine, tags_for
from mark.emulator.ec2.machines import Machines
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.faults import Faults

if TYPE_CHECKING:
    from mypy_boto3_ec2 import type_defs as ec2

NO_CAPACITY = "InsufficientInstanceCapacity"
NOT_SOLD = "InvalidFleetConfiguration"
"""EC2 Fleet's code for a type that a zone does not sell (aws/karpenter-provider-aws #6483)."""
Sold = Callable[[str, str], bool]
"""A rule that says whether AWS sells a type, by name, in an availability zone."""
BY_PRICE = ("lowest-price", "lowestPrice", "price-capacity-optimized", "capacity-optimized")
"""Allocation strategies that try the cheapest override first; others are refused."""
RESERVED_FIRST = "use-capacity-reservations-first"
OPTIONS = {"AllocationStrategy", "CapacityReservationOptions", "InstanceInterruptionBehavior"}
OVERRIDES = {"AvailabilityZone", "ImageId", "InstanceType", "SubnetId"}


def sold_everywhere(_type: str, _zone: str) -> bool:
    """Each type in each zone."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One override of one template, in one market."""

    template: Template
    override: ec2.FleetLaunchTemplateOverridesRequestTypeDef
    market: Market

    @property
    def type_name(self) -> str:
        return str(self.override.get("InstanceType") or self.template.data.get("InstanceType") or "")

    @property
    def data(self) -> Data:
        """The template with the override merged; an empty value in an override means the template's."""
        return {**self.template.data, **{key: value for key, value in self.override.items() if value}}

    def described(self, zone: str = "") -> Data:
        """As a reply names it; `zone` is where it was launched."""
        named = {key: self.template.reference[key] for key in ("LaunchTemplateId", "Version")}
        override = {**self.override, "AvailabilityZone": zone} if zone else self.override
        return {"LaunchTemplateSpecification": named, "Overrides": override}

    def __str__(self) -> str:
        return f"{self.type_name}:{self.market.value}"


class Launches:
    """Launches instances for the API."""

    def __init__(
        self,
        machines: Machines,
        types: Mapping[str, InstanceType],
        faults: Faults,
        limits: AccountLimits,
        sold: Sold,
        reserved: ReservedCapacity,
    ) -> None:
        self._sold, self._reserved = sold, reserved
        self._limits = limits
        self._machines = machines
        self._types = types
        self._faults = faults

    def run_instances(self, params: ec2.RunInstancesRequestTypeDef) -> tuple[str, list[Machine]]:
        """RunInstances: all of them or an error; the reservation and its instances."""
        template = find_template(params["LaunchTemplate"]) if params.get("LaunchTemplate") else None
        given = {key: value for key, value in params.items() if value not in (None, [], {}, "")}
        data: Data = {**(template.data if template else {}), **given}
        market = _market(data.get("InstanceMarketOptions"))
        name = str(data.get("InstanceType") or "m1.small")
        instance_type = self._types.get(name)
        if instance_type is None:
            raise ApiError("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
        self._limits.require_eligible(name)
        specifications = [template.data.get("TagSpecifications")] if template else []
        tags = tags_for("instance", *specifications, params.get("TagSpecifications"))
        most, least = int(params.get("MaxCount", 1)), int(params.get("MinCount", 1))
        data, refusal = self._placed("RunInstances", data, instance_type, market)
        spec = resolve(data, instance_type, market, tags, params.get("ClientToken", ""))
        count = 0 if refusal else self._obtainable("RunInstances", f"{name}:{market.value}", most)
        count = max(count, min(most, self._places(spec)))
        left_of_quota = self.left(instance_type, market)
        if left_of_quota < least:
            raise ApiError(*over_quota(market))
        count = min(count, left_of_quota)
        if count < least:
            raise ApiError(refusal or NO_CAPACITY, _no_capacity(name, spec.zone), 500)
        return self._launch(spec, count)

    def create_fleet(self, params: ec2.CreateFleetRequestTypeDef) -> Data:
        """CreateFleet: as much as can be had; what cannot is in the reply's Errors."""
        if params.get("Type") != "instant":
            raise not_emulated(f"CreateFleet of type {params.get('Type', 'maintain')}: instant only")
        _refuse_duplicates(params["LaunchTemplateConfigs"])
        instances: list[Data] = []
        errors: list[Data] = []
        for market, target in _targets(params["TargetCapacitySpecification"]).items():
            got, lacking = self._fulfil(params, market, target)
            instances.extend(got)
            errors.extend(lacking)
        return {"FleetId": f"fleet-{secrets.token_hex(16)}", "Instances": instances, "Errors": errors}

    def left(self, item: InstanceType, market: Market, more: Iterable[tuple[InstanceType, int]] = ()) -> int:
        """Instances of the type that the quotas still allow; a prewarmed world's fleet was there before.

        more: what the same request launches beside them.
        """
        if self._machines.prewarm:
            return sys.maxsize
        return self._limits.instances_left(item, market, self._machines, more)

    def _fulfil(
        self, params: ec2.CreateFleetRequestTypeDef, market: Market, target: int
    ) -> tuple[list[Data], list[Data]]:
        options = (params.get("SpotOptions") if market is Market.SPOT else params.get("OnDemandOptions")) or {}
        _check_known("fleet option", options, OPTIONS)
        if options.get("InstanceInterruptionBehavior", "terminate") != "terminate":
            raise not_emulated("spot interruption behaviours other than terminate")
        candidates = self._ordered(params["LaunchTemplateConfigs"], market, options)
        on_demand = params.get("OnDemandOptions") or {} if market is Market.ON_DEMAND else {}
        if on_demand.get("CapacityReservationOptions", {}).get("UsageStrategy") == RESERVED_FIRST:
            candidates = self._reserved_first(candidates)
        errors, left = [], target
        chosen: list[tuple[_Candidate, LaunchSpec, int]] = []
        for candidate in candidates:
            if left <= 0:
                break
            try:
                spec, count = self._candidate(candidate, left, params)
            except ApiError as error:
                errors.append(_fleet_error(candidate, error.code, error.message))
                continue
            left_of_quota = self.left(
                spec.instance_type, market, ((one.instance_type, number) for _, one, number in chosen)
            )
            if count > left_of_quota:
                count = left_of_quota
                errors.append(_fleet_error(candidate, *over_quota(market)))
            elif count < left:
                errors.append(_fleet_error(candidate, NO_CAPACITY, _no_capacity(candidate.type_name, spec.zone)))
            left -= count
            chosen.append((candidate, spec, count))
        return [self._launched(candidate, spec, count) for candidate, spec, count in chosen if count], errors

    def _launched(self, candidate: _Candidate, spec: LaunchSpec, count: int) -> Data:
        _, machines = self._launch(spec, count)
        return {
            "LaunchTemplateAndOverrides": candidate.described(spec.zone),
            "Lifecycle": candidate.market.value,
            "InstanceIds": [machine.id for machine in machines],
            "InstanceType": candidate.type_name,
        }

    def _candidate(
        self, candidate: _Candidate, wanted: int, params: ec2.CreateFleetRequestTypeDef
    ) -> tuple[LaunchSpec, int]:
        """Launch of this candidate, and the count that can be had."""
        instance_type = self._types.get(candidate.type_name)
        if instance_type is None:
            raise ApiError(NOT_SOLD, _not_sold(candidate.type_name, named_zone(candidate.data)))
        self._limits.require_eligible(candidate.type_name)
        if candidate.template.data.get("InstanceMarketOptions"):
            raise ApiError(
                "InvalidLaunchTemplate", "A fleet's launch template must not contain InstanceMarketOptions"
            )
        if candidate.market is Market.SPOT and self._spot_usd_per_hour(candidate, instance_type) is None:
            raise ApiError(NO_CAPACITY, f"there is no spot market for {instance_type.name}")
        tags = tags_for(
            "instance", candidate.template.data.get("TagSpecifications"), params.get("TagSpecifications")
        )
        data, refusal = self._placed("CreateFleet", candidate.data, instance_type, candidate.market)
        spec = resolve(data, instance_type, candidate.market, tags)
        places = min(wanted, self._places(spec))
        if refusal == NO_CAPACITY and places:
            return spec, places
        if refusal:
            words = _not_sold if refusal == NOT_SOLD else _no_capacity
            raise ApiError(refusal, words(candidate.type_name, spec.zone))
        return spec, max(places, self._obtainable("CreateFleet", str(candidate), wanted))

    def _places(self, spec: LaunchSpec) -> int:
        """Places in reserved capacity that a launch has: there nothing is refused."""
        return 0 if spec.is_spot else self._reserved.free(spec.instance_type.name, spec.zone)

    def _reserved_first(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """The candidates, those before the others that reserved capacity has places for; these in its zone."""
        first, others = list[_Candidate](), list[_Candidate]()
        for one in candidates:
            named = named_zone(one.data)
            if not self._reserved.free(one.type_name, named):
                others.append(one)
                continue
            zone = named or self._reserved.zone_with_places(one.type_name)
            first.append(one if named else replace(one, override={**one.override, "AvailabilityZone": zone}))
        return [*first, *others]

    def _ordered(
        self,
        configs: Sequence[ec2.FleetLaunchTemplateConfigRequestTypeDef],
        market: Market,
        options: ec2.SpotOptionsRequestTypeDef | ec2.OnDemandOptionsRequestTypeDef,
    ) -> list[_Candidate]:
        """Every override, the one to try first at the front."""
        candidates: list[_Candidate] = []
        for config in configs:
            template = find_template(config["LaunchTemplateSpecification"])
            for override in config.get("Overrides") or ():
                _check_known("override", override, OVERRIDES)
            candidates.extend(
                _Candidate(template=template, override=override, market=market)
                for override in config.get("Overrides") or [{}]
            )
        strategy = options.get("AllocationStrategy") or "lowest-price"
        if strategy not in BY_PRICE:
            raise not_emulated(f"CreateFleet's allocation strategy {strategy}")
        return sorted(candidates, key=self._price)

    def _price(self, candidate: _Candidate) -> float:
        """USD per hour; unknown types and places last, so that they are tried and said."""
        instance_type = self._types.get(candidate.type_name)
        if instance_type is None:
            return math.inf
        price: float | None = instance_type.on_demand_usd_per_hour
        if candidate.market is Market.SPOT:
            try:
                price = self._spot_usd_per_hour(candidate, instance_type)
            except ApiError:
                price = None
        return math.inf if price is None else price

    def _obtainable(self, action: str, pool: str, most: int) -> int:
        fault = self._faults.hit(("partial",), "ec2", action, pool)
        return most if fault is None else math.floor(most * fault.share)

    def _placed(self, action: str, data: Data, item: InstanceType, market: Market) -> tuple[Data, str]:
        """A launch in the zone that it goes to, and the code of its refusal where it is refused."""
        fault = self._faults.hit(("capacity",), "ec2", action, f"{item.name}:{market.value}")
        if fault is not None:
            return data, fault.code or NO_CAPACITY
        named = named_zone(data)
        if named and not self._sold(item.name, named):
            return data, NOT_SOLD if action == "CreateFleet" else "Unsupported"
        zone = self._machines.zone_of_launch(item, market, named)
        if zone is None:
            return data, NO_CAPACITY
        return data if named else {**data, "AvailabilityZone": zone}, ""

    def _spot_usd_per_hour(self, candidate: _Candidate, item: InstanceType) -> float | None:
        """The spot price in the zone that a candidate names, or in the cheapest; None where it has none."""
        return self._machines.spot_usd_per_hour(item, named_zone(candidate.data))

    def _launch(self, spec: LaunchSpec, count: int) -> tuple[str, list[Machine]]:
        reservation = f"r-{secrets.token_hex(8)}"
        return reservation, [self._machines.launch(spec, reservation, index) for index in range(count)]


def over_quota(market: Market) -> tuple[str, str]:
    """EC2's code and words for a launch beyond the account's vCPU quota."""
    if market is Market.SPOT:
        return "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"
    return "VcpuLimitExceeded", (
        "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that "
        "the specified instance type belongs to."
    )


def _refuse_duplicates(configs: Sequence[ec2.FleetLaunchTemplateConfigRequestTypeDef]) -> None:
    """EC2 takes a type in a zone once a request (github-aws-runners/terraform-aws-github-runner #2904)."""
    pools = [
        (override.get("InstanceType"), _zone_of(override))
        for config in configs
        for override in config.get("Overrides") or ()
    ]
    if len(set(pools)) < len(pools):
        raise ApiError("InvalidFleetConfig", "The fleet configuration contains duplicate instance pools.")


def _zone_of(override: ec2.FleetLaunchTemplateOverridesRequestTypeDef) -> str:
    """The zone that an override names; empty where its subnet is not there, which its launch says."""
    try:
        return named_zone(override)
    except ApiError:
        return ""


def _targets(capacity: ec2.TargetCapacitySpecificationRequestTypeDef) -> dict[Market, int]:
    """Target capacity by market."""
    total = int(capacity["TotalTargetCapacity"])
    targets = {
        Market.ON_DEMAND: int(capacity.get("OnDemandTargetCapacity") or 0),
        Market.SPOT: int(capacity.get("SpotTargetCapacity") or 0),
    }
    rest = total - sum(targets.values())
    if rest < 0:
        raise ApiError("InvalidParameterValue", "TotalTargetCapacity is less than the sum of its parts")
    targets[Market(capacity.get("DefaultTargetCapacityType") or "on-demand")] += rest
    return {market: target for market, target in targets.items() if target}


def _check_known(kind: str, given: Iterable[str], known: set[str]) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise not_emulated(f"CreateFleet's {kind} {', '.join(unknown)}")


def _market(options: ec2.InstanceMarketOptionsRequestTypeDef | None) -> Market:
    if not options:
        return Market.ON_DEMAND
    spot = options.get("SpotOptions") or {}
    if spot.get("SpotInstanceType", "one-time") != "one-time":
        raise not_emulated("persistent spot requests")
    if spot.get("InstanceInterruptionBehavior", "terminate") != "terminate":
        raise not_emulated("spot interruption behaviours other than terminate")
    return Market(options.get("MarketType", "spot"))


def _not_sold(type_name: str, zone: str) -> str:
    where = f" ({zone})" if zone else ""
    return (
        f"Your requested instance type ({type_name}) is not supported in your requested Availability Zone{where}."
    )


def _no_capacity(type_name: str, zone: str) -> str:
    return (
        f"We currently do not have sufficient {type_name} capacity in the Availability Zone you requested "
        f"({zone}). Our system will be working on provisioning additional capacity."
    )


def _fleet_error(candidate: _Candidate, code: str, message: str) -> Data:
    return {
        "LaunchTemplateAndOverrides": candidate.described(),
        "Lifecycle": candidate.market.value,
        "ErrorCode": code,
        "ErrorMessage": message,
    }
