"""Provisioning of a service's resources on AWS: made where missing, tagged with the service; and removal.

EventBridge rules -> queue `raw` (dead letters apart) -> function `interruption` -> queue `events`
launch templates: `serving` ends, `standby` stops, when an instance powers itself off
functions: one `infer` a model, `interruption`, `warm`, and `report` where one is mailed, on a schedule; one role
a bucket for what outlives the service, which stays; an alarm on dead letters
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mark.aws.alarms import DEAD_LETTERS, make_alarm, remove_alarm
from mark.aws.archive import Keeping, bucket_name, make_bucket
from mark.aws.ec2.launch import LIVE, OWNER, SERVICE
from mark.aws.errors import NOT_THERE, absent_is_done, code_of, translated
from mark.aws.functions.management import (
    FunctionSetup,
    feed,
    make_function,
    make_role,
    remove_functions,
    remove_roles,
)
from mark.aws.names import RULES, name_of, template_name
from mark.aws.permissions.policies import Names
from mark.aws.schedules import ReportSetup, make_schedule, remove_schedule, report_function
from mark.aws.session import Aws
from mark.domain.errors import MarkError
from mark.domain.fleet import Role
from mark.protocols.events import REBALANCE, SOURCE, SPOT, STATE

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import TagSpecificationTypeDef

HANDLER_TIMEOUT_S = 10
WARM_TIMEOUT_S = 60
RAW_ATTEMPTS = 5
"""After so many failures a message of `raw` is a dead letter."""
KEEP_S = 24 * 3600
"""Events of yesterday are of no use."""
AT_ONCE = 500
"""Instances that are ended in one call; EC2 allows 1,000."""
DETAIL_TYPES = dict(zip(RULES, (SPOT, REBALANCE, STATE), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSetup:
    """A service. `store_url` goes into the instances' user data; `infer` are its models' functions.

    `code` is the zip of the interruption, warm and report handlers, `handler_memory_mib` the first two's memory.
    `report`: the one that is mailed, if any. `keeping`: what the bucket forgets.
    """

    service: str
    store_url: str
    image_id: str
    infer: Sequence[FunctionSetup]
    code: bytes
    instance_profile: str = ""
    security_groups: tuple[str, ...] = ()
    handler_memory_mib: int = 256
    owner: str = "mark"
    report: ReportSetup | None = None
    keeping: Keeping = field(default_factory=Keeping)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResources:
    """The addresses of the resources."""

    raw_url: str
    events_url: str
    bucket: str
    templates: Mapping[Role, str]
    functions: tuple[str, ...]


def set_up(aws: Aws, setup: ServiceSetup) -> ServiceResources:
    """Make what is missing, bring up to date what is there; asking again changes nothing."""
    service = setup.service
    templates = {role: _make_template(aws, setup, role) for role in Role}
    _, dead_arn = _make_queue(aws, service, DEAD_LETTERS, {})
    redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": RAW_ATTEMPTS})
    raw = {"VisibilityTimeout": str(6 * HANDLER_TIMEOUT_S), "RedrivePolicy": redrive}  # 6 times: Lambda's guide
    raw_url, raw_arn = _make_queue(aws, service, "raw", raw)
    events_url, _ = _make_queue(aws, service, "events", {})
    rules = [_make_rule(aws, service, rule, raw_arn) for rule in RULES]
    with translated():
        aws.sqs.set_queue_attributes(QueueUrl=raw_url, Attributes={"Policy": _queue_policy(raw_arn, rules)})
    make_alarm(aws, service, owner=setup.owner)
    names = _names(setup, raw_arn)
    make_bucket(aws, names.bucket, service=service, owner=setup.owner, keeping=setup.keeping)
    return ServiceResources(
        raw_url=raw_url,
        events_url=events_url,
        bucket=names.bucket,
        templates=templates,
        functions=_make_functions(aws, setup, names, events_url=events_url, raw_arn=raw_arn),
    )


def _make_functions(
    aws: Aws, setup: ServiceSetup, names: Names, *, events_url: str, raw_arn: str
) -> tuple[str, ...]:
    """The functions, their role, and what calls them; their names."""
    service, report = setup.service, setup.report
    role_arn = make_role(aws, names, mails=report is not None)
    made: list[str] = []

    def make(function: FunctionSetup) -> str:
        made.append(function.name)
        return make_function(aws, function, service=service, owner=setup.owner, role_arn=role_arn)

    handlers = _handlers(setup, events_url)
    for function in (*setup.infer, *handlers):
        make(function)
    feed(aws, handlers[0].name, raw_arn)
    if report is None:
        remove_schedule(aws, service)
    else:
        told = {"MARK_STORE_URL": setup.store_url, "MARK_REPORT_BUCKET": names.bucket, **_said("report")}
        arn = make(report_function(report, told, service=service, code=setup.code))
        make_schedule(aws, report, service=service, owner=setup.owner, function_arn=arn)
    return tuple(made)


def tear_down(aws: Aws, service: str) -> tuple[str, ...]:
    """End every instance of the service and remove what `set_up` made, also half of it; the instances ended.

    Templates go first: a launch under way then fails or is listed. The bucket stays, as a stack's does.
    """
    _remove_templates(aws, service)
    ended = end_instances(aws, service)
    for rule in RULES:
        with absent_is_done():
            aws.events.remove_targets(Rule=name_of(service, rule), Ids=["raw"])
        with absent_is_done():
            aws.events.delete_rule(Name=name_of(service, rule))
    remove_schedule(aws, service)
    remove_functions(aws, service)
    remove_roles(aws, service)
    remove_alarm(aws, service)
    for queue in ("raw", DEAD_LETTERS, "events"):
        with absent_is_done():
            url = aws.sqs.get_queue_url(QueueName=name_of(service, queue))["QueueUrl"]
            aws.sqs.delete_queue(QueueUrl=url)
    return ended


def _remove_templates(aws: Aws, service: str) -> None:
    with translated():
        pages = aws.ec2.get_paginator("describe_launch_templates").paginate(
            Filters=[{"Name": f"tag:{SERVICE}", "Values": [service]}]
        )
        names = [template["LaunchTemplateName"] for page in pages for template in page["LaunchTemplates"]]
    for name in names:
        with absent_is_done():
            aws.ec2.delete_launch_template(LaunchTemplateName=name)


def end_instances(aws: Aws, service: str) -> tuple[str, ...]:
    """Ask EC2 to end every instance that carries the service's tag and is not gone; those it had."""
    with translated():
        pages = aws.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{SERVICE}", "Values": [service]},
                {"Name": "instance-state-name", "Values": LIVE},
            ]
        )
        names = sorted(
            instance["InstanceId"]
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation.get("Instances", [])
        )
    for start in range(0, len(names), AT_ONCE):
        with absent_is_done():
            aws.ec2.terminate_instances(InstanceIds=names[start : start + AT_ONCE])
    return tuple(names)


def _handlers(setup: ServiceSetup, events_url: str) -> tuple[FunctionSetup, FunctionSetup]:
    interruption = FunctionSetup(
        name=name_of(setup.service, "interruption"),
        handler="lambda_handlers.interruption.handler",
        code=setup.code,
        memory_mib=setup.handler_memory_mib,
        timeout_s=HANDLER_TIMEOUT_S,
        environment={"EVENTS_QUEUE_URL": events_url, **_said("interruption")},
    )
    warm = FunctionSetup(
        name=name_of(setup.service, "warm"),
        handler="lambda_handlers.warm.handler",
        code=setup.code,
        memory_mib=setup.handler_memory_mib,
        timeout_s=WARM_TIMEOUT_S,
        environment=_said("warm"),
    )
    return interruption, warm


def _said(role: str) -> dict[str, str]:
    """Environment that has the SDK name its caller, as `session.py` does."""
    return {"AWS_SDK_UA_APP_ID": f"mark-{role}"}


def _make_template(aws: Aws, setup: ServiceSetup, role: Role) -> str:
    """The launch template of a role; a new default version where its content has changed."""
    name, data = template_name(setup.service, role), _template_data(setup, role)
    try:
        with translated():
            versions = aws.ec2.describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Default"])
    except MarkError as error:
        if code_of(error) not in NOT_THERE:
            raise
        tags: TagSpecificationTypeDef = {
            "ResourceType": "launch-template",
            "Tags": [{"Key": SERVICE, "Value": setup.service}, {"Key": OWNER, "Value": setup.owner}],
        }
        with translated():
            aws.ec2.create_launch_template(
                LaunchTemplateName=name,
                LaunchTemplateData=data,  # type: ignore[arg-type]
                TagSpecifications=[tags],
            )
        return name
    if not _holds(versions["LaunchTemplateVersions"][0]["LaunchTemplateData"], data):
        with translated():
            made = aws.ec2.create_launch_template_version(LaunchTemplateName=name, LaunchTemplateData=data)  # type: ignore[arg-type]
            number = made["LaunchTemplateVersion"]["VersionNumber"]
            aws.ec2.modify_launch_template(LaunchTemplateName=name, DefaultVersion=str(number))
    return name


def _template_data(setup: ServiceSetup, role: Role) -> dict[str, Any]:
    user_data = json.dumps({"service": setup.service, "store_url": setup.store_url})
    data: dict[str, Any] = {
        "ImageId": setup.image_id,
        "UserData": base64.b64encode(user_data.encode()).decode(),
        "InstanceInitiatedShutdownBehavior": "stop" if role is Role.STANDBY else "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
    }
    if setup.instance_profile:
        data["IamInstanceProfile"] = {"Name": setup.instance_profile}
    if setup.security_groups:
        data["SecurityGroupIds"] = list(setup.security_groups)
    return data


def _holds(have: object, wanted: object) -> bool:
    """True where all that is wanted is there; AWS adds what it defaults to."""
    if isinstance(wanted, Mapping):
        return isinstance(have, Mapping) and all(_holds(have.get(key), value) for key, value in wanted.items())
    return have == wanted


def _make_queue(aws: Aws, service: str, part: str, attributes: Mapping[str, str]) -> tuple[str, str]:
    """The queue's URL and ARN."""
    name, wanted = name_of(service, part), {"MessageRetentionPeriod": str(KEEP_S), **attributes}
    try:
        with translated():
            url = aws.sqs.get_queue_url(QueueName=name)["QueueUrl"]
            aws.sqs.set_queue_attributes(QueueUrl=url, Attributes=wanted)  # type: ignore[arg-type]
    except MarkError as error:
        if code_of(error) not in NOT_THERE:
            raise
        with translated():
            made = aws.sqs.create_queue(QueueName=name, Attributes=wanted, tags={SERVICE: service})  # type: ignore[arg-type]
        url = made["QueueUrl"]
    with translated():
        read = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, read["Attributes"]["QueueArn"]


def _make_rule(aws: Aws, service: str, rule: str, raw_arn: str) -> str:
    """A rule that sends EC2's events into the raw queue; its ARN."""
    name = name_of(service, rule)
    pattern = {"source": [SOURCE], "detail-type": [DETAIL_TYPES[rule]]}
    with translated():
        made = aws.events.put_rule(
            Name=name,
            EventPattern=json.dumps(pattern),
            State="ENABLED",
            Tags=[{"Key": SERVICE, "Value": service}],
        )
        answer = aws.events.put_targets(Rule=name, Targets=[{"Id": "raw", "Arn": raw_arn}])
    if answer["FailedEntryCount"]:
        raise MarkError(f"rule {name} has no target: {answer['FailedEntries']}")
    return made["RuleArn"]


def _queue_policy(raw_arn: str, rules: Sequence[str]) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": raw_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": list(rules)}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _names(setup: ServiceSetup, raw_arn: str) -> Names:
    """The service as its permissions name it."""
    _, partition, _, region, account, _ = raw_arn.split(":")
    return Names(
        service=setup.service,
        owner=setup.owner,
        region=region,
        account=account,
        partition=partition,
        bucket=bucket_name(setup.service, account),
        sender=setup.report.sender if setup.report else "",
    )
