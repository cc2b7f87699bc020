"""Provisioning of a service's resources on AWS: made where missing, tagged with the service; and removal.

`resources.py` describes them. All functions run as one role; the bucket stays when the rest is removed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mark.aws.alarms import make_alarm, remove_alarm
from mark.aws.archive import bucket_name, make_bucket
from mark.aws.ec2.inventory import described
from mark.aws.ec2.tags import SERVICE
from mark.aws.error_codes import NOT_THERE
from mark.aws.errors import absent_is_done, code_of, translated, unless_absent
from mark.aws.functions.management import (
    feed,
    make_function,
    make_role,
    remove_functions,
    remove_roles,
)
from mark.aws.names import QUEUES, RULES, TRAIN, WEBHOOK, name_of
from mark.aws.permissions.policies import Names
from mark.aws.resources import (
    WEBHOOK_SECRET,
    Deferred,
    QueueSpec,
    Resources,
    RuleSpec,
    TemplateSpec,
    queue_policy,
    tag_list,
)
from mark.aws.schedules import make_schedules, remove_schedules
from mark.aws.session import Aws
from mark.domain.errors import MarkError
from mark.domain.fleet.instances import Role

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import TagSpecificationTypeDef

AT_ONCE = 500
"""Instances that are ended in one call; EC2 allows 1,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSetup:
    """A service: its resources, and what is in them.

    `agents_store`, a URL, goes into the instances' user data, `reports_store` is told to the report. `code` is the
    functions' zip.
    """

    resources: Resources
    agents_store: str
    reports_store: str
    image_id: str
    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResources:
    """The addresses of the resources."""

    raw_url: str
    events_url: str
    bucket: str
    templates: Mapping[tuple[Role, str], str]
    functions: tuple[str, ...]


def set_up(aws: Aws, setup: ServiceSetup) -> ServiceResources:
    """Make what is missing, bring up to date what is there; asking again changes nothing."""
    wanted = setup.resources
    for template in wanted.templates.values():
        _make_template(aws, setup, template)
    dead = _make_queue(aws, wanted, wanted.dead_letters)
    raw = _make_queue(aws, wanted, wanted.raw, dead_letters_arn=dead.arn)
    events = _make_queue(aws, wanted, wanted.events)
    rules = [_make_rule(aws, wanted, rule, raw.arn) for rule in wanted.rules]
    for queue, senders in ((dead, ()), (raw, rules), (events, ())):
        policy = json.dumps(queue_policy(queue.arn, senders))
        with translated():
            aws.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": policy})
    make_alarm(aws, wanted.alarm, wanted.tags)
    names = _names(wanted, raw.arn)
    make_bucket(aws, names.bucket, wanted.expiries, wanted.tags)
    known = {Deferred.BUCKET: names.bucket, Deferred.EVENTS_URL: events.url, Deferred.STORE: setup.reports_store}
    _make_functions(aws, setup, names, known, raw_arn=raw.arn)
    return ServiceResources(
        raw_url=raw.url,
        events_url=events.url,
        bucket=names.bucket,
        templates={key: template.name for key, template in wanted.templates.items()},
        functions=tuple(function.name for function in wanted.functions),
    )


def _make_functions(
    aws: Aws, setup: ServiceSetup, names: Names, known: Mapping[Deferred, str], *, raw_arn: str
) -> None:
    """The functions, their role, and what calls them."""
    wanted = setup.resources
    role_arn = make_role(aws, names, sorted({one.role for one in wanted.functions}), wanted.tags)
    arns = {
        function.name: make_function(
            aws, function, function.variables(known), code=setup.code, role_arn=role_arn, tags=wanted.tags
        )
        for function in wanted.functions
    }
    feed(aws, wanted.reader, raw_arn)
    make_schedules(aws, wanted.schedules, service=wanted.service, tags=wanted.tags, functions=arns)


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
    remove_schedules(aws, service)
    remove_functions(aws, service)
    remove_roles(aws, service)
    remove_alarm(aws, service)
    for queue in QUEUES:
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
        names = sorted(instance["InstanceId"] for instance in described(aws.ec2, {f"tag:{SERVICE}": [service]}))
    for start in range(0, len(names), AT_ONCE):
        with absent_is_done():
            aws.ec2.terminate_instances(InstanceIds=names[start : start + AT_ONCE])
    return tuple(names)


def _make_template(aws: Aws, setup: ServiceSetup, template: TemplateSpec) -> None:
    """The launch template; a new default version where its content has changed."""
    tags, name, data = setup.resources.tags, template.name, _template_data(setup, template)
    versions = unless_absent(
        lambda: aws.ec2.describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Default"])
    )
    if versions is None:
        own: TagSpecificationTypeDef = {"ResourceType": "launch-template", "Tags": tag_list(tags)}  # type: ignore[typeddict-item]
        with translated():
            aws.ec2.create_launch_template(
                LaunchTemplateName=name,
                LaunchTemplateData=data,  # type: ignore[arg-type]
                TagSpecifications=[own],
            )
        return
    if not _holds(versions["LaunchTemplateVersions"][0]["LaunchTemplateData"], data):
        with translated():
            made = aws.ec2.create_launch_template_version(LaunchTemplateName=name, LaunchTemplateData=data)  # type: ignore[arg-type]
            number = made["LaunchTemplateVersion"]["VersionNumber"]
            aws.ec2.modify_launch_template(LaunchTemplateName=name, DefaultVersion=str(number))


def _template_data(setup: ServiceSetup, template: TemplateSpec) -> dict[str, Any]:
    user_data = json.dumps({"service": setup.resources.service, "store_url": setup.agents_store})
    return {
        "ImageId": setup.image_id,
        "UserData": base64.b64encode(user_data.encode()).decode(),
        **template.data(setup.resources.tags),
    }


def _holds(have: object, wanted: object) -> bool:
    """True where all that is wanted is there; AWS adds what it defaults to."""
    if isinstance(wanted, Mapping):
        return isinstance(have, Mapping) and all(_holds(have.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(have, list) and all(any(_holds(there, one) for there in have) for one in wanted)
    return have == wanted


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue that is there."""

    url: str
    arn: str


def _make_queue(aws: Aws, wanted: Resources, queue: QueueSpec, *, dead_letters_arn: str = "") -> _Queue:
    attributes = {
        "MessageRetentionPeriod": str(queue.keep_s),
        "SqsManagedSseEnabled": str(queue.encrypted).lower(),
        **({"VisibilityTimeout": str(queue.visibility_s)} if queue.visibility_s is not None else {}),
        **({"RedrivePolicy": json.dumps(queue.redrive(dead_letters_arn))} if queue.dead_letters else {}),
    }
    try:
        with translated():
            url = aws.sqs.get_queue_url(QueueName=queue.name)["QueueUrl"]
            aws.sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)  # type: ignore[arg-type]
    except MarkError as error:
        if code_of(error) not in NOT_THERE:
            raise
        with translated():
            made = aws.sqs.create_queue(QueueName=queue.name, Attributes=attributes, tags=wanted.tags)  # type: ignore[arg-type]
        url = made["QueueUrl"]
    with translated():
        read = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return _Queue(url, read["Attributes"]["QueueArn"])


def _make_rule(aws: Aws, wanted: Resources, rule: RuleSpec, raw_arn: str) -> str:
    """A rule that sends EC2's events into the raw queue; its ARN."""
    with translated():
        made = aws.events.put_rule(
            Name=rule.name,
            Description=rule.about,
            EventPattern=json.dumps(rule.pattern),
            State="ENABLED",
            Tags=tag_list(wanted.tags),  # type: ignore[arg-type]
        )
        answer = aws.events.put_targets(Rule=rule.name, Targets=[{"Id": rule.target, "Arn": raw_arn}])
    if answer["FailedEntryCount"]:
        raise MarkError(f"rule {rule.name} has no target: {answer['FailedEntries']}")
    return made["RuleArn"]


def _names(wanted: Resources, raw_arn: str) -> Names:
    """The service as its permissions name it."""
    _, partition, _, region, account, _ = raw_arn.split(":")
    return Names(
        service=wanted.service,
        region=region,
        account=account,
        partition=partition,
        bucket=bucket_name(wanted.service, account),
        infer=tuple(one.name for one in wanted.functions if one.role == "infer"),
        sender=wanted.sender,
        train=next((one.name for one in wanted.functions if one.role == TRAIN), ""),
        webhook=next((one.environment[WEBHOOK_SECRET] for one in wanted.functions if one.role == WEBHOOK), ""),
    )
