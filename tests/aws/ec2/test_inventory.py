"""What of a service is found by its tag."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.ec2.inventory import loose_volumes
from mark.aws.session import Aws
from mark.aws.tagged import tagged_resources
from mark.deployment import destroy
from mark.domain.errors import Misconfigured
from tests.aws.builders import aws


def volume(there: Aws, service: str) -> str:
    tags: Any = [{"ResourceType": "volume", "Tags": [{"Key": "mark:service", "Value": service}]}]
    return there.ec2.create_volume(AvailabilityZone="us-east-1a", Size=30, TagSpecifications=tags)["VolumeId"]


class NoStacks:
    """No stack stands any more."""

    def state(self, name: str) -> None:
        return None


class Archive:
    """The one stack that stays, with a bucket and a log group."""

    def state(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, tags={"mark:service": "shop"})

    def resources(self, name: str) -> dict[str, str]:
        return {"Bucket": "shop-bucket", "Logs": "/mark/shop", "Policy": ""}


def said_of(there: Aws, stacks: Any, capsys: pytest.CaptureFixture[str], service: str = "shop") -> str:
    account: Any = SimpleNamespace(aws=there, stacks=stacks)
    destroy._say_what_is_left(account, service, "mark-shop-archive")
    return capsys.readouterr().out


def test_volumes_that_outlived_their_instances_are_named_with_what_removes_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with mock_aws():
        there = aws()
        made = there.ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
        used, loose = volume(there, "shop"), volume(there, "shop")
        volume(there, "shop-b")
        there.ec2.attach_volume(VolumeId=used, InstanceId=made["Instances"][0]["InstanceId"], Device="/dev/sdf")
        assert loose_volumes(there, "shop") == (loose,)
        said = said_of(there, NoStacks(), capsys)
        assert "1 volume of ended instances" in said
        assert f"aws ec2 delete-volume --volume-id {loose}" in said
        assert not said_of(there, NoStacks(), capsys, "another")
        there.close()


def test_whatever_else_has_the_tag_is_named_but_for_what_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with mock_aws():
        there = aws()
        tags = {"mark:service": "shop"}
        there.sqs.create_queue(QueueName="forgotten", tags=tags)
        there.sqs.create_queue(QueueName="of-another", tags={"mark:service": "shop-b"})
        there.objects.create_bucket(Bucket="shop-bucket")
        listed: Any = {"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}
        there.objects.put_bucket_tagging(Bucket="shop-bucket", Tagging=listed)
        found = tagged_resources(there, "shop")
        assert {arn.split(":")[-1] for arn in found} == {"forgotten", "shop-bucket"}
        kept = said_of(there, Archive(), capsys)
        assert "with the tag mark:service=shop" in kept
        assert [line for line in kept.splitlines() if line.startswith("  arn:")] == [
            f"  {arn}" for arn in found if "forgotten" in arn
        ]
        assert "shop-bucket" in said_of(there, NoStacks(), capsys)
        there.close()


def test_an_account_that_does_not_tell_what_has_the_tag_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(aws: Aws, service: str) -> tuple[str, ...]:
        raise Misconfigured("not authorized to perform: tag:GetResources")

    monkeypatch.setattr(destroy, "tagged_resources", refuse)
    with mock_aws():
        there = aws()
        said = said_of(there, NoStacks(), capsys)
        assert "does not say what else has the tag mark:service=shop: not authorized" in said
        there.close()


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:s3:::bucket", "bucket"),
        ("arn:aws:logs:eu-west-1:123456789012:log-group:/mark/shop", "/mark/shop"),
        ("arn:aws:cloudformation:eu-west-1:123456789012:stack/mark-shop-archive/1b2", "mark-shop-archive"),
        ("arn:aws:ec2:eu-west-1:123456789012:volume/vol-1", "vol-1"),
    ],
)
def test_a_resource_is_known_by_the_name_that_its_stack_has(arn: str, name: str) -> None:
    assert name in destroy.names_in(arn)
