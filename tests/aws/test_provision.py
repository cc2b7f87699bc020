"""What a service needs on AWS: made where missing, brought up to date, removed, also half of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mark.aws.archive import bucket_name, figures_key, journal_key, put_object, report_key
from mark.aws.functions.management import pack
from mark.aws.names import name_of
from mark.aws.provision import ServiceResources, set_up, tear_down
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Role
from mark.protocols.events import REBALANCE, SPOT, STATE
from tests.aws.builders import IMAGE, REPORT, aws, infer_function, launch, scene, service, zipped
from tests.aws.builders import SPOT as SPOT_OFFERING


@pytest.fixture
def there(moto: None) -> Iterator[Aws]:
    made = aws()
    yield made
    made.close()


def left(there: Aws) -> dict[str, int]:
    """How much there is of each kind."""
    return {
        "templates": len(there.ec2.describe_launch_templates()["LaunchTemplates"]),
        "queues": len(there.sqs.list_queues().get("QueueUrls", [])),
        "rules": len(there.events.list_rules()["Rules"]),
        "functions": len(there.lambda_.list_functions()["Functions"]),
        "mappings": len(there.lambda_.list_event_source_mappings()["EventSourceMappings"]),
        "roles": len(there.iam.list_roles()["Roles"]),
        "schedules": len(there.schedules.list_schedules()["Schedules"]),
        "alarms": len(there.alarms.describe_alarms()["MetricAlarms"]),
    }


ALL = {
    "templates": 4,
    "queues": 3,
    "rules": 3,
    "functions": 5,
    "mappings": 1,
    "roles": 2,
    "schedules": 1,
    "alarms": 1,
}
WITH_REPORT = ALL | {"functions": 6, "schedules": 2}
NOTHING = dict.fromkeys(ALL, 0)


def test_it_is_made_once_and_asking_again_changes_nothing(there: Aws) -> None:
    first = set_up(there, service())
    assert left(there) == ALL
    assert set_up(there, service()) == first
    assert left(there) == ALL
    for template in there.ec2.describe_launch_templates()["LaunchTemplates"]:
        assert template["LatestVersionNumber"] == 1
        assert {tag["Key"]: tag["Value"] for tag in template["Tags"]} == {
            "mark:service": "shop",
            "mark:owner": "mark",
        }
    instances_are_told_where_they_belong(there, first)
    what_ec2_says_comes_to_the_interruption_function(there, first)


def instances_are_told_where_they_belong(there: Aws, made: ServiceResources) -> None:
    [version] = there.ec2.describe_launch_template_versions(
        LaunchTemplateName=made.templates[Role.SERVING, "amd64"]
    )["LaunchTemplateVersions"]
    data = version["LaunchTemplateData"]

    assert json.loads(base64.b64decode(data["UserData"])) == {"service": "shop", "store_url": "redis://x"}
    assert data["ImageId"] == IMAGE
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["InstanceMetadataTags"] == "enabled"


def what_ec2_says_comes_to_the_interruption_function(there: Aws, made: ServiceResources) -> None:
    [arn] = there.sqs.get_queue_attributes(QueueUrl=made.raw_url, AttributeNames=["QueueArn"])[
        "Attributes"
    ].values()
    heard = []
    for rule in there.events.list_rules()["Rules"]:
        pattern = json.loads(rule["EventPattern"])
        assert pattern["source"] == ["aws.ec2"]
        heard += pattern["detail-type"]
        assert [t["Arn"] for t in there.events.list_targets_by_rule(Rule=rule["Name"])["Targets"]] == [arn]
    assert sorted(heard) == sorted([SPOT, REBALANCE, STATE])
    [mapping] = there.lambda_.list_event_source_mappings()["EventSourceMappings"]
    assert mapping["EventSourceArn"] == arn
    assert mapping["FunctionArn"].endswith("mark-shop-interruption")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    function = there.lambda_.get_function_configuration(FunctionName="mark-shop-interruption")
    assert function["Environment"]["Variables"]["EVENTS_QUEUE_URL"] == made.events_url
    attributes = there.sqs.get_queue_attributes(QueueUrl=made.raw_url, AttributeNames=["All"])["Attributes"]
    assert json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"].endswith("mark-shop-raw-dead")
    assert int(attributes["VisibilityTimeout"]) >= 6 * function["Timeout"]


def test_a_report_is_mailed_on_its_schedule_as_long_as_one_is_asked_for(there: Aws) -> None:
    with_report = service(rollout={"report": REPORT})
    made = set_up(there, with_report)
    assert set_up(there, with_report) == made
    assert left(there) == WITH_REPORT
    schedule = there.schedules.get_schedule(Name="mark-shop-report")
    assert schedule["ScheduleExpression"] == "cron(0 7 * * ? *)"
    function = there.lambda_.get_function_configuration(FunctionName="mark-shop-report")
    assert schedule["Target"]["Arn"] == function["FunctionArn"]
    assert function["Environment"]["Variables"] == {
        "MARK_SERVICE": "shop",
        "MARK_STORE_URL": "redis://x",
        "MARK_REPORT_FROM": "mark@a.example",
        "MARK_REPORT_TO": "team@b.example",
        "MARK_REPORT_BUCKET": made.bucket,
        "AWS_SDK_UA_APP_ID": "mark-report",
    }
    document = there.iam.get_role_policy(RoleName="mark-shop-functions", PolicyName="handlers")["PolicyDocument"]
    assert f"{made.bucket}/reports/*" in json.dumps(document)

    set_up(there, service(rollout={"report": REPORT | {"schedule": "rate(1 day)"}}))
    assert there.schedules.get_schedule(Name="mark-shop-report")["ScheduleExpression"] == "rate(1 day)"
    set_up(there, service())
    assert left(there)["schedules"] == ALL["schedules"]
    tear_down(there, "shop")
    assert left(there) == NOTHING


def test_the_bucket_keeps_what_it_is_told_to_and_stays(there: Aws) -> None:
    made = set_up(there, service(rollout={"archive": {"journals_days": 400}}))
    set_up(there, service(rollout={"archive": {"journals_days": 90}}))
    rules = there.objects.get_bucket_lifecycle_configuration(Bucket=made.bucket)["Rules"]
    assert {rule["ID"]: rule.get("Expiration", {}).get("Days") for rule in rules} == {
        "old-versions": None,
        "old-journal": 90,
    }
    assert there.objects.get_bucket_versioning(Bucket=made.bucket)["Status"] == "Enabled"
    tags = there.objects.get_bucket_tagging(Bucket=made.bucket)["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"mark:service": "shop", "mark:owner": "mark"}
    put_object(there.objects, made.bucket, "reports/shop/x.html", b"<p>", content_type="text/html")
    tear_down(there, "shop")
    assert there.objects.get_object(Bucket=made.bucket, Key="reports/shop/x.html")["Body"].read() == b"<p>"
    set_up(there, service())
    assert len(there.objects.list_objects_v2(Bucket=made.bucket)["Contents"]) == 1


def test_names_in_the_bucket_sort_by_time() -> None:
    at = datetime(2026, 11, 21, 23, 59, 30, tzinfo=UTC).timestamp()
    names = [
        journal_key("shop", "m", at=at + 40, run="aaaaaaaaaaaa", segment=1),
        journal_key("shop", "m", at=at, run="ffffffffffff", segment=12),
        journal_key("shop", "m", at=at - 3600, run="bbbbbbbbbbbb", segment=9),
    ]
    assert sorted(names) == names[::-1]
    assert names[1] == "journal/shop/m/2026-11-21/235930-ffffffff-000012.jsonl.gz"
    assert figures_key("shop", "m", at) == "journal/shop/m/2026-11-21/figures.json.gz"
    assert report_key("shop", at) == "reports/shop/2026-11-21.html"


def test_what_has_changed_is_brought_up_to_date(there: Aws) -> None:
    set_up(there, service())
    infer = replace(infer_function(), environment={"A": "2"}, memory_mib=1024)
    before = there.lambda_.get_function_configuration(FunctionName=infer.name)
    set_up(there, service(agents_store="redis://y", infer=infer, code=zipped("pass  # better")))

    function = there.lambda_.get_function_configuration(FunctionName=infer.name)
    assert function["Environment"]["Variables"] == {
        "A": "2",
        "AWS_SDK_UA_APP_ID": "mark-infer",
        "MARK_VERSIONS_BUCKET": bucket_name("shop", "123456789012"),
    }
    assert function["MemorySize"] == 1024
    assert function["CodeSha256"] != before["CodeSha256"]
    [template] = there.ec2.describe_launch_templates(LaunchTemplateNames=["mark-shop-serving"])["LaunchTemplates"]
    assert template["DefaultVersionNumber"] == template["LatestVersionNumber"] == 2


def test_nothing_is_left_behind_and_others_keep_theirs(moto: None) -> None:
    there = scene(whole=True)
    there.cloud.submit(launch(3, kind=SPOT_OFFERING.name))
    ids = there.ids()
    set_up(there.aws, service("shop-b"))

    assert tear_down(there.aws, "shop") == tuple(ids)
    assert left(there.aws) == ALL
    assert set(there.states().values()) == {"terminated"}
    assert tear_down(there.aws, "shop-b") == ()
    assert left(there.aws) == NOTHING
    assert tear_down(there.aws, "shop-b") == ()
    there.close()


@pytest.mark.parametrize("first", [True, False])
def test_half_of_it_is_completed_and_removed(there: Aws, first: bool) -> None:
    def lose() -> None:
        if first:
            there.ec2.delete_launch_template(LaunchTemplateName="mark-shop-standby")
            there.events.remove_targets(Rule="mark-shop-rebalance", Ids=["raw"])
            there.events.delete_rule(Name="mark-shop-rebalance")
            [mapping] = there.lambda_.list_event_source_mappings()["EventSourceMappings"]
            there.lambda_.delete_event_source_mapping(UUID=mapping["UUID"])
        else:
            there.sqs.delete_queue(QueueUrl=made.events_url)
            there.lambda_.delete_function(FunctionName="mark-shop-interruption")
            there.iam.delete_role_policy(RoleName="mark-shop-functions", PolicyName="handlers")

    made = set_up(there, service())
    lose()
    set_up(there, service())
    assert left(there) == ALL
    lose()
    tear_down(there, "shop")
    assert left(there) == NOTHING


def test_names_that_aws_would_not_take_are_refused() -> None:
    assert name_of("shop", "inception-v3") == "mark-shop-inception-v3"
    for bad in ("a b", "ä", "x" * 60, "a.b"):
        with pytest.raises(Misconfigured):
            name_of(bad, "raw-dead")


def test_the_same_files_are_the_same_zip(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "a.py").write_text("x = 1")
    (package / "a.txt").write_text("not code")
    first = pack(package)
    (package / "a.py").write_text("x = 1")

    assert pack(package) == first
    (package / "a.py").write_text("x = 2")
    assert pack(package) != first
