"""`mark destroy --all` in an account that moto keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import Stacks, StackTemplate
from mark.config.settings import Settings
from mark.deployment.destroy import destroy
from tests.aws.builders import aws

TAGS = {"mark:service": "shop"}
BUCKET = {"Type": "AWS::S3::Bucket", "Properties": {}}
QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "mark-shop-raw"}}
SHOP = Settings.model_validate({"service": {"name": "shop"}})


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        made = aws()
        yield made
        made.close()


def service(there: Aws) -> Stacks:
    """A service whose bucket holds two versions of an object and a third that was removed, and a loose disk."""
    stacks = Stacks(there, poll_s=0.01)
    for part, resources in (("archive", {"Bucket": BUCKET}), ("events", {"Raw": QUEUE})):
        change_set = stacks.prepare(f"mark-shop-{part}", {"Resources": resources}, tags=TAGS)
        assert change_set is not None
        list(stacks.carry_out(change_set))
    bucket = stacks.resources("mark-shop-archive")["Bucket"]
    versioned: Any = {"Status": "Enabled"}  # which moto does not read in a template
    there.objects.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=versioned)
    for body in (b"1", b"2"):
        there.objects.put_object(Bucket=bucket, Key="journal/shop", Body=body)
    there.objects.delete_object(Bucket=bucket, Key="journal/shop")
    tagged: Any = [{"ResourceType": "volume", "Tags": [{"Key": "mark:service", "Value": "shop"}]}]
    for tags in (tagged, []):
        there.ec2.create_volume(AvailabilityZone="us-east-1a", Size=8, TagSpecifications=tags)
    return stacks


@pytest.mark.parametrize("first", [False, True], ids=["at once", "after a removal"])
def test_all_of_a_service_goes_and_nothing_of_anybody_else(
    there: Aws, capsys: pytest.CaptureFixture[str], *, first: bool
) -> None:
    stacks = service(there)
    if first:
        destroy(SHOP, yes=True)
        assert [one.name for one in stacks.named("mark-shop-")] == ["mark-shop-archive"]
        assert "for good: mark destroy --all" in capsys.readouterr().out
        assert len(there.ec2.describe_volumes()["Volumes"]) == 2
    destroy(SHOP, yes=True, everything=True)
    assert stacks.named("mark-shop-") == ()
    assert there.objects.list_buckets()["Buckets"] == []
    [kept] = there.ec2.describe_volumes()["Volumes"]
    assert not kept.get("Tags"), "another's"
    said = capsys.readouterr()
    assert "goes for good: mark-shop-archive, with all reports, journals and logs" in said.out
    assert "removed 3 objects" in said.err
    destroy(SHOP, yes=True, everything=True)
    assert "nothing of shop stands" in capsys.readouterr().out


def test_an_archive_of_that_name_without_the_tag_stays(there: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    stacks = service(there)
    destroy(SHOP, yes=True, everything=True)
    template: StackTemplate = {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {}}}}
    change_set = stacks.prepare("mark-shop-archive", template, tags={})
    assert change_set is not None
    list(stacks.carry_out(change_set))
    destroy(SHOP, yes=True, everything=True)
    assert [one.name for one in stacks.named("mark-shop-")] == ["mark-shop-archive"]
    assert "goes for good" not in capsys.readouterr().out.rpartition("is gone")[2]
