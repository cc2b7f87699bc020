"""Scopes of permissions: which resources, under which conditions, and why they are no narrower.

What exists is told by `aws:ResourceTag`, what is being made by `aws:RequestTag`, what has a name by the name. Of
the tags the service's alone decides: `mark:owner` is for people, and may change while instances bear the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

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


def _secrets(*parts: str) -> Callable[[Names], tuple[str, ...]]:
    """Secrets Manager ends each name with six characters of its own."""
    return lambda names: tuple(
        names.arn("secretsmanager", f"secret:{name_of(names.service, part)}-??????") for part in parts
    )


def _roles(*parts: str) -> Callable[[Names], tuple[str, ...]]:
    return lambda names: tuple(names.role(part) for part in parts)


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


class Scope(NamedTuple):
    """Resources (none: the service has no such thing), why they are no narrower, and conditions."""

    resources: Callable[[Names], tuple[str, ...]]
    why: str
    conditions: Callable[[Names], Conditions] = _always


SCOPES: Mapping[str, Scope] = MappingProxyType(
    {
        "AgentsPassword": Scope(_secrets(AGENTS_PASSWORD), "the agents' password at the store"),
        "AlarmReads": Scope(
            _everything, "AWS lists alarms with no resource named: which of the service's ring", _in_region
        ),
        "Alarms": Scope(
            lambda n: (n.arn("cloudwatch", f"alarm:{name_of(n.service, '')}*"),), "alarms of the service"
        ),
        "Artifacts": Scope(_prefix(ARTIFACTS), "the model's files, and the bundles of its versions"),
        "Bucket": Scope(
            lambda n: (f"arn:{n.partition}:s3:::{n.bucket}",) if n.bucket else (), "the service's bucket"
        ),
        "AgentsRole": Scope(_roles("agent"), "the role of instances, which an account has once"),
        "ControllersRoles": Scope(
            _roles("controller", "node"), "the role that controllers run in, by the rollout's shape"
        ),
        "CostReads": Scope(lambda n: ("*",) if n.costs else (), NO_RESOURCE),
        "DeadLetters": Scope(_queues(DEAD_LETTERS), "messages about instances that nobody could read"),
        "Ec2Reads": Scope(_everything, NO_RESOURCE, _in_region),
        "EventsQueue": Scope(_queues(EVENTS), "what happens to the service's instances"),
        "HandFunctionsRole": Scope(_roles("functions"), "functions run as their role", _passed_to("lambda")),
        "HandScheduleRole": Scope(
            _roles("schedule"), "schedules call their functions as their role", _passed_to("scheduler")
        ),
        "Image": Scope(
            lambda n: (n.arn("ecr", f"repository/{n.repository}"),) if n.repository else (), "the model's image"
        ),
        "ImageLogin": Scope(lambda n: ("*",) if n.repository else (), NO_RESOURCE, _in_region),
        "Images": Scope(
            lambda n: (n.arn("ecr", "repository/*"),),
            "the images that settings name may be in any repository of the account",
        ),
        "Inference": Scope(_inference, "the functions that infer, and none that mails or reads events", _owned),
        "InstanceRole": Scope(_roles("agent"), "instances run as their role", _passed_to("ec2")),
        "Journals": Scope(_prefix(JOURNAL), "copies of the service's journals"),
        "LambdaReads": Scope(_everything, NO_RESOURCE, _in_region),
        "Lease": Scope(
            lambda n: (n.arn("dynamodb", f"table/{name_of(n.service, LEASE)}"),),
            "the controllers' lease, and the last lines of their journals",
        ),
        "LaunchFrom": Scope(_used_by_launches, "images and networks that a launch uses are not made by it"),
        "LaunchTemplates": Scope(lambda n: n.ec2("launch-template"), "instances start from own templates", _owned),
        "LaunchedAlong": Scope(
            lambda n: n.ec2("network-interface", "spot-instances-request"),
            "made with an instance, which must be tagged; EC2 Fleet gives them no tags",
        ),
        "LaunchedTagged": Scope(
            lambda n: n.ec2("fleet", "instance", "volume"), "what is rented is tagged", _made_for
        ),
        "LinkedRoles": Scope(
            lambda n: linked_roles(n)[0],
            "made once an account, before the stacks that need them",
            lambda n: linked_roles(n)[1],
        ),
        "Logs": Scope(
            lambda n: (n.arn("logs", f"log-group:/aws/lambda/{name_of(n.service, '')}*:*"),),
            "a function's own logs",
        ),
        "MailReads": Scope(_everything, NO_RESOURCE, _in_region),
        "Mappings": Scope(
            lambda n: (n.arn("lambda", "event-source-mapping:*"),), "the raw queue's reader", _mappings_of_own
        ),
        "NamedFunctions": Scope(
            _functions, "whether a function is there, and whose: what is not there has no tags to be known by"
        ),
        "NewFunctions": Scope(_functions, "functions are tagged when they are made", _made_for),
        "NewMappings": Scope(_everything, NO_RESOURCE, _mappings_of_own),
        "MachineImages": Scope(machine_images, "public parameters of AWS's that name its newest machine images"),
        "NewTemplates": Scope(
            lambda n: n.ec2("launch-template"), "templates are tagged when they are made", _made_for
        ),
        "OutsidePause": Scope(
            lambda n: (n.arn("ssm", f"parameter{pause_parameter(n.service)}"),),
            "a pause that needs no more than credentials",
        ),
        "OwnFunctions": Scope(_functions, "functions of the service", _owned),
        "OwnInstances": Scope(lambda n: n.ec2("instance"), "instances of the service", _owned),
        "OwnRoles": Scope(
            _roles("functions", "schedule"), "the roles of the service's functions and of its schedules"
        ),
        "OwnVolumes": Scope(lambda n: n.ec2("volume"), "disks of the service", _owned),
        "OwnTemplates": Scope(lambda n: n.ec2("launch-template"), "templates of the service", _owned),
        "Notice": Scope(_objects(orphans_key), "what was said of instances that no controller owns"),
        "Objects": Scope(
            lambda n: tuple(f"arn:{n.partition}:s3:::{n.bucket}{part}" for part in ("", "/*")) if n.bucket else (),
            "bundles and templates in the service's bucket",
        ),
        "Versions": Scope(
            lambda n: (
                tuple(f"arn:{n.partition}:s3:::{n.bucket}{part}" for part in ("", f"/{VERSIONS}/*"))
                if n.bucket
                else ()
            ),
            "bundles of models' versions in the service's bucket",
        ),
        "Plans": Scope(
            lambda n: (f"arn:{n.partition}:savingsplans::{n.account}:savingsplan/*",),
            "Savings Plans of the account",
        ),
        "PriceReads": Scope(_everything, NO_RESOURCE),
        "Queues": Scope(_queues(*QUEUES), "queues of the service"),
        "QuotaReads": Scope(_everything, NO_RESOURCE, _in_region),
        "RawQueue": Scope(_queues(RAW), "Lambda reads it for the function"),
        "Reports": Scope(_prefix(REPORTS), "reports as they were mailed"),
        "Rules": Scope(
            lambda n: tuple(n.arn("events", f"rule/{name_of(n.service, rule)}") for rule in RULES),
            "rules of the service",
        ),
        "Schedule": Scope(
            lambda n: tuple(
                n.arn("scheduler", f"schedule/default/{name_of(n.service, one)}") for one in SCHEDULES
            ),
            "the service's schedules",
        ),
        "Mail": Scope(
            lambda n: tuple(n.arn("ses", f"{kind}/*") for kind in ("identity", "configuration-set") if n.sender),
            "reports, from their sender alone: SES asks about recipients, too, and about its configuration set",
            lambda n: {"StringEquals": {"ses:FromAddress": n.sender}},
        ),
        "MailIdentities": Scope(
            lambda n: (n.arn("ses", "identity/*"),) if n.sender else (),
            "whether the sender is verified, by address or domain, and in the sandbox each recipient",
        ),
        "Record": Scope(_zone, "the name that clients call, and no other in its zone", _own_record),
        "Records": Scope(_zone, "the names of the zone that holds the service's"),
        "Rotated": Scope(_secrets(AGENTS_PASSWORD, TOKEN), "the secrets that are rotated, and none that is not"),
        "RolloutLock": Scope(
            lambda n: (n.arn("ssm", f"parameter/mark/{n.service}/rollout"),), "one rollout at a time"
        ),
        "Signs": Scope(_objects(acted_key, orphans_key), "two small objects of the bucket"),
        "SpotRole": Scope(
            _spot_role,
            "EC2 makes it when an account first asks for spot",
            lambda _: {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        ),
        "StackReads": Scope(
            _everything, "AWS lists stacks with no resource named: which are the service's", _in_region
        ),
        "Stacks": Scope(
            lambda n: (n.arn("cloudformation", f"stack/{name_of(n.service, '')}*"),), "stacks of the service"
        ),
        "StoreSecret": Scope(lambda n: (n.secret,) if n.secret else (), "the store's password"),
        "TagLaunched": Scope(
            lambda n: n.ec2("fleet", "instance", "volume"),
            "tags are given by the launch alone",
            _tagged_by("CreateFleet", "RunInstances"),
        ),
        "TagReads": Scope(_everything, NO_RESOURCE, _in_region),
        "TagTemplates": Scope(
            lambda n: n.ec2("launch-template"),
            "tags are given when a template is made",
            _tagged_by("CreateLaunchTemplate"),
        ),
        "Token": Scope(
            _secrets(TOKEN), "what clients must send; Secrets Manager ends its name with six characters of its own"
        ),
        "Topic": Scope(
            lambda n: (n.arn("sns", name_of(n.service, TOPIC)),),
            "people hear by it of instances that no controller owns",
        ),
        "Training": Scope(_training, "the function that trains forecasters", _owned),
        "UnpostedQueue": Scope(_queues(UNPOSTED_QUEUE), "alarms that could not be posted to the webhook"),
        "VersionFiles": Scope(
            _prefix(VERSIONS), "bundles of models' versions, one of which a function answers as"
        ),
        "Webhook": Scope(_webhook, "the address of the webhook that alarms are posted to"),
        "Trainings": Scope(_trainings, "orders and results of trainings"),
    }
)
"""By name."""
