"""The stacks of a service with a collector of spans and metrics: ways there, and who reads its headers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.deployment.synth import check_settings
from mark.domain.errors import Misconfigured
from tests.infra.conftest import TELEMETRY, Template, plain

PORT, SECRET = 4318, str(TELEMETRY["headers_secret"])
Templates = dict[str, Template]


def egress(template: Template) -> dict[str, set[int]]:
    """Ports that each group may call, by the group's resource."""
    groups = {
        name: one["Properties"]
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::EC2::SecurityGroup"
    }
    return {name: {rule["FromPort"] for rule in one["SecurityGroupEgress"]} for name, one in groups.items()}


def with_secret(template: Template, kind: str) -> list[dict[str, Any]]:
    """Resources of a kind that name the collector's secret."""
    resources = template["Resources"].values()
    return [one for one in resources if one["Type"] == kind and SECRET in json.dumps(plain(one))]


def test_nothing_is_opened_without_a_collector(templates: Templates) -> None:
    assert not any(PORT in ports for ports in egress(templates["launch"]).values())


def test_gateways_and_agents_reach_the_collector(others: Templates) -> None:
    found = egress(others["launch"])
    assert PORT in found["GatewaysGroup"]
    assert PORT in found["AgentsGroup"]
    assert PORT not in found["BalancerGroup"]


def test_nodes_and_agents_reach_the_collector(lean: Templates) -> None:
    found = egress(lean["launch"])
    assert PORT in found["NodesGroup"]
    assert PORT in found["AgentsGroup"]


@pytest.mark.parametrize(("shape", "part"), [("others", "gateways"), ("lean", "nodes")])
def test_its_headers_are_read_where_gateways_start_and_nowhere_else(
    shape: str, part: str, request: pytest.FixtureRequest
) -> None:
    found: Templates = request.getfixturevalue(shape)
    assert with_secret(found[part], "AWS::IAM::Role")
    (template,) = with_secret(found[part], "AWS::EC2::LaunchTemplate")
    assert "MARK_OTLP_HEADERS" in json.dumps(plain(template))
    others = [one for name, one in found.items() if name != part]
    assert not any(SECRET in json.dumps(plain(one)) for one in others)


def test_a_file_of_this_machine_is_refused() -> None:
    settings = Settings.model_validate(
        {
            "telemetry": {"headers_file": "headers"},
            "rollout": {
                "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/shop/mark:1",
                "node": {"name": "shop.example.org", "self_signed": True},
            },
        }
    )
    with pytest.raises(Misconfigured, match="headers_secret"):
        check_settings(settings)
