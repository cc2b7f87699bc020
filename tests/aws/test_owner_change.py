"""A service whose owner changes keeps its permissions, at every point of the rollout that changes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import pytest

from mark.aws.ec2.launch import FleetSetup, fleet_request
from mark.aws.permissions.evaluation import Access, evaluate
from mark.aws.permissions.policies import policy
from mark.aws.resources import service_tags
from mark.domain.fleet.instances import Role
from mark.emulator.authorization.accesses import Account, Params, TemplateFound, accesses
from tests.aws.builders import OFFERINGS, SPOT, launch
from tests.aws.iam import NAMES

OWNERS = ("team", "another team")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A service whose parts may each bear another owner's tag, as its stacks are updated one after the other."""

    service: str = "shop"
    of_templates: str = OWNERS[0]
    of_functions: str = OWNERS[0]
    of_instances: str = OWNERS[0]

    def instance_tags(self, _name: str) -> Mapping[str, str]:
        return service_tags(self.service, self.of_instances)

    def function_tags(self, _name: str) -> Mapping[str, str]:
        return service_tags(self.service, self.of_functions)

    def template(self, _reference: Params) -> TemplateFound:
        own = service_tags(self.service, self.of_templates)
        volume = [{"Key": key, "Value": value} for key, value in own.items()]
        data = {
            "ImageId": "ami-1",
            "TagSpecifications": [{"ResourceType": "volume", "Tags": volume}],
            "IamInstanceProfile": {"Name": "mark-shop-agent"},
        }
        return TemplateFound(id="lt-1", tags=own, data=data)

    def function_of_mapping(self, _mapping: str) -> None:
        return None


def asked(standing: Standing, of_processes: str) -> Iterator[tuple[str, Access]]:
    """What a controller and a gateway ask of IAM while they serve; `of_processes`: the owner that they know of."""
    account = Account(id=NAMES.account, region=NAMES.region, inventory=standing)
    setup = FleetSetup(
        service=standing.service,
        model="m",
        run="r",
        owner=of_processes,
        offerings=OFFERINGS,
        templates={(role, "amd64"): "mark-shop-serving" for role in Role},
    )
    ids = {"InstanceIds": ["i-1"]}
    calls = (
        ("controller", "ec2", "CreateFleet", fleet_request(setup, launch(1, kind=SPOT.name))),
        ("controller", "ec2", "StartInstances", ids),
        ("controller", "ec2", "StopInstances", ids),
        ("controller", "ec2", "TerminateInstances", ids),
        ("controller", "lambda", "Invoke", {"FunctionName": "mark-shop-infer-m"}),
        ("gateway", "lambda", "Invoke", {"FunctionName": "mark-shop-words", "Qualifier": "live"}),
    )
    for role, service, operation, params in calls:
        found = accesses(account, service, operation, params)
        assert found
        yield from ((role, access) for access in found)


@pytest.mark.parametrize("owners", list(product((0, 1), repeat=4)), ids=str)
def test_nothing_is_refused_while_owners_differ(owners: tuple[int, ...]) -> None:
    """Templates and functions are tagged anew before controllers are, and instances keep the tag they have."""
    templates, functions, instances, processes = (OWNERS[one] for one in owners)
    standing = Standing(of_templates=templates, of_functions=functions, of_instances=instances)
    for role, access in asked(standing, processes):
        assert evaluate(access, (policy(NAMES, role),)).allowed, access


def test_what_is_another_services_stays_refused() -> None:
    refused = {
        access.action
        for role, access in asked(Standing(service="other"), OWNERS[0])
        if not evaluate(access, (policy(NAMES, role),)).allowed
    }
    assert refused == {
        "ec2:CreateFleet",
        "ec2:CreateTags",
        "ec2:RunInstances",
        "ec2:StartInstances",
        "ec2:StopInstances",
        "ec2:TerminateInstances",
        "lambda:InvokeFunction",
    }
