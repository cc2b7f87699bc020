"""Every AWS call that the service makes, who makes it and why: what its roles must allow (`policies.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """An action of a service as boto3 names them (`ec2`, `CreateFleet`), and what it is needed for.

    `within` is a scope of its own (`scopes.py`), where who calls needs less than others do.
    """

    service: str
    action: str
    why: str
    within: str = ""


_FEEDS = Call("lambda", "Invoke", "warm-up pings", within="Inference")
_PAUSED = Call("ssm", "GetParameter", "whether somebody paused the service from outside", within="OutsidePause")
_ALERTS = (
    Call("cloudwatch", "DescribeAlarms", "which alarms ring"),
    Call("sqs", "GetQueueAttributes", "how many messages nobody could read", within="DeadLetters"),
    Call("sqs", "GetQueueUrl", "where those are", within="DeadLetters"),
)

CONTROLLER = (
    Call("ec2", "CreateFleet", "launch instances, idempotently, and hear which could not be had"),
    Call("ec2", "DescribeCapacityReservations", "which capacity the account has reserved, and what is free"),
    Call("ec2", "DescribeInstances", "see the service's instances, by their tags"),
    Call("ec2", "DescribeReservedInstances", "what the account has reserved"),
    Call("ec2", "DescribeSpotPriceHistory", "what a spot instance costs in its zone"),
    Call("ec2", "StartInstances", "wake standbys"),
    Call("ec2", "StopInstances", "put standbys to sleep that serve nobody"),
    Call("ec2", "TerminateInstances", "end instances that serve nobody, or do not end themselves"),
    Call("lambda", "Invoke", "have a forecaster trained", within="Training"),
    Call("s3", "GetObject", "what a forecaster learned", within="Trainings"),
    Call("s3", "PutObject", "journals outlive the store", within="Journals"),
    Call("s3", "PutObject", "the order of a training", within="Trainings"),
    Call("savingsplans", "DescribeSavingsPlanRates", "what instances cost under them"),
    Call("savingsplans", "DescribeSavingsPlans", "which Savings Plans the account has"),
    Call("service-quotas", "ListServiceQuotas", "plan within the account's vCPU quotas"),
    Call("sqs", "ChangeMessageVisibilityBatch", "leave what is not written down to the next controller"),
    Call("sqs", "DeleteMessageBatch", "an event is written down"),
    Call("sqs", "ReceiveMessage", "hear of spot notices and of instances that change state"),
    _PAUSED,
    _FEEDS,
    *_ALERTS,
)
"""Calls of controllers while they serve."""

GATEWAY = (
    Call("lambda", "Invoke", "requests that instances bounced", within="Inference"),
    Call("secretsmanager", "GetSecretValue", "which tokens of clients count", within="Token"),
)
"""Calls of gateways."""

_LEADS = Call("dynamodb", "GetItem", "which node leads: its store is the service's")

MEMBER = (
    _LEADS,
    Call("secretsmanager", "GetSecretValue", "what agents log in with at the store", within="AgentsPassword"),
)
"""Calls of instances in the lean shape."""

NODE = (
    _LEADS,
    Call("dynamodb", "PutItem", "take, renew and give back the lease"),
    Call("dynamodb", "Query", "restore a journal's last lines"),
    Call("dynamodb", "TransactWriteItems", "write a journal's line, or the clients, while the lease holds"),
    Call("route53", "ChangeResourceRecordSets", "clients find the nodes"),
    Call("route53", "ListResourceRecordSets", "what the nodes' name means so far"),
    Call("secretsmanager", "GetSecretValue", "which passwords of agents its store takes", within="AgentsPassword"),
)
"""Calls of nodes in the lean shape, beside those of controllers and gateways."""

INFER = (Call("s3", "GetObject", "the files of the version that a call names", within="VersionFiles"),)
"""Calls of the functions that infer."""

INTERRUPTION = (Call("sqs", "SendMessage", "what EventBridge said, in the controller's words"),)
"""Calls of the interruption handler."""

ORPHANS = (
    Call("ec2", "DescribeInstances", "which instances of the service there are"),
    Call("ec2", "TerminateInstances", "end those that no controller owns"),
    Call("s3", "GetObject", "when a controller acted last, and what was said before", within="Signs"),
    Call("s3", "PutObject", "what is said now", within="Notice"),
)
"""Calls of the function that ends what no controller owns."""

TRAIN = (
    Call("s3", "GetObject", "the order of a training", within="Trainings"),
    Call("s3", "PutObject", "what a forecaster learned", within="Trainings"),
)
"""Calls of the function that trains forecasters."""

WARM = (_FEEDS,)
"""Calls of the warm handler."""

WEBHOOK = (Call("secretsmanager", "GetSecretValue", "where alarms are posted", within="Webhook"),)
"""Calls of the function that posts alarms to a webhook."""

DOCTOR = (
    Call("cloudformation", "DescribeStacks", "what stands, for --deep"),
    Call("ec2", "DescribeAvailabilityZones", "which zones the account has"),
    Call("ec2", "DescribeImages", "whether a machine image fits the settings"),
    Call("ec2", "DescribeInstanceTypeOfferings", "in which zones types are there"),
    Call("ec2", "DescribeInstanceTypes", "whether types are what the catalogue says"),
    Call("ec2", "DescribeInstances", "what the service has in the account"),
    Call("ec2", "DescribeSpotPriceHistory", "spot prices of now"),
    Call("ec2", "DescribeSubnets", "whether a network that is there has IPv6"),
    Call("ecr", "DescribeImages", "whether the service's image is there"),
    Call("freetier", "GetAccountPlanState", "whether the account may launch all types"),
    Call("iam", "SimulatePrincipalPolicy", "whether the controllers' role may do what they do, for --deep"),
    Call("lambda", "GetAccountSettings", "how many calls Lambda runs at once"),
    Call("pricing", "GetProducts", "list prices of now"),
    Call("secretsmanager", "DescribeSecret", "whether the webhook's secret is there", within="Webhook"),
    Call("service-quotas", "ListServiceQuotas", "the account's vCPU quotas"),
    Call("sesv2", "GetAccount", "whether mail goes to everybody"),
    Call("sesv2", "GetEmailIdentity", "whether the report's sender is verified"),
    _PAUSED,
    Call("sts", "AssumeRole", "make DryRun calls as the controllers, for --deep"),
    Call("sts", "GetCallerIdentity", "whose credentials these are"),
    *_ALERTS,
)
"""Calls of `mark doctor` and `mark status --aws`."""

PAUSER = (
    Call("ec2", "DescribeInstances", "which instances of the service run"),
    Call("ec2", "TerminateInstances", "end its fleet where no controller does"),
    Call("ssm", "DeleteParameter", "the service goes on", within="OutsidePause"),
    Call("ssm", "PutParameter", "the service pauses", within="OutsidePause"),
    Call("sts", "GetCallerIdentity", "who paused it"),
)
"""Calls of `mark pause --aws`."""

PROFILER = (
    Call("ec2", "DescribeInstances", "where the rented instance is, and whether it has ended"),
    Call("ec2", "DescribeLaunchTemplateVersions", "what the service's instances start"),
    Call("ec2", "RunInstances", "rent one instance of a type"),
    Call("ec2", "TerminateInstances", "end it"),
    Call("lambda", "Invoke", "measure the model on Lambda", within="Inference"),
)
"""Calls of `mark profile --on`."""

PROBER = (
    Call("cloudformation", "DescribeStacks", "the address that clients call in the shape ha"),
    Call("lambda", "Invoke", "have the function probe send the request, or webhook a message"),
    Call("secretsmanager", "GetSecretValue", "what clients must send", within="Token"),
)
"""Calls of `mark try` and `mark alerts test`."""

ROTATOR = (
    Call("secretsmanager", "DescribeSecret", "how far a rotation is"),
    Call("secretsmanager", "PutSecretValue", "the next token, or password of the agents"),
    Call("secretsmanager", "UpdateSecretVersionStage", "which of them is used, and which count"),
)
"""Calls of `mark rotate`."""

REPORT = (
    Call("ce", "GetCostAndUsage", "what AWS says that it cost"),
    Call("s3", "PutObject", "the report outlives its mail", within="Reports"),
    Call("secretsmanager", "GetSecretValue", "where the store is, and its password"),
    Call("sesv2", "SendEmail", "the report"),
)
"""Calls of the report, as a handler and as a command."""

SNAPSHOT_REPORT = (
    Call("ce", "GetCostAndUsage", "what AWS says that it cost"),
    Call("dynamodb", "DeleteItem", "a report that failed may be mailed again"),
    Call("dynamodb", "PutItem", "this report is under way, or was mailed before"),
    Call("dynamodb", "UpdateItem", "this report was mailed"),
    Call("s3", "GetObject", "the service's last snapshot", within="Journals"),
    Call("s3", "PutObject", "the report outlives its mail", within="Reports"),
    Call("sesv2", "SendEmail", "the report"),
)
"""Calls of the report where it cannot reach the store."""

RELEASER = (
    Call("s3", "HeadObject", "whether a version's bundle is there", within="Versions"),
    Call("s3", "PutObject", "a version's bundle", within="Versions"),
)
"""Calls of `mark rollout start`."""

DEPLOYER = (
    Call("cloudformation", "CreateChangeSet", "what a rollout would change"),
    Call("cloudformation", "DeleteChangeSet", "it was not wanted"),
    Call("cloudformation", "DeleteStack", "removal"),
    Call("cloudformation", "DescribeChangeSet", "what would change"),
    Call("cloudformation", "DescribeStackEvents", "how it goes on"),
    Call("cloudformation", "DescribeStacks", "which stacks there are"),
    Call("cloudformation", "ExecuteChangeSet", "roll it out"),
    Call("cloudformation", "GetTemplate", "what stands there now"),
    Call("cloudformation", "ListStackResources", "what stays when stacks go"),
    Call("ec2", "DescribeAvailabilityZones", "where a new service may stand"),
    Call("ec2", "DescribeInstances", "removal: which instances the service has"),
    Call("ec2", "DescribeSubnets", "the zones of a network that is there"),
    Call("ec2", "DeleteVolume", "removal of all: disks that outlived their instances"),
    Call("ec2", "DescribeVolumes", "removal: which disks outlived their instances"),
    Call("ec2", "TerminateInstances", "removal"),
    Call("ecr", "DescribeImages", "whether images are for the processors that run them", within="Images"),
    Call("iam", "CreateServiceLinkedRole", "AWS's own services act for the account"),
    Call("iam", "GetRole", "whether another region has a service of this name", within="AgentsRole"),
    Call("resourcegroupstaggingapi", "GetResources", "removal: what else has the service's tag"),
    Call("route53", "ChangeResourceRecordSets", "removal: the nodes' name goes with them"),
    Call("route53", "ListResourceRecordSets", "removal: whether the nodes' name is there"),
    Call("s3", "DeleteObjects", "removal of all: what the bucket holds"),
    Call("s3", "HeadObject", "whether a bundle is there"),
    Call("s3", "ListObjectVersions", "removal of all: what the bucket holds"),
    Call("s3", "PutObject", "bundles, and templates too long for a call"),
    Call("service-quotas", "ListServiceQuotas", "whether nodes or gateways fit the account's vCPUs"),
    Call("ssm", "DeleteParameter", "the rollout is over"),
    Call("ssm", "DeleteParameter", "removal: a pause from outside goes with the service", within="OutsidePause"),
    Call("ssm", "GetParameter", "whether another rollout is under way"),
    Call("ssm", "GetParameter", "which machine images are the newest", within="MachineImages"),
    _PAUSED,
    Call("ssm", "PutParameter", "no other rollout meanwhile"),
    Call("sts", "GetCallerIdentity", "whose credentials these are"),
)
"""Calls of `mark deploy`, `diff` and `destroy`; what the stacks hold, CloudFormation makes in their name."""

SETTING_UP = (
    Call("cloudwatch", "DeleteAlarms", "removal"),
    Call("cloudwatch", "PutMetricAlarm", "somebody is told of dead letters"),
    Call("ec2", "CreateLaunchTemplate", "how instances of each role start"),
    Call("ec2", "CreateLaunchTemplateVersion", "a template's content has changed"),
    Call("ec2", "DeleteLaunchTemplate", "removal"),
    Call("ec2", "DescribeInstances", "removal: which instances the service has"),
    Call("ec2", "DescribeLaunchTemplateVersions", "whether a template is there and up to date"),
    Call("ec2", "DescribeLaunchTemplates", "removal: which templates the service has"),
    Call("ec2", "DescribeSubnets", "the zones that instances may stand in"),
    Call("ec2", "ModifyLaunchTemplate", "a template's new version is its default"),
    Call("ec2", "TerminateInstances", "removal"),
    Call("events", "DeleteRule", "removal"),
    Call("events", "PutRule", "spot notices, rebalance advice and state changes"),
    Call("events", "PutTargets", "send them to the raw queue"),
    Call("events", "RemoveTargets", "removal"),
    Call("iam", "CreateRole", "the functions' role, and the schedules'"),
    Call("iam", "DeleteRole", "removal"),
    Call("iam", "DeleteRolePolicy", "removal"),
    Call("iam", "GetRole", "whether the role is there"),
    Call("iam", "PutRolePolicy", "what the functions may do"),
    Call("lambda", "CreateEventSourceMapping", "the raw queue calls the interruption function"),
    Call("lambda", "CreateFunction", "infer, interruption, warm"),
    Call("lambda", "DeleteEventSourceMapping", "removal"),
    Call("lambda", "DeleteFunction", "removal"),
    Call("lambda", "GetFunctionConfiguration", "whether a function is there and up to date"),
    Call("lambda", "ListEventSourceMappings", "whether the raw queue calls the function"),
    Call("lambda", "ListFunctions", "removal: which functions the service has"),
    Call("lambda", "ListTags", "removal: whose a function is"),
    Call("lambda", "UpdateFunctionCode", "a function's code has changed"),
    Call("lambda", "GetFunction", "wait until new code is in place"),
    Call("lambda", "UpdateFunctionConfiguration", "a function's settings have changed"),
    Call("s3", "CreateBucket", "what outlives the service"),
    Call("s3", "PutBucketLifecycleConfiguration", "for how long"),
    Call("s3", "PutBucketTagging", "whose it is"),
    Call("s3", "PutBucketVersioning", "what was written over can be had again"),
    Call("scheduler", "CreateSchedule", "functions are called at their times"),
    Call("scheduler", "DeleteSchedule", "removal, or no report is mailed any more"),
    Call("scheduler", "UpdateSchedule", "a schedule has changed"),
    Call("sqs", "CreateQueue", "raw, its dead letters, events"),
    Call("sqs", "DeleteQueue", "removal"),
    Call("sqs", "GetQueueAttributes", "a queue's ARN"),
    Call("sqs", "GetQueueUrl", "whether a queue is there"),
    Call("sqs", "SetQueueAttributes", "who may send to it, and what becomes of dead letters"),
)
"""Calls that set a service up without a stack, and remove it."""

ROLES: Mapping[str, tuple[Call, ...]] = MappingProxyType(
    {
        "agent": (),
        "controller": CONTROLLER,
        "deployer": DEPLOYER,
        "doctor": DOCTOR,
        "gateway": GATEWAY,
        "infer": INFER,
        "interruption": INTERRUPTION,
        "member": MEMBER,
        "node": NODE,
        "orphans": ORPHANS,
        "pauser": PAUSER,
        "probe": (),
        "prober": PROBER,
        "profiler": PROFILER,
        "releaser": RELEASER,
        "report": REPORT,
        "rotator": ROTATOR,
        "snapshot-report": SNAPSHOT_REPORT,
        "setup": SETTING_UP,
        "train": TRAIN,
        "warm": WARM,
        "webhook": WEBHOOK,
    }
)
"""Calls by role: the service's processes, its functions, and the commands that people run."""

PROCESSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"controller": ("controller",), "node": ("controller", "gateway", "node")}
)
"""IAM role `mark-SERVICE-NAME` -> the roles of all processes that run in it; controllers have one or the other."""

CALLS = frozenset((call.service, call.action) for calls in ROLES.values() for call in calls)
"""All of them: (service, action)."""
