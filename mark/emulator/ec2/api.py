"""The EC2 actions about instances. What concerns networks, templates, groups and images is moto's."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mark.domain.offerings.offering import InstanceType
from mark.emulator.clock import ServiceClock, iso
from mark.emulator.ec2.account_limits import AccountLimits
from mark.emulator.ec2.commitments import AccountCommitments
from mark.emulator.ec2.instance_filters import matching
from mark.emulator.ec2.instance_xml import describe_instances
from mark.emulator.ec2.launch import Launches, Sold, over_quota, sold_everywhere
from mark.emulator.ec2.launch_templates import find_template
from mark.emulator.ec2.machine import Machine, MachineState
from mark.emulator.ec2.machines import Machines, not_found
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.faults import Faults
from mark.emulator.moto_parts import query_parameters, serialize

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CreateFleetRequestTypeDef, RunInstancesRequestTypeDef

Params = dict[str, Any]

MOTOS = frozenset(
    (
        "AssociateRouteTable",
        "AttachInternetGateway",
        "AuthorizeSecurityGroupEgress",
        "AuthorizeSecurityGroupIngress",
        "CreateInternetGateway",
        "CreateKeyPair",
        "CreateLaunchTemplate",
        "CreateLaunchTemplateVersion",
        "CreateRoute",
        "CreateRouteTable",
        "CreateSecurityGroup",
        "CreateSubnet",
        "CreateVpc",
        "DeleteInternetGateway",
        "DeleteKeyPair",
        "DeleteLaunchTemplate",
        "DeleteLaunchTemplateVersions",
        "DeleteRoute",
        "DeleteRouteTable",
        "DeleteSecurityGroup",
        "DeleteSubnet",
        "DeleteVpc",
        "DescribeAccountAttributes",
        "DescribeAvailabilityZones",
        "DescribeImages",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeInternetGateways",
        "DescribeKeyPairs",
        "DescribeLaunchTemplateVersions",
        "DescribeLaunchTemplates",
        "DescribeRegions",
        "DescribeRouteTables",
        "DescribeSecurityGroupRules",
        "DescribeSecurityGroups",
        "DescribeSubnets",
        "DescribeVpcAttribute",
        "DescribeVpcs",
        "DetachInternetGateway",
        "GetLaunchTemplateData",
        "ModifyLaunchTemplate",
        "ModifySubnetAttribute",
        "ModifyVpcAttribute",
        "RevokeSecurityGroupEgress",
        "RevokeSecurityGroupIngress",
    )
)
"""Actions that moto answers well. All others are refused: its silence is no answer."""
MOST_INSTANCES = 1000


class Ec2Api:
    """Answers EC2 actions about instances with XML; `None` leaves the call to moto."""

    def __init__(
        self,
        machines: Machines,
        types: Mapping[str, InstanceType],
        faults: Faults,
        clock: ServiceClock,
        limits: AccountLimits,
        *,
        commitments: AccountCommitments,
        listing_lag_s: float = 0.0,
        sold: Sold = sold_everywhere,
    ) -> None:
        self._machines = machines
        self._lag_s = listing_lag_s
        self._types = types
        self._clock = clock
        self._reserved = commitments.reserved_capacity(machines)
        self._launches = Launches(machines, types, faults, limits, sold, self._reserved)
        self._replies: dict[tuple[str, str], tuple[str, str]] = {}
        self._actions: dict[str, Callable[[Any], str]] = {
            "RunInstances": self._run_instances,
            "CreateFleet": self._create_fleet,
            "DescribeInstances": self._describe,
            "StartInstances": self._start,
            "StopInstances": self._stop,
            "TerminateInstances": self._terminate,
            "ModifyInstanceAttribute": self._modify,
            "DescribeInstanceAttribute": self._attribute,
            "DescribeCapacityReservations": lambda params: _reply(
                "DescribeCapacityReservations", self._reserved.describe(params)
            ),
            "DescribeReservedInstances": lambda _: _reply(
                "DescribeReservedInstances", {"ReservedInstances": commitments.reservations()}
            ),
            "DescribeSpotPriceHistory": self._prices,
            "CreateTags": self._create_tags,
            "DeleteTags": self._delete_tags,
        }

    def answer(self, action: str, form: Mapping[str, str]) -> str | None:
        """The reply to one call."""
        handler = self._actions.get(action)
        tags_others = action in ("CreateTags", "DeleteTags") and not form.get("ResourceId.1", "").startswith("i-")
        if action in MOTOS or tags_others:
            return None
        if handler is None:
            raise not_emulated(f"ec2:{action}")
        params = query_parameters("ec2", action, form)
        if params.get("DryRun"):
            self._refuse_absent(params)
            raise ApiError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        token = params.get("ClientToken", "") if action in ("RunInstances", "CreateFleet") else ""
        return self._once(action, token, params, handler) if token else handler(params)

    def _refuse_absent(self, params: Params) -> None:
        """ApiError for an instance or a launch template that is not there; permission was judged before."""
        self._machines.named(params.get("InstanceIds") or [])
        references = [params["LaunchTemplate"]] if params.get("LaunchTemplate") else []
        configs = params.get("LaunchTemplateConfigs") or ()
        for reference in (*references, *(one["LaunchTemplateSpecification"] for one in configs)):
            find_template(reference)

    def _once(self, action: str, token: str, params: Params, handler: Callable[[Params], str]) -> str:
        """Reply to a token that came before: the same, or an error where the parameters are others."""
        request = json.dumps(params, sort_keys=True, default=str)
        known = self._replies.get((action, token))
        if known is None:
            known = self._replies[action, token] = (request, handler(params))
        elif known[0] != request:
            raise ApiError(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used in previous "
                f"request(s) with client token {token}.",
            )
        elif action == "CreateFleet" and self._lag_s > 0:  # "without performing any further actions"
            return _reply(action, {"FleetId": f"fleet-{secrets.token_hex(16)}", "Instances": [], "Errors": []})
        return known[1]

    def _run_instances(self, params: RunInstancesRequestTypeDef) -> str:
        reservation, machines = self._launches.run_instances(params)
        described = describe_instances([machines], "", self._reserved.inside())
        inner = described.split("<instancesSet>", 1)[1].rsplit("</instancesSet>", 1)[0]
        from_id = f"<reservationId>{reservation}</reservationId><instancesSet>{inner}</instancesSet>"
        head = described.split("<reservationSet>", 1)[0].replace("DescribeInstances", "RunInstances")
        return f"{head}{from_id}</RunInstancesResponse>"

    def _create_fleet(self, params: CreateFleetRequestTypeDef) -> str:
        return _reply("CreateFleet", self._launches.create_fleet(params))

    def _describe(self, params: Params) -> str:
        if params.get("InstanceIds") and params.get("MaxResults"):
            raise ApiError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        groups: dict[str, list[Machine]] = {}
        for machine in self._selected(params):
            groups.setdefault(machine.reservation, []).append(machine)
        page, token = _page(list(groups.values()), params)
        return describe_instances(page, token, self._reserved.inside())

    def _selected(self, params: Params) -> list[Machine]:
        ids = params.get("InstanceIds")
        machines = self._machines.named(ids) if ids else list(self._machines)
        now = self._clock.now()
        # a service starts on a clock that stands still: on it a listing that lags would never know more
        lag_s = self._lag_s if self._clock.anchor.speed > 0 else 0.0
        shown = [seen for one in machines if (seen := one.listed(now, lag_s)) is not None]
        if ids and len(shown) < len(machines):
            raise not_found([name for name in ids if name not in {one.id for one in shown}])
        return matching(shown, params.get("Filters") or [])

    def _start(self, params: Params) -> str:
        return self._change("StartInstances", "StartingInstances", params, self._start_within_quota)

    def _start_within_quota(self, machines: list[Machine]) -> None:
        asleep = Counter(
            (one.spec.instance_type.name, one.spec.market) for one in machines if one.state is MachineState.STOPPED
        )
        for (name, market), count in asleep.items():
            if count > self._launches.left(self._types[name], market):
                raise ApiError(*over_quota(market))
        self._machines.start(machines)

    def _stop(self, params: Params) -> str:
        return self._change("StopInstances", "StoppingInstances", params, self._machines.stop)

    def _terminate(self, params: Params) -> str:
        return self._change("TerminateInstances", "TerminatingInstances", params, self._machines.terminate)

    def _change(self, action: str, word: str, params: Params, do: Callable[[list[Machine]], None]) -> str:
        machines = self._machines.named(params["InstanceIds"])
        before = [machine.state for machine in machines]
        do(machines)
        changes = [
            {
                "InstanceId": machine.id,
                "PreviousState": {"Code": int(state), "Name": state.label},
                "CurrentState": {"Code": int(machine.state), "Name": machine.state.label},
            }
            for machine, state in zip(machines, before, strict=True)
        ]
        return _reply(action, {word: changes})

    def _modify(self, params: Params) -> str:
        (machine,) = self._machines.named([params["InstanceId"]])
        if "DisableApiTermination" in params:
            machine.protected = bool(params["DisableApiTermination"].get("Value"))
            return _reply("ModifyInstanceAttribute", {})
        behavior = params.get("InstanceInitiatedShutdownBehavior", {}).get("Value")
        if params.get("Attribute") == "instanceInitiatedShutdownBehavior":
            behavior = params.get("Value")
        if behavior not in ("stop", "terminate"):
            raise not_emulated(
                "ModifyInstanceAttribute of aught but instanceInitiatedShutdownBehavior and disableApiTermination"
            )
        machine.shutdown_behavior = behavior
        return _reply("ModifyInstanceAttribute", {})

    def _attribute(self, params: Params) -> str:
        (machine,) = self._machines.named([params["InstanceId"]])
        values = {
            "instanceInitiatedShutdownBehavior": (
                "InstanceInitiatedShutdownBehavior",
                machine.shutdown_behavior,
            ),
            "instanceType": ("InstanceType", machine.spec.instance_type.name),
            "userData": ("UserData", machine.spec.user_data),
        }
        if params["Attribute"] not in values:
            raise not_emulated(f"DescribeInstanceAttribute of {params['Attribute']}")
        name, value = values[params["Attribute"]]
        return _reply("DescribeInstanceAttribute", {"InstanceId": machine.id, name: {"Value": value}})

    def _prices(self, params: Params) -> str:
        """The prices of now of each type that has a spot market, by zone: what was before nobody asks."""
        wanted = params.get("InstanceTypes") or sorted(self._types)
        only = params.get("AvailabilityZone")
        history = [
            {
                "InstanceType": name,
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{price:.6f}",
                "Timestamp": iso(self._clock.now()),
                "AvailabilityZone": zone,
            }
            for name in wanted
            if name in self._types
            for zone in self._machines.spot_zones
            if only in (None, "", zone)
            and (price := self._machines.spot_usd_per_hour(self._types[name], zone)) is not None
        ]
        return _reply("DescribeSpotPriceHistory", {"SpotPriceHistory": history, "NextToken": ""})

    def _create_tags(self, params: Params) -> str:
        for machine in self._machines.named(params["Resources"]):
            machine.tags.update({tag["Key"]: tag.get("Value", "") for tag in params["Tags"]})
            machine.xml = None
        return _reply("CreateTags", {})

    def _delete_tags(self, params: Params) -> str:
        for machine in self._machines.named(params["Resources"]):
            for tag in params.get("Tags") or [{"Key": key} for key in machine.tags]:
                machine.tags.pop(tag["Key"], None)
            machine.xml = None
        return _reply("DeleteTags", {})


def _reply(action: str, result: Mapping[str, Any]) -> str:
    return serialize("ec2", action, result)


def _page(groups: list[list[Machine]], params: Params) -> tuple[list[list[Machine]], str]:
    """One page, and the token of the next: the first reservation or instance that is on it."""
    size = int(params.get("MaxResults") or MOST_INSTANCES)
    if not 5 <= size <= MOST_INSTANCES:
        raise ApiError("InvalidParameterValue", f"Value ( {size} ) for parameter maxResults is invalid.")
    token = params.get("NextToken") or ""
    names = [group[0].id for group in groups]
    if token and token not in names:
        raise ApiError("InvalidParameterValue", "Invalid NextToken")
    start = names.index(token) if token else 0
    following = names[start + size] if start + size < len(names) else ""
    return groups[start : start + size], following
