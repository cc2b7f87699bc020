"""Scopes of permissions: which resources, under which conditions, and why they are no narrower.

What exists is told by `aws:ResourceTag`, what is being made by `aws:RequestTag`, what has a name by the name. Of
the tags the service's alone decides: `mark:owner` is for people, and may change while instances bear the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mark.aws.ec2.tags import SERVICE
from mark.aws.names import (
    AGENTS_PASSWORD,
    ARTIFACTS,
    DEAD_LETTERS,
    EVENTS,
    JOURNAL,
    LEASE,
    QUEUES,
    RAW,
    REPORTS,
    RULES,
    SCHEDULES,
    TOKEN,
    TOPIC,
    TRAININGS,
    UNPOSTED_QUEUE,
    VERSIONS,
    acted_key,
    name_of,
    orphans_key,
    pause_parameter,
)

Conditions = Mapping[str, Mapping[str, str | list[str]]]
"""Operator -> condition key -> what it must be, as a policy document has it."""
LINKED_FOR = ("autoscaling", "ecs", "elasticache", "elasticloadbalancing", "spot")
"""Services that make a role of their own when an account first uses them."""
NO_RESOURCE = "AWS lets no resource be named for this action (service authorization reference)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The service that permissions are for, and where it stands. They may be tokens of CDK.

    `bucket` (a name), `repository` (of the model's image, a name), `secret` (an ARN) and `sender` (an identity of
    SES) are left out where the service has none, so are `zone` (an id) and `host`, the name in it that clients
    call. `costs`: whether Cost Explorer may be asked. `infer`: the functions that infer, with their aliases.
    `train`: the one that trains forecasters, empty where there is none. `webhook`: name or ARN of the secret that
    holds a webhook's address, empty where alarms are not posted.
    """

    service: str
    region: str
    account: str
    partition: str = "aws"
    bucket: str = ""
    repository: str = ""
    secret: str = ""
    sender: str = ""
    zone: str = ""
    host: str = ""
    costs: bool = False
    infer: tuple[str, ...] = ()
    train: str = ""
    webhook: str = ""

    def arn(self, service: str, rest: str) -> str:
        """The ARN of something of the account, in the region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{rest}"

    def ec2(self, *kinds: str) -> tuple[str, ...]:
        """All resources of these kinds: EC2 gives them ids, tags say whose they are."""
        return tuple(self.arn("ec2", f"{kind}/*") for kind in kinds)

    def role(self, part: str) -> str:
        """The ARN of a role of the service."""
        return f"arn:{self.partition}:iam::{self.account}:role/{name_of(self.service, part)}"


def machine_images(names: Names) -> tuple[str, ...]:
    """The public parameters that name AWS's newest machine images."""
    kinds = ("ami-amazon-linux-latest", "ecs/optimized-ami")
    return tuple(f"arn:{names.partition}:ssm:{names.region}::parameter/aws/service/{kind}/*" for kind in kinds)


def _owned(names: Names) -> Conditions:
    return {"StringEquals": _tags("aws:ResourceTag", names)}


def _made_for(names: Names) -> Conditions:
    return {"StringEquals": _tags("aws:RequestTag", names)}


def _tagged_by(*actions: str) -> Callable[[Names], Conditions]:
    """Tags are given while these actions make what is tagged, and never afterwards."""

    def conditions(names: Names) -> Conditions:
        return {"StringEquals": {**_tags("aws:RequestTag", names), "ec2:CreateAction": list(actions)}}

    return conditions


def _tags(key: str, names: Names) -> dict[str, str | list[str]]:
    return {f"{key}/{SERVICE}": names.service}


def _passed_to(service: str) -> Callable[[Names], Conditions]:
    return lambda _: {"StringEquals": {"iam:PassedToService": f"{service}.amazonaws.com"}}


def _in_region(names: Names) -> Conditions:
    return {"StringEquals": {"aws:RequestedRegion": names.region}}


def _always(_: Names) -> Conditions:
    return {}


def _queues(*parts: str) -> Callable[[Names], tuple[str, ...]]:
    return lambda names: tuple(names.arn("sqs", name_of(names.service, part)) for part in parts)


def _prefix(part: str) -> Callable[[Names], tuple[str, ...]]:
    """Objects of the bucket whose names begin so."""
    return lambda n: (f"arn:{n.partition}:s3:::{n.bucket}/{part}/*",) if n.bucket else ()


def _objects(*keys: Callable[[str], str]) -> Callable[[Names], tuple[str, ...]]:
    """Objects of the bucket, by their names for a service."""
    return lambda n: tuple(f"arn:{n.partition}:s3:::{n.bucket}/{key(n.service)}" for key in keys if n.bucket)


def _functions(names: Names) -> tuple[str, ...]:
    return (names.arn("lambda", f"function:{name_of(names.service, '')}*"),)


def _inference(names: Names) -> tuple[str, ...]:
    return tuple(names.arn("lambda", f"function:{name}") for name in names.infer)


def _training(names: Names) -> tuple[str, ...]:
    return (names.arn("lambda", f"function:{names.train}"),) if names.train else ()


def _trainings(names: Names) -> tuple[str, ...]:
    return _prefix(TRAININGS)(names) if names.train else ()


def _webhook(names: Names) -> tuple[str, ...]:
    """The secret, by its own ARN where that is given."""
    if not names.webhook or names.webhook.startswith("arn:"):
        return (names.webhook,) if names.webhook else ()
    return (names.arn("secretsmanager", f"secret:{names.webhook}-??????"),)


def _used_by_launches(names: Names) -> tuple[str, ...]:
    shared = (f"arn:{names.partition}:ec2:{names.region}::{kind}/*" for kind in ("image", "snapshot"))
    return (*shared, *names.ec2("security-group", "subnet"))


def _spot_role(names: Names) -> tuple[str, ...]:
    path = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    return (f"arn:{names.partition}:iam::{names.account}:role/{path}",)


def _mappings_of_own(names: Names) -> Conditions:
    return {"ArnLike": {"lambda:FunctionArn": list(_functions(names))}}


def linked_roles(names: Names) -> tuple[tuple[str, ...], Conditions]:
    """The roles of AWS's services that a rollout uses, and the condition that they are no other's."""
    services = [f"{service}.amazonaws.com" for service in LINKED_FOR]
    arn = f"arn:{names.partition}:iam::{names.account}:role/aws-service-role/*"
    return (arn,), {"StringEquals": {"iam:AWSServiceName": services}}


def _everything(_: Names) -> tuple[str, ...]:
    return ("*",)


def _zone(names: Names) -> tuple[str, ...]:
    return (f"arn:{names.partition}:route53:::hostedzone/{names.zone}",) if names.zone else ()


def _own_record(names: Names) -> Conditions:
    key = "route53:ChangeResourceRecordSetsNormalizedRecordNames"
    return {"ForAllValues:StringEquals": {key: [names.host]}}


Scope = tuple[Callable[[Names], tuple[str, ...]], Callable[[Names], Conditions], str]
SCOPES: Mapping[str, Scope] = MappingProxyType(
    {
        "AgentsPassword": (
            lambda n: (n.arn("secretsmanager", f"secret:{name_of(n.service, AGENTS_PASSWORD)}-??????"),),
            _always,
            "the agents' password at the store",
        ),
        "AlarmReads": (
            _everything,
            _in_region,
            "AWS lists alarms with no resource named: which of the service's ring",
        ),
        "Alarms": (
            lambda n: (n.arn("cloudwatch", f"alarm:{name_of(n.service, '')}*"),),
            _always,
            "alarms of the service",
        ),
        "Artifacts": (
            _prefix(ARTIFACTS),
            _always,
            "the model's files, and the bundles of its versions",
        ),
        "Bucket": (
            lambda n: (f"arn:{n.partition}:s3:::{n.bucket}",) if n.bucket else (),
            _always,
            "the service's bucket",
        ),
        "AgentsRole": (lambda n: (n.role("agent"),), _always, "the role of instances, which an account has once"),
        "ControllersRoles": (
            lambda n: (n.role("controller"), n.role("node")),
            _always,
            "the role that controllers run in, by the rollout's shape",
        ),
        "CostReads": (lambda n: ("*",) if n.costs else (), _always, NO_RESOURCE),
        "DeadLetters": (_queues(DEAD_LETTERS), _always, "messages about instances that nobody could read"),
        "Ec2Reads": (_everything, _in_region, NO_RESOURCE),
        "EventsQueue": (_queues(EVENTS), _always, "what happens to the service's instances"),
        "HandFunctionsRole": (
            lambda n: (n.role("functions"),),
            _passed_to("lambda"),
            "functions run as their role",
        ),
        "HandScheduleRole": (
            lambda n: (n.role("schedule"),),
            _passed_to("scheduler"),
            "schedules call their functions as their role",
        ),
        "Image": (
            lambda n: (n.arn("ecr", f"repository/{n.repository}"),) if n.repository else (),
            _always,
            "the model's image",
        ),
        "ImageLogin": (lambda n: ("*",) if n.repository else (), _in_region, NO_RESOURCE),
        "Images": (
            lambda n: (n.arn("ecr", "repository/*"),),
            _always,
            "the images that settings name may be in any repository of the account",
        ),
        "Inference": (_inference, _owned, "the functions that infer, and none that mails or reads events"),
        "InstanceRole": (lambda n: (n.role("agent"),), _passed_to("ec2"), "instances run as their role"),
        "Journals": (_prefix(JOURNAL), _always, "copies of the service's journals"),
        "LambdaReads": (_everything, _in_region, NO_RESOURCE),
        "Lease": (
            lambda n: (n.arn("dynamodb", f"table/{name_of(n.service, LEASE)}"),),
            _always,
            "the controllers' lease, and the last lines of their journals",
        ),
        "LaunchFrom": (_used_by_launches, _always, "images and networks that a launch uses are not made by it"),
        "LaunchTemplates": (lambda n: n.ec2("launch-template"), _owned, "instances start from own templates"),
        "LaunchedAlong": (
            lambda n: n.ec2("network-interface", "spot-instances-request"),
            _always,
            "made with an instance, which must be tagged; EC2 Fleet gives them no tags",
        ),
        "LaunchedTagged": (lambda n: n.ec2("fleet", "instance", "volume"), _made_for, "what is rented is tagged"),
        "LinkedRoles": (
            lambda n: linked_roles(n)[0],
            lambda n: linked_roles(n)[1],
            "made once an account, before the stacks that need them",
        ),
        "Logs": (
            lambda n: (n.arn("logs", f"log-group:/aws/lambda/{name_of(n.service, '')}*:*"),),
            _always,
            "a function's own logs",
        ),
        "MailReads": (_everything, _in_region, NO_RESOURCE),
        "Mappings": (
            lambda n: (n.arn("lambda", "event-source-mapping:*"),),
            _mappings_of_own,
            "the raw queue's reader",
        ),
        "NamedFunctions": (
            _functions,
            _always,
            "whether a function is there, and whose: what is not there has no tags to be known by",
        ),
        "NewFunctions": (_functions, _made_for, "functions are tagged when they are made"),
        "NewMappings": (_everything, _mappings_of_own, NO_RESOURCE),
        "MachineImages": (
            machine_images,
            _always,
            "public parameters of AWS's that name its newest machine images",
        ),
        "NewTemplates": (lambda n: n.ec2("launch-template"), _made_for, "templates are tagged when they are made"),
        "OutsidePause": (
            lambda n: (n.arn("ssm", f"parameter{pause_parameter(n.service)}"),),
            _always,
            "a pause that needs no more than credentials",
        ),
        "OwnFunctions": (_functions, _owned, "functions of the service"),
        "OwnInstances": (lambda n: n.ec2("instance"), _owned, "instances of the service"),
        "OwnRoles": (
            lambda n: (n.role("functions"), n.role("schedule")),
            _always,
            "the roles of the service's functions and of its schedules",
        ),
        "OwnVolumes": (lambda n: n.ec2("volume"), _owned, "disks of the service"),
        "OwnTemplates": (lambda n: n.ec2("launch-template"), _owned, "templates of the service"),
        "Notice": (_objects(orphans_key), _always, "what was said of instances that no controller owns"),
        "Objects": (
            lambda n: tuple(f"arn:{n.partition}:s3:::{n.bucket}{part}" for part in ("", "/*")) if n.bucket else (),
            _always,
            "bundles and templates in the service's bucket",
        ),
        "Versions": (
            lambda n: (
                tuple(f"arn:{n.partition}:s3:::{n.bucket}{part}" for part in ("", f"/{VERSIONS}/*"))
                if n.bucket
                else ()
            ),
            _always,
            "bundles of models' versions in the service's bucket",
        ),
        "Plans": (
            lambda n: (f"arn:{n.partition}:savingsplans::{n.account}:savingsplan/*",),
            _always,
            "Savings Plans of the account",
        ),
        "PriceReads": (_everything, _always, NO_RESOURCE),
        "Queues": (_queues(*QUEUES), _always, "queues of the service"),
        "QuotaReads": (_everything, _in_region, NO_RESOURCE),
        "RawQueue": (_queues(RAW), _always, "Lambda reads it for the function"),
        "Reports": (_prefix(REPORTS), _always, "reports as they were mailed"),
        "Rules": (
            lambda n: tuple(n.arn("events", f"rule/{name_of(n.service, rule)}") for rule in RULES),
            _always,
            "rules of the service",
        ),
        "Schedule": (
            lambda n: tuple(
                n.arn("scheduler", f"schedule/default/{name_of(n.service, one)}") for one in SCHEDULES
            ),
            _always,
            "the service's schedules",
        ),
        "Mail": (
            lambda n: tuple(n.arn("ses", f"{kind}/*") for kind in ("identity", "configuration-set") if n.sender),
            lambda n: {"StringEquals": {"ses:FromAddress": n.sender}},
            "reports, from their sender alone: SES asks about recipients, too, and about its configuration set",
        ),
        "MailIdentities": (
            lambda n: (n.arn("ses", "identity/*"),) if n.sender else (),
            _always,
            "whether the sender is verified, by address or domain, and in the sandbox each recipient",
        ),
        "Record": (_zone, _own_record, "the name that clients call, and no other in its zone"),
        "Records": (_zone, _always, "the names of the zone that holds the service's"),
        "Rotated": (
            lambda n: tuple(
                n.arn("secretsmanager", f"secret:{name_of(n.service, secret)}-??????")
                for secret in (AGENTS_PASSWORD, TOKEN)
            ),
            _always,
            "the secrets that are rotated, and none that is not",
        ),
        "RolloutLock": (
            lambda n: (n.arn("ssm", f"parameter/mark/{n.service}/rollout"),),
            _always,
            "one rollout at a time",
        ),
        "Signs": (_objects(acted_key, orphans_key), _always, "two small objects of the bucket"),
        "SpotRole": (
            _spot_role,
            lambda _: {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
            "EC2 makes it when an account first asks for spot",
        ),
        "StackReads": (
            _everything,
            _in_region,
            "AWS lists stacks with no resource named: which are the service's",
        ),
        "Stacks": (
            lambda n: (n.arn("cloudformation", f"stack/{name_of(n.service, '')}*"),),
            _always,
            "stacks of the service",
        ),
        "StoreSecret": (lambda n: (n.secret,) if n.secret else (), _always, "the store's password"),
        "TagLaunched": (
            lambda n: n.ec2("fleet", "instance", "volume"),
            _tagged_by("CreateFleet", "RunInstances"),
            "tags are given by the launch alone",
        ),
        "TagReads": (_everything, _in_region, NO_RESOURCE),
        "TagTemplates": (
            lambda n: n.ec2("launch-template"),
            _tagged_by("CreateLaunchTemplate"),
            "tags are given when a template is made",
        ),
        "Token": (
            lambda n: (n.arn("secretsmanager", f"secret:{name_of(n.service, TOKEN)}-??????"),),
            _always,
            "what clients must send; Secrets Manager ends its name with six characters of its own",
        ),
        "Topic": (
            lambda n: (n.arn("sns", name_of(n.service, TOPIC)),),
            _always,
            "people hear by it of instances that no controller owns",
        ),
        "Training": (_training, _owned, "the function that trains forecasters"),
        "UnpostedQueue": (_queues(UNPOSTED_QUEUE), _always, "alarms that could not be posted to the webhook"),
        "VersionFiles": (
            _prefix(VERSIONS),
            _always,
            "bundles of models' versions, one of which a function answers as",
        ),
        "Webhook": (_webhook, _always, "the address of the webhook that alarms are posted to"),
        "Trainings": (_trainings, _always, "orders and results of trainings"),
    }
)
"""A scope -> its resources (none: the service has no such thing), its conditions, and why it is as it is."""
