"""Description of a service's resources on AWS, pure: what each is called and how it is set.

Two make them: `provision.py` by API calls, on the emulated AWS, and `infra/` as CloudFormation, in an account.
What both must say stands here and nowhere else; what only one of them has (networks, an alarm's mail) stands
there.

EventBridge rules -> queue `raw` (dead letters apart) -> function `interruption` -> queue `events`
launch templates: `serving` ends, `standby` stops, when an instance powers itself off
functions: one `infer` a model, two where it has versions, `interruption`, `warm`, `orphans` on a schedule,
  `report` on another where one is mailed, `webhook` where alarms are posted, `train` where forecasters train in
  an image of their own
a bucket for what outlives the service; an alarm on dead letters
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mark.aws.ec2.tags import OWNER, SERVICE
from mark.aws.names import (
    DEAD_LETTER_ALARM,
    DEAD_LETTERS,
    EVENTS,
    JOURNAL,
    LONGEST,
    ORPHANS,
    PROBE,
    RAW,
    REPORT,
    REPORTS,
    RULES,
    TRAIN,
    TRAININGS,
    WEBHOOK,
    name_of,
    template_name,
)
from mark.config.disks import with_disks
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Role
from mark.domain.models.versions import functions_of
from mark.protocols.events import REBALANCE, SOURCE, SPOT, STATE

if TYPE_CHECKING:
    from mark.config.rollout import ArchiveSettings, ReportMailSettings, RolloutSettings

RUNTIME = "python3.12"
"""Of the tested one, 3.11, Lambda has a C library that is too old for numpy's wheels; the code runs on both."""
WEBHOOK_SECRET = "MARK_WEBHOOK_SECRET"  # noqa: S105 - its name
"""The variable that names the secret with a webhook's address."""
CALLER = "AWS_SDK_UA_APP_ID"
"""Has the SDK name who calls, as `session.py` does: the account's trail then says who called what."""
INFER_TIMEOUT_S, INTERRUPTION_TIMEOUT_S, PROBE_TIMEOUT_S, REPORT_TIMEOUT_S, WARM_TIMEOUT_S = 60, 10, 45, 120, 60
ORPHANS_TIMEOUT_S = 60
"""Calls of EC2 that are throttled are tried again."""
EACH_HOUR = "cron(30 * * * ? *)"
WEBHOOK_TIMEOUT_S = 45
"""The secret is read, and some addresses of a host may each take `mark.protocols.webhook_post.TIMEOUT_S`."""
TRAIN_TIMEOUT_S = 900
"""The most that Lambda allows."""
HANDLER_MEMORY_MIB, REPORT_MEMORY_MIB, TRAIN_MEMORY_MIB = 256, 1024, 2048
"""The report draws plots. Training has a whole vCPU from 1,769 MB on (Lambda developer guide, memory)."""
KEEP_S = 24 * 3600
"""Events of yesterday are of no use."""
KEEP_DEAD_S = 14 * 24 * 3600
"""Dead letters are kept as long as SQS keeps anything: somebody wants to read them."""
RAW_VISIBILITY_S = 6 * INTERRUPTION_TIMEOUT_S
"""Six times the function's limit: AWS Lambda's guide."""
RAW_ATTEMPTS = 5
"""After so many failures a message of `raw` is a dead letter."""
BATCH = 10
DETAIL_TYPES = dict(zip(RULES, (SPOT, REBALANCE, STATE), strict=True))
WINDOW_MIN = 15
RETRIES, RETRY_S = 3, 3600
"""A call that fails is tried again within the hour, no longer: the next time comes anyway."""
OLD_VERSIONS_DAYS = 30
KEEP_TRAININGS_DAYS = 30
"""A controller that restarts takes the last one; without it, the function trains again."""
MINUTE_S = 60
"""Period of every alarm."""
METADATA = {
    "HttpEndpoint": "enabled",
    "HttpTokens": "required",
    "HttpPutResponseHopLimit": 1,
    "InstanceMetadataTags": "enabled",
}
"""Metadata by session alone, and an instance reads its own tags there."""

StoreVariable = Literal["MARK_STORE_URL", "MARK_STORE_SECRET", "MARK_REPORT_TABLE"]
"""Variable by which the report finds the store: a stack's store has a password, so its URL is a secret. A store on
nodes is out of a function's reach: the report is of a snapshot, and a table remembers what was mailed."""


class Deferred(Enum):
    """A value of a function's environment that is known once something else is made."""

    BUCKET = "bucket"
    EVENTS_URL = "events-url"
    STORE = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue. What was received `attempts` times and not deleted goes to its `dead_letters`, if it has such."""

    name: str
    keep_s: int
    #: Seconds; None: as SQS has it by itself.
    visibility_s: int | None = None
    #: The queue's name.
    dead_letters: str = ""
    attempts: int = 0
    #: SQS's own key encrypts it; one of KMS is billed by the call.
    encrypted: bool = True

    def redrive(self, dead_letters_arn: str) -> dict[str, Any]:
        """The redrive policy, as SQS has it."""
        return {"deadLetterTargetArn": dead_letters_arn, "maxReceiveCount": self.attempts}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """A rule that sends EC2's events of a type into a queue."""

    name: str
    about: str
    detail_type: str
    #: Name of its target, the queue `raw`.
    target: str = RAW

    @property
    def pattern(self) -> dict[str, list[str]]:
        """The events that it takes, as EventBridge has it."""
        return {"source": [SOURCE], "detail-type": [self.detail_type]}


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaSpec:
    """A function; `model`: the one that it answers for, if it does."""

    #: Its permissions are that role's (`permissions/calls.py`).
    role: str
    name: str
    memory_mib: int
    timeout_s: int
    model: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Variables whose values are not known before something else is made.
    deferred: Mapping[str, Deferred] = field(default_factory=dict)
    #: It answers as the version of its model that a call names, and the model has a second one, alike.
    has_versions: bool = False
    #: It is the second of its model's two.
    is_second: bool = False

    @property
    def handler(self) -> str:
        """`module.attribute`, as Lambda has it."""
        return handler_of(self.role)

    def variables(self, known: Mapping[Deferred, str]) -> dict[str, str]:
        """The whole environment; `known`: the values that were deferred."""
        later = {name: known[value] for name, value in self.deferred.items()}
        return {CALLER: f"mark-{self.role}", **self.environment, **later}


def called_as(function: LambdaSpec) -> tuple[str, ...]:
    """Names by which a model's functions are called."""
    return functions_of(function.name) if function.has_versions else (function.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSpec:
    """A function that is called with what comes into a queue; only messages that fail come again."""

    function: str
    queue: str
    batch: int = BATCH
    answers: tuple[str, ...] = ("ReportBatchItemFailures",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSpec:
    """A launch template. Image, user data, profile and groups are what its maker adds."""

    name: str
    disk_gib: int
    #: The machine image's root device: another name would add a second disk, which outlives its instance.
    root_device: str
    #: Kinds of resources that it tags when it launches.
    tagged: tuple[str, ...] = ("volume",)
    #: What a machine does that powers itself off; empty: as EC2 has it.
    shutdown: Literal["", "stop", "terminate"] = ""

    def data(self, tags: Mapping[str, str]) -> dict[str, Any]:
        """Its content but for what its maker adds, as EC2 and CloudFormation have it."""
        disk = {"VolumeSize": self.disk_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
        return {
            "MetadataOptions": METADATA,
            "BlockDeviceMappings": [{"DeviceName": self.root_device, "Ebs": disk}],
            "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in self.tagged],
            **({"InstanceInitiatedShutdownBehavior": self.shutdown} if self.shutdown else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpec:
    """An alarm on a metric, one value a minute. `missing`: what minutes without a value count as."""

    name: str
    about: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str
    threshold: float
    minutes: int
    comparison: str = "GreaterThanThreshold"
    missing: str = "notBreaching"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """A schedule that calls a function, as EventBridge Scheduler has it."""

    name: str
    about: str
    #: The function that it calls.
    function: str
    expression: str
    timezone: str = "UTC"
    window_min: int = WINDOW_MIN
    retries: int = RETRIES
    retry_s: int = RETRY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirySpec:
    """Expiry below a prefix of the bucket, in days; None: never."""

    name: str
    prefix: str = ""
    objects_days: int | None = None
    #: What was written over or removed.
    old_versions_days: int | None = None
    #: Uploads that were never ended.
    uploads_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """All that both worlds have of a service. `sender`: from whom reports are mailed, empty where none is."""

    service: str
    tags: Mapping[str, str]
    sender: str
    dead_letters: QueueSpec
    raw: QueueSpec
    events: QueueSpec
    rules: tuple[RuleSpec, ...]
    functions: tuple[LambdaSpec, ...]
    reader: ReaderSpec
    #: By role and kind of machine.
    templates: Mapping[tuple[Role, str], TemplateSpec]
    alarm: AlarmSpec
    schedules: tuple[ScheduleSpec, ...]
    expiries: tuple[ExpirySpec, ...]

    def schedule(self, part: str) -> ScheduleSpec:
        """The schedule of that name, without the service's."""
        return next(one for one in self.schedules if one.name == name_of(self.service, part))


def describe(
    service: str,
    rollout: RolloutSettings,
    infer: Sequence[LambdaSpec],
    *,
    store: StoreVariable,
    trains: bool = False,
) -> Resources:
    """The resources of a service; `trains`: with the function that trains forecasters.

    Misconfigured where a report is to be mailed to nobody.
    """
    raw = QueueSpec(
        name=name_of(service, RAW),
        keep_s=KEEP_S,
        visibility_s=RAW_VISIBILITY_S,
        dead_letters=name_of(service, DEAD_LETTERS),
        attempts=RAW_ATTEMPTS,
    )
    interruption, *others = _handlers(service, rollout, store)
    return Resources(
        service=service,
        tags=service_tags(service, rollout.owner, rollout.tags),
        sender=rollout.report.sender or "",
        dead_letters=QueueSpec(name=raw.dead_letters, keep_s=KEEP_DEAD_S),
        raw=raw,
        events=QueueSpec(name=name_of(service, EVENTS), keep_s=KEEP_S),
        rules=tuple(
            RuleSpec(name=name_of(service, rule), about=f"{kind} -> {raw.name}", detail_type=kind)
            for rule, kind in DETAIL_TYPES.items()
        ),
        functions=(
            *(one for function in infer for one in _inference(function)),
            interruption,
            *others,
            *([_training(service)] if trains else []),
        ),
        reader=ReaderSpec(function=interruption.name, queue=raw.name),
        templates=launch_templates(service, rollout),
        alarm=_dead_letter_alarm(service, raw.dead_letters),
        schedules=_schedules(service, rollout.report),
        expiries=_expiries(rollout.archive, trains=trains),
    )


def service_tags(service: str, owner: str, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The tags of everything that a service has. more: its owner's own."""
    return {**more, OWNER: owner, SERVICE: service}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as most of AWS has them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def handler_of(role: str) -> str:
    """The entry of a function, as Lambda has it: `module.attribute`."""
    return f"mark.lambda_handlers.{role}.handler"


def alarm_about(service: str, what: str) -> str:
    """Description of an alarm."""
    return f"MArk {service}: {what}. docs/deploy.md says what to do."


def mails(report: ReportMailSettings) -> bool:
    """True where a report is mailed. Misconfigured where nobody is to get it."""
    if report.sender is not None and not report.to:
        raise Misconfigured("rollout.report.to is missing: to whom is the report mailed?")
    return report.sender is not None


def queue_policy(queue_arn: str, senders: Sequence[str] = ()) -> dict[str, Any]:
    """Policy of a queue: nothing in the clear, and these rules (ARNs) of EventBridge may send to it."""
    encrypted = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": queue_arn,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    sends = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": list(senders)}},
    }
    return {"Version": "2012-10-17", "Statement": [encrypted, *([sends] if senders else [])]}


def _inference(function: LambdaSpec) -> tuple[LambdaSpec, ...]:
    """A model's functions. Misconfigured where AWS would not take the name of one."""
    if not function.has_versions:
        return (function,)
    named = functions_of(function.name)
    if len(named[-1]) > LONGEST:
        raise Misconfigured(
            f"{named[-1]!r} is not a valid name in AWS: at most {LONGEST} letters; rename the model"
        )
    first = replace(function, deferred={**function.deferred, "MARK_VERSIONS_BUCKET": Deferred.BUCKET})
    return first, replace(first, name=named[1], is_second=True)


def _handlers(service: str, rollout: RolloutSettings, store: StoreVariable) -> tuple[LambdaSpec, ...]:
    """The functions that are no model's; `interruption` first."""
    interruption = LambdaSpec(
        role="interruption",
        name=name_of(service, "interruption"),
        memory_mib=HANDLER_MEMORY_MIB,
        timeout_s=INTERRUPTION_TIMEOUT_S,
        deferred={"EVENTS_QUEUE_URL": Deferred.EVENTS_URL},
    )
    warm = LambdaSpec(
        role="warm", name=name_of(service, "warm"), memory_mib=HANDLER_MEMORY_MIB, timeout_s=WARM_TIMEOUT_S
    )
    orphans = LambdaSpec(
        role=ORPHANS,
        name=name_of(service, ORPHANS),
        memory_mib=HANDLER_MEMORY_MIB,
        timeout_s=ORPHANS_TIMEOUT_S,
        environment={"MARK_SERVICE": service}
        | ({} if rollout.ends_at is None else {"MARK_ENDS_AT": f"{rollout.ends_at:.0f}"}),
        deferred={"MARK_BUCKET": Deferred.BUCKET},
    )
    probe = LambdaSpec(
        role="probe", name=name_of(service, PROBE), memory_mib=HANDLER_MEMORY_MIB, timeout_s=PROBE_TIMEOUT_S
    )
    handlers = [interruption, warm, orphans]
    handlers += [probe] if rollout.functions.probe else []
    handlers += [_webhook(service, rollout.alarms.webhook)] if rollout.alarms.webhook is not None else []
    report = rollout.report
    if not mails(report):
        return tuple(handlers)
    mailing = LambdaSpec(
        role="report",
        name=name_of(service, REPORT),
        memory_mib=REPORT_MEMORY_MIB,
        timeout_s=REPORT_TIMEOUT_S,
        environment={
            "MARK_SERVICE": service,
            "MARK_REPORT_FROM": report.sender or "",
            "MARK_REPORT_TO": ",".join(report.to),
            **({"MARK_REPORT_RECONCILE": "1"} if report.reconcile else {}),
        },
        deferred={store: Deferred.STORE, "MARK_REPORT_BUCKET": Deferred.BUCKET},
    )
    return *handlers, mailing


def _webhook(service: str, secret: str) -> LambdaSpec:
    return LambdaSpec(
        role=WEBHOOK,
        name=name_of(service, WEBHOOK),
        memory_mib=HANDLER_MEMORY_MIB,
        timeout_s=WEBHOOK_TIMEOUT_S,
        environment={"MARK_SERVICE": service, WEBHOOK_SECRET: secret},
    )


def _training(service: str) -> LambdaSpec:
    return LambdaSpec(
        role=TRAIN,
        name=name_of(service, TRAIN),
        memory_mib=TRAIN_MEMORY_MIB,
        timeout_s=TRAIN_TIMEOUT_S,
        deferred={"MARK_TRAINING_BUCKET": Deferred.BUCKET},
    )


def launch_templates(service: str, rollout: RolloutSettings) -> dict[tuple[Role, str], TemplateSpec]:
    """Launch templates of each role and kind of machine; the first kind's bear no kind in their names."""
    kinds = with_disks(rollout).machine_kinds
    first = kinds[0]
    return {
        (role, machine.name): TemplateSpec(
            name=template_name(service, role, "" if machine == first else machine.name),
            disk_gib=machine.disk_gib or 0,
            root_device=machine.root_device,
            shutdown="stop" if role is Role.STANDBY else "terminate",
        )
        for role in Role
        for machine in kinds
    }


def _dead_letter_alarm(service: str, queue: str) -> AlarmSpec:
    return AlarmSpec(
        name=name_of(service, DEAD_LETTER_ALARM),
        about=alarm_about(service, "messages about instances that nobody could read"),
        namespace="AWS/SQS",
        metric="ApproximateNumberOfMessagesVisible",
        dimensions={"QueueName": queue},
        statistic="Maximum",
        threshold=0.0,
        minutes=1,
    )


def _schedules(service: str, report: ReportMailSettings) -> tuple[ScheduleSpec, ...]:
    looks = ScheduleSpec(
        name=name_of(service, ORPHANS),
        about=f"MArk {service}: instances that no controller owns",
        function=name_of(service, ORPHANS),
        expression=EACH_HOUR,
    )
    if not mails(report):
        return (looks,)
    mailing = ScheduleSpec(
        name=name_of(service, REPORT),
        about=f"MArk {service}: the report",
        function=name_of(service, REPORT),
        expression=report.schedule,
        timezone=report.timezone,
    )
    return looks, mailing


def _expiries(archive: ArchiveSettings, *, trains: bool) -> tuple[ExpirySpec, ...]:
    """Expiry of the bucket's objects; journals and reports are kept for ever where the settings name no days."""
    days = {JOURNAL: archive.journals_days, REPORTS: archive.reports_days}
    days |= {TRAININGS: KEEP_TRAININGS_DAYS} if trains else {}
    kept = (
        ExpirySpec(name=f"old-{part}", prefix=f"{part}/", objects_days=most)
        for part, most in days.items()
        if most is not None
    )
    return (ExpirySpec(name="old-versions", old_versions_days=OLD_VERSIONS_DAYS, uploads_days=1), *kept)
