"""The emulated AWS asks IAM before every call of a role, with the policies that a rollout gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mark.aws.account.linked_roles import make_linked_roles
from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.policies import Names
from mark.aws.permissions.scopes import LINKED_FOR
from mark.emulator.authorization.accesses import RULES
from mark.emulator.config import ACCOUNT, REGION
from tests.emulator.conftest import World, fleet, template

NAMES = Names(service="demo", region=REGION, account=ACCOUNT, bucket="mark-demo-archive", sender="from@a.example")


@pytest.fixture
def judged(start: Callable[..., World]) -> World:
    return start(names=NAMES)


@pytest.fixture
def as_role(judged: World) -> Iterator[Callable[[str, str], Any]]:
    """Makes clients that say their role, as the service's own do."""
    made = []

    def client(role: str, service: str) -> Any:
        config = Config(user_agent_appid=f"mark-{role}", retries={"total_max_attempts": 1})
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": REGION}
        made.append(boto3.client(service, endpoint_url=judged.url, config=config, **keys))
        return made[-1]

    yield client
    for one in made:
        one.close()


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


def test_only_instances_of_the_service_are_ended(judged: World, as_role: Callable[..., Any]) -> None:
    own = fleet(judged, template(judged))["Instances"][0]["InstanceIds"]
    mine = judged.client("ec2")
    other = mine.run_instances(ImageId="ami-12c6146b", InstanceType="c5.large", MinCount=1, MaxCount=1)
    foreign = [other["Instances"][0]["InstanceId"]]
    controller = as_role("controller", "ec2")
    assert refusal(lambda: controller.terminate_instances(InstanceIds=foreign)) == "UnauthorizedOperation"
    assert refusal(lambda: controller.terminate_instances(InstanceIds=[*own, *foreign])) == "UnauthorizedOperation"
    assert controller.terminate_instances(InstanceIds=own)["TerminatingInstances"]
    assert refusal(lambda: as_role("gateway", "ec2").describe_instances()) == "UnauthorizedOperation"
    [message] = [one for one in judged.state()["permissions"]["refused"] if "gateway" in one]
    assert "ec2:DescribeInstances on resource: *" in message


REFUSED: tuple[tuple[str, str, Callable[[Any], Any], str], ...] = (
    ("warm", "sqs", lambda c: c.get_queue_url(QueueName="mark-demo-raw"), "AccessDenied"),
    ("setup", "sqs", lambda c: c.create_queue(QueueName="mark-other-raw"), "AccessDenied"),
    ("setup", "s3", lambda c: c.create_bucket(Bucket="another"), "AccessDenied"),
    ("controller", "s3", lambda c: c.put_object(Bucket="mark-demo-archive", Key="reports/x"), "AccessDenied"),
    ("setup", "iam", lambda c: c.get_role(RoleName="admin"), "AccessDenied"),
    ("setup", "events", lambda c: c.delete_rule(Name="another"), "AccessDeniedException"),
    ("gateway", "lambda", lambda c: c.invoke(FunctionName="another"), "AccessDeniedException"),
    ("setup", "cloudwatch", lambda c: c.delete_alarms(AlarmNames=["mark-demo-x", "y"]), "AccessDenied"),
    ("node", "dynamodb", lambda c: c.delete_table(TableName="mark-demo-lease"), "AccessDeniedException"),
    ("somebody", "ec2", lambda c: c.describe_instances(), "UnauthorizedOperation"),
)


def test_what_a_role_is_not_granted_is_refused_in_the_services_own_code(as_role: Callable[..., Any]) -> None:
    for role, service, call, code in REFUSED:
        client = as_role(role, service)
        assert refusal(lambda call=call, client=client: call(client)) == code, (role, service)


@pytest.mark.parametrize("role", ["report", "snapshot-report"])
def test_a_report_is_mailed_whoever_is_an_identity_and_from_its_sender_alone(
    judged: World, as_role: Callable[..., Any], role: str
) -> None:
    """In the sandbox every recipient is one, and each identity may have a configuration set."""
    judged.client("sesv2").create_email_identity(EmailIdentity="a.example", ConfigurationSetName="all")
    judged.mark("POST", "mail", {"verify": ["a.example", "to@b.example"]})
    client, raw = as_role(role, "sesv2"), {"Raw": {"Data": b"Subject: spend\n\n1 USD"}}
    to = {"ToAddresses": ["to@b.example"]}
    assert client.send_email(FromEmailAddress="from@a.example", Destination=to, Content=raw)["MessageId"]
    another = refusal(lambda: client.send_email(FromEmailAddress="x@a.example", Destination=to, Content=raw))
    assert another == "AccessDeniedException"
    judged.client("sesv2").delete_email_identity(EmailIdentity="a.example")


def test_a_launch_must_tag_what_it_makes_and_start_from_an_own_template(
    judged: World, as_role: Callable[..., Any]
) -> None:
    ec2, controller = judged.client("ec2"), as_role("controller", "ec2")

    def made(name: str, service: str) -> str:
        tags = [{"Key": "mark:service", "Value": service}, {"Key": "mark:owner", "Value": "team"}]
        volume = {"ResourceType": "volume", "Tags": tags}
        found = ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={"ImageId": "ami-12c6146b", "TagSpecifications": [volume]},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
        )
        return str(found["LaunchTemplate"]["LaunchTemplateId"])

    def launch(template_id: str, **tags: str) -> Any:
        given = [{"Key": f"mark:{key}", "Value": value} for key, value in tags.items()]
        reference = {"LaunchTemplateId": template_id, "Version": "$Latest"}
        return controller.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {"LaunchTemplateSpecification": reference, "Overrides": [{"InstanceType": "c5.large"}]}
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
            TagSpecifications=[{"ResourceType": kind, "Tags": given} for kind in ("fleet", "instance")],
        )

    own, foreign = made("own", "demo"), made("foreign", "other")
    assert refusal(lambda: launch(own, owner="demo")) == "UnauthorizedOperation"
    assert refusal(lambda: launch(foreign, service="demo", owner="team")) == "UnauthorizedOperation"
    assert launch(own, service="demo", owner="team")["Instances"]
    used = judged.state()["permissions"]["used"]["controller"]
    assert {
        "LaunchTemplates ec2:RunInstances",
        "TagLaunched ec2:CreateTags",
        "SpotRole iam:CreateServiceLinkedRole",
    } <= set(used)


def test_a_deploy_makes_the_roles_of_aws_s_services_and_of_no_other(as_role: Callable[..., Any]) -> None:
    """Twice is no error: an account that has them was deployed to before."""
    deployer: Any = SimpleNamespace(iam=as_role("deployer", "iam"))
    assert make_linked_roles(deployer, LINKED_FOR) == LINKED_FOR
    assert make_linked_roles(deployer, LINKED_FOR) == ()
    other = refusal(lambda: deployer.iam.create_service_linked_role(AWSServiceName="lex.amazonaws.com"))
    assert other == "AccessDenied"


def test_who_says_no_role_owns_the_account(judged: World) -> None:
    assert judged.client("sqs").create_queue(QueueName="anything")


def test_every_call_that_a_role_makes_has_a_rule() -> None:
    """But those of CloudFormation: no stack of a service is made on the emulated AWS."""
    calls = {(call.service, call.action) for calls in ROLES.values() for call in calls}
    assert {call for call in calls - set(RULES) if call[0] != "cloudformation"} == set()
    assert set(RULES) <= calls
