"""Base of every stack: its name, its tags, values that it hands to later stacks, and excused findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import (
    Acknowledgment,
    CfnOutput,
    CfnResource,
    Environment,
    Fn,
    LegacyStackSynthesizer,
    Stack,
    Tags,
    Validations,
)
from constructs import Construct

from mark.aws.resources import service_tags
from mark.infra.blueprint import Blueprint


class ServiceStack(Stack):
    """A stack of the service, `mark-SERVICE-PART`.

    It has no assets, and whoever deploys it does so with their own credentials: so nothing is bootstrapped. (CDK's
    synthesizer of that name would still take the roles of a bootstrap stack; the legacy one takes none.)
    """

    def __init__(self, scope: Construct, part: str, *, blueprint: Blueprint, about: str) -> None:
        super().__init__(
            scope,
            part,
            stack_name=blueprint.name(part),
            description=f"MArk {blueprint.service}: {about}",
            env=Environment(account=blueprint.rollout.account, region=blueprint.region),
            synthesizer=LegacyStackSynthesizer(),
        )
        self.blueprint = blueprint
        self.own_tags = service_tags(blueprint.service, blueprint.rollout.owner, blueprint.rollout.tags)
        for key, value in self.own_tags.items():
            Tags.of(self).add(key, value)

    def publish(self, name: str, value: str) -> None:
        """Hand a value to later stacks, as the export `mark-SERVICE-NAME`."""
        output = "Told" + "".join(word.capitalize() for word in name.split("-"))
        CfnOutput(self, output, value=value, export_name=self.blueprint.name(name))

    def imported(self, name: str) -> str:
        """A value that an earlier stack published."""
        return Fn.import_value(self.blueprint.name(name))


def document(*statements: Mapping[str, Any]) -> dict[str, Any]:
    """A policy document."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def excuse(
    resource: CfnResource, reason: str, *, nag: tuple[str, ...] = (), checkov: tuple[str, ...] = ()
) -> None:
    """Acknowledge findings of cdk-nag and checkov on one resource, with the reason why they do not apply."""
    for rule in nag:
        Validations.of(resource).acknowledge(Acknowledgment(id=rule, reason=reason))
    known = resource.get_metadata("checkov") or {"skip": []}
    skips = [*known["skip"], *({"id": rule, "comment": reason} for rule in checkov)]
    if skips:
        resource.add_metadata("checkov", {"skip": skips})


def camel(value: Any) -> Any:
    """A value as CDK has it, of one as CloudFormation has it: names of properties begin with a small letter."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {f"{key[:1].lower()}{key[1:]}": camel(item) for key, item in value.items()}


def compact(value: object) -> str:
    """JSON without blanks."""
    return json.dumps(value, separators=(",", ":"))


def words(name: str) -> str:
    """`amd64-nvidia` -> `Amd64Nvidia`: a name as part of a resource's logical one."""
    return "".join(part.capitalize() for part in name.split("-"))
