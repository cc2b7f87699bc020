"""One instance for a while, outside the fleet: for `mark profile --on`.

It starts from the service's own launch template, in a subnet where the service stands, and bears the service's
tags, but not `mark:model`: controllers count it to no fleet, gateways send it nothing. Whatever becomes of who
rented it, it ends: the caller ends it; its agent powers it off at `mark:expires`; a start script has `shutdown -h
+N` before all else; and a machine that powers itself off is terminated, as its launch says.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mark.aws.ec2.inventory import described
from mark.aws.ec2.tags import EXPIRES, OFFERING, OWNER, PROFILE_OF, ROLE, RUN, SERVICE
from mark.aws.errors import absent_is_done, translated, unless_absent
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured, NoCapacity
from mark.domain.offerings.offering import InstanceType

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

SCRIPT = "#!"
SPARE_MIN = 5
"""The start script's switch comes so much later than the agent's, which is cleaner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """A request for one instance: for which run of which command, and until when at the latest."""

    service: str
    owner: str
    model: str
    run: str
    instance_type: InstanceType
    #: Name of the launch template of its kind of machine.
    template: str
    expires_at: float
    #: The owner's own tags.
    own_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the instance."""
        return {
            **self.own_tags,
            SERVICE: self.service,
            OWNER: self.owner,
            PROFILE_OF: self.model,
            OFFERING: f"{self.instance_type.name}:on-demand",
            ROLE: "profile",
            RUN: self.run,
            EXPIRES: f"{self.expires_at:.0f}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """An instance as it is now. `hosts`: where it may be reached, its private address first."""

    id: str
    state: str
    hosts: tuple[str, ...]


def rent(aws: Aws, asked: Rent, now: float) -> str:
    """Rent it; its id. The same run rents a type once. NoCapacity, Misconfigured, RetryLater as AWS has it.

    One subnet after another is asked, until one has the type.
    """
    template, user_data, interfaces = _template(aws, asked)
    minutes = max(1, round((asked.expires_at - now) / 60.0)) + SPARE_MIN
    asks = {"LaunchTemplate": template, "UserData": with_switch(user_data, minutes)}
    *others, last = _subnets(aws, asked.service) or ("",)
    for subnet in others:
        try:
            return _run(aws, asked, subnet, interfaces, asks)
        except NoCapacity:
            continue
    return _run(aws, asked, last, interfaces, asks)


def _run(aws: Aws, asked: Rent, subnet: str, interfaces: Sequence[Any], asks: Mapping[str, Any]) -> str:
    """Ask for it in a subnet; empty for the default network's.

    interfaces: the template's; EC2 takes the subnet as theirs, or as the instance's, not both.
    """
    tags = [{"Key": key, "Value": value} for key, value in asked.tags.items()]
    words = "\0".join((asked.run, asked.instance_type.name, subnet))
    where: dict[str, Any] = {"SubnetId": subnet} if subnet else {}
    if subnet and interfaces:
        where = {"NetworkInterfaces": [{**one, "SubnetId": subnet} for one in interfaces]}
    with translated():
        reply = aws.ec2.run_instances(
            InstanceType=asked.instance_type.name,  # type: ignore[arg-type]
            MinCount=1,
            MaxCount=1,
            ClientToken=hashlib.sha256(words.encode()).hexdigest(),
            InstanceInitiatedShutdownBehavior="terminate",
            TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],  # type: ignore[misc]
            **where,
            **asks,
        )
    return reply["Instances"][0]["InstanceId"]


def _subnets(aws: Aws, service: str) -> tuple[str, ...]:
    """The service's subnets: its groups belong to one network, which need not be the account's default one."""
    with translated():
        found = [
            instance.get("SubnetId", "")
            for instance in described(aws.ec2, {f"tag:{SERVICE}": [service]})
            if PROFILE_OF not in {tag.get("Key") for tag in instance.get("Tags", [])}
        ]
    return tuple(sorted({subnet for subnet in found if subnet}))


def look_at(aws: Aws, run: str) -> tuple[Rented, ...]:
    """All that a run has rented and that is not gone."""
    with translated():
        return tuple(map(_rented, described(aws.ec2, {f"tag:{RUN}": [run]})))


def end_all(aws: Aws, run: str, known: Sequence[str]) -> tuple[str, ...]:
    """End what a run has rented, also what its launch did not report; returns their ids."""
    for name in known:  # first: the listing may fail
        _end(aws, name)
    others = [item.id for item in look_at(aws, run) if item.id not in known]
    for name in others:
        _end(aws, name)
    return (*known, *others)


def _end(aws: Aws, name: str) -> None:
    with absent_is_done():
        aws.ec2.terminate_instances(InstanceIds=[name])


def with_switch(user_data: str, minutes: int) -> str:
    """User data whose script first of all sets the time at which the machine powers off; other data stays."""
    if not user_data.startswith(SCRIPT):
        return user_data
    shebang, _, rest = user_data.partition("\n")
    return f"{shebang}\nshutdown -h +{minutes}\n{rest}"


def _template(aws: Aws, asked: Rent) -> tuple[Mapping[str, str], str, Sequence[Any]]:
    """The launch template's newest version, its user data as text, and its network interfaces.

    CloudFormation never moves a template's default version.
    """
    name = asked.template
    found = unless_absent(
        lambda: aws.ec2.describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Latest"])
    )
    if found is None:
        raise Misconfigured(
            f"no launch template {name} in {aws.settings.region}: `mark up` here or `mark deploy` makes the "
            "service"
        )
    newest = found["LaunchTemplateVersions"][0]
    template = {"LaunchTemplateName": asked.template, "Version": str(newest["VersionNumber"])}
    data = newest["LaunchTemplateData"]
    return template, base64.b64decode(data.get("UserData", "")).decode(), data.get("NetworkInterfaces", [])


def _rented(instance: InstanceTypeDef) -> Rented:
    hosts = (instance.get("PrivateIpAddress", ""), instance.get("PublicIpAddress", ""))
    return Rented(
        id=instance["InstanceId"],
        state=instance["State"]["Name"],
        hosts=tuple(host for host in hosts if host),
    )
