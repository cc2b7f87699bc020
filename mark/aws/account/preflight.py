"""Preflight checks of an account for `mark doctor`, beside quotas and prices: credentials, mail, images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.aws.errors import translated, unless_absent
from mark.aws.prices import ARCHITECTURES
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_ecr.type_defs import ImageDetailTypeDef
    from mypy_boto3_sesv2.type_defs import GetEmailIdentityResponseTypeDef

BYTES_PER_GIB = 2.0**30
ZONE, NOT_IN = "availability-zone", "not-opted-in"
_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/"
    r"(?P<repository>[\w./-]+?)(?:@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[\w.-]+))"
)
NO_IMAGE = frozenset({"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAMIID.Malformed"})
"""EC2's codes for an image that is not there, not ours to use, or no id of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The owner of the credentials that are used."""

    account: str
    arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MailAccount:
    """The account's limits for mail. `sandbox`: to verified addresses only."""

    sandbox: bool
    sends: bool
    a_day: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineImage:
    """Machine image that instances start from: its root device, its disk's least size, its processor."""

    root_device: str
    root_gib: int
    architecture: str


def machine_image(aws: Aws, ami: str) -> MachineImage | None:
    """A machine image by its id; None where the region, or this account in it, has none."""
    found = unless_absent(lambda: aws.ec2.describe_images(ImageIds=[ami])["Images"], NO_IMAGE)
    if not found:
        return None
    root = found[0].get("RootDeviceName", "")
    disks = {disk.get("DeviceName"): disk.get("Ebs", {}) for disk in found[0].get("BlockDeviceMappings", [])}
    return MachineImage(
        root_device=root,
        root_gib=disks.get(root, {}).get("VolumeSize", 0),
        architecture=ARCHITECTURES.get(found[0].get("Architecture", ""), ""),
    )


def has_secret(aws: Aws, secret: str) -> bool:
    """True where Secrets Manager has a secret of this name or ARN, and is not about to delete it."""
    told = unless_absent(lambda: aws.secrets.describe_secret(SecretId=secret))
    return told is not None and "DeletedDate" not in told


def caller(aws: Aws) -> Caller:
    """Read the owner of the credentials. Misconfigured without any, or with such as AWS does not take."""
    with translated():
        told = aws.identity.get_caller_identity()
    return Caller(account=told["Account"], arn=told["Arn"])


def is_on_free_plan(aws: Aws) -> bool:
    """True where the account is on AWS's Free plan. Accounts of before July 2025 have no plan."""
    return unless_absent(lambda: aws.plan.get_account_plan_state()["accountPlanType"]) == "FREE"


def available_zones(aws: Aws) -> tuple[str, ...]:
    """Availability zones that the account may use in the region, by name; no local ones."""
    with translated():
        told = aws.ec2.describe_availability_zones(
            Filters=[{"Name": "state", "Values": ["available"]}, {"Name": "zone-type", "Values": [ZONE]}]
        )
    return tuple(sorted(one["ZoneName"] for one in told["AvailabilityZones"] if one.get("OptInStatus") != NOT_IN))


def zones_of(aws: Aws, subnets: Sequence[str]) -> tuple[str, ...]:
    """The zone of each subnet, in the order that they are given."""
    with translated():
        told = aws.ec2.describe_subnets(SubnetIds=list(subnets))
    found = {one["SubnetId"]: one["AvailabilityZone"] for one in told["Subnets"]}
    return tuple(found[subnet] for subnet in subnets)


def without_ipv6(aws: Aws, subnets: Sequence[str]) -> tuple[str, ...]:
    """Those of the subnets that have no IPv6 addresses to give."""
    with translated():
        told = aws.ec2.describe_subnets(SubnetIds=list(subnets))
    return tuple(
        one["SubnetId"]
        for one in told["Subnets"]
        if not any(
            block.get("Ipv6CidrBlockState", {}).get("State") == "associated"
            for block in one.get("Ipv6CidrBlockAssociationSet", [])
        )
    )


def mail_account(aws: Aws) -> MailAccount:
    """SES's account in the region."""
    with translated():
        told = aws.mail.get_account()
    return MailAccount(
        sandbox=not told.get("ProductionAccessEnabled", False),
        sends=told.get("SendingEnabled", False),
        a_day=told.get("SendQuota", {}).get("Max24HourSend", 0.0),
    )


def is_verified(aws: Aws, sender: str) -> bool | None:
    """True where mail may be sent from an address, by itself or by its domain; None where SES knows neither."""
    known = [told for name in _identities(sender) if (told := _identity(aws, name)) is not None]
    return any(told.get("VerifiedForSendingStatus", False) for told in known) if known else None


def configuration_set(aws: Aws, sender: str) -> str:
    """The configuration set that mail of an address goes through; empty where there is none."""
    known = [told for name in _identities(sender) if (told := _identity(aws, name)) is not None]
    return known[0].get("ConfigurationSetName", "") if known else ""


def manifest_type(aws: Aws, image: str) -> str | None:
    """Media type of the manifest of an image in ECR, by tag or digest; None without it, empty where ECR is silent.

    Misconfigured where the image is none of the account's region.
    """
    found = _image(aws, image)
    return None if found is None else found.get("imageManifestMediaType", "")


def image_gib(aws: Aws, image: str) -> float:
    """Compressed size of an image in ECR; 0 where it is not there. Of a list the largest. Errors as above."""
    found = _image(aws, image)
    return 0.0 if found is None else found.get("imageSizeInBytes", 0) / BYTES_PER_GIB


def _image(aws: Aws, image: str) -> ImageDetailTypeDef | None:
    found = _IMAGE.fullmatch(image)
    if found is None:
        raise Misconfigured(f"{image} is not in ECR: it must read ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG")
    if found["region"] != aws.settings.region:
        raise Misconfigured(f"{image} is in {found['region']}, the service in {aws.settings.region}")
    tag, digest = found["tag"], found["digest"]
    return unless_absent(
        lambda: aws.images.describe_images(
            registryId=found["account"],
            repositoryName=found["repository"],
            imageIds=[{"imageTag": tag} if tag else {"imageDigest": digest}],
        )["imageDetails"][0]
    )


def _identities(address: str) -> tuple[str, str]:
    return address, address.partition("@")[2]


def _identity(aws: Aws, name: str) -> GetEmailIdentityResponseTypeDef | None:
    return unless_absent(lambda: aws.mail.get_email_identity(EmailIdentity=name))
