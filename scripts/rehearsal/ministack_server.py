"""ministack with the two resource types of ours that it lacks, and with the zones of one region.

Its own Python runs this, by path and with -P.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

INGRESS = "AWS::EC2::SecurityGroupIngress"
BUDGET = "AWS::Budgets::Budget"
SUBNET = "AWS::EC2::Subnet"


def make_budget(_logical: str, properties: Mapping[str, Any], _stack: str) -> tuple[str, dict[str, str]]:
    """Make a budget by the call that CloudFormation makes; its name, and no attributes."""
    status, _, body = _budgets()._create_budget(dict(properties))  # noqa: SLF001 - no public door
    if status != HTTPStatus.OK:
        raise ValueError(str(body))
    return str(properties["Budget"]["BudgetName"]), {}


def change_budget(
    name: str, _old: Mapping[str, Any], properties: Mapping[str, Any], _stack: str
) -> tuple[str, dict[str, str]]:
    """Change it in place, whatever else of the resource has changed with it."""
    status, _, body = _budgets()._update_budget({"NewBudget": dict(properties["Budget"])})  # noqa: SLF001 - as above
    if status != HTTPStatus.OK:
        raise ValueError(str(body))
    return name, {}


def remove_budget(name: str, _: Mapping[str, Any]) -> None:
    """Remove it; one that is gone is no error."""
    _budgets()._delete_budget({"BudgetName": name})  # noqa: SLF001 - no public door


def make_rule(logical: str, properties: Mapping[str, Any], stack: str) -> tuple[str, dict[str, str]]:
    """Add the rule to its group; its id, and the attributes of the resource."""
    _rules_of(properties).extend(_as_kept(properties))
    rule = f"sgr-{hashlib.sha256(f'{stack} {logical}'.encode()).hexdigest()[:17]}"
    return rule, {"Id": rule}


def remove_rule(_: str, properties: Mapping[str, Any]) -> None:
    """Take the rule out of its group, where that is still there."""
    kept, rules = _as_kept(properties), _rules_of(properties)
    rules[:] = [rule for rule in rules if rule not in kept]


ZONE = """<item><zoneName>{0}</zoneName><zoneState>available</zoneState><regionName>{1}</regionName>
<groupName>{1}-zg-1</groupName><optInStatus>opt-in-not-required</optInStatus>
<zoneType>availability-zone</zoneType></item>"""


def keep_to_zones(zones: list[str]) -> None:
    """The account has these zones, and no subnet stands in another."""
    ec2, subnet = importlib.import_module("ministack.services.ec2"), _provisioners()._RESOURCE_HANDLERS[SUBNET]  # noqa: SLF001 - no public door
    listed = "".join(ZONE.format(zone, zone[:-1]) for zone in zones)
    made = subnet["create"]

    def create(logical: str, properties: Mapping[str, Any], stack: str) -> Any:
        if properties["AvailabilityZone"] not in zones:
            raise ValueError(  # as EC2 says it (aws-samples/saas-reference-architecture-ecs #12)
                f"Value ({properties['AvailabilityZone']}) for parameter availabilityZone is invalid. Subnets can "
                f"currently only be created in the following availability zones: {', '.join(zones)}."
            )
        return made(logical, properties, stack)

    subnet["create"] = create
    ec2._ACTION_MAP["DescribeAvailabilityZones"] = lambda _: ec2._xml(  # noqa: SLF001 - as above
        200, "DescribeAvailabilityZonesResponse", f"<availabilityZoneInfo>{listed}</availabilityZoneInfo>"
    )


def _rules_of(properties: Mapping[str, Any]) -> list[Any]:
    groups = importlib.import_module("ministack.services.ec2")._security_groups  # noqa: SLF001 - no public door
    rules: list[Any] = groups.get(properties["GroupId"], {}).setdefault("IpPermissions", [])
    return rules


def _as_kept(properties: Mapping[str, Any]) -> list[Any]:
    rules: list[Any] = _provisioners()._ec2_sg_permissions([properties])  # noqa: SLF001 - no public door
    return rules


def _budgets() -> Any:
    return importlib.import_module("ministack.services.budgets")


def _provisioners() -> Any:
    return importlib.import_module("ministack.services.cloudformation.provisioners")


if __name__ == "__main__":
    handlers = _provisioners()._RESOURCE_HANDLERS  # noqa: SLF001 - no public door
    handlers[BUDGET] = {"create": make_budget, "update": change_budget, "delete": remove_budget}
    handlers[INGRESS] = {"create": make_rule, "delete": remove_rule}
    keep_to_zones(os.environ["REHEARSED_ZONES"].split())
    importlib.import_module("ministack.app").main()
