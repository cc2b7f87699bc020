"""The part of the settings that says how the service stands in an AWS account: what `mark deploy` makes."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, time
from hashlib import sha256
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from mark.config.parts import NotNegativeInt, Part, Positive, PositiveInt, matching
from mark.domain.offerings.snapshots import SNAPSHOT_GIB, snapshot_gib

Mail = Annotated[str, matching(r"[^@\s]+@[^@\s]+", "team@example.com")]
Arn = Annotated[
    str,
    matching(
        r"arn:[a-z-]+:[a-z0-9-]+:[a-z0-9-]*:[0-9]*:.+",
        "arn:aws:acm:us-east-1:123456789012:certificate/0000",
    ),
]
Image = Annotated[
    str,
    matching(
        r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[\w./-]+(:[\w.-]+|@sha256:[0-9a-f]{64})",
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1, an image in ECR with its tag",
    ),
]
"""In a registry of ECR, this account's or another's: no other takes the login that start scripts have."""
Nodes = Literal[1, 2]
MOST_NODES: int = max(get_args(Nodes))
"""Of the shape `lean`."""
AWS_ROOT_DEVICE = "/dev/xvda"
"""Of AWS's images for containers."""
Owner = Annotated[
    str, matching(r"[\w.:/=+@ -]{1,100}", "team@example.com, in characters that a tag of AWS may have")
]
TagKey = Annotated[
    str,
    matching(
        r"(?i:(?!aws:|mark:))(?!(\.|\.\.|_index)$)[A-Za-z0-9_.:+@-]{1,128}",
        "cost-centre, in 1 to 128 letters, digits and _.:+@-, which are what EC2 launches an instance with that "
        "reads its tags, and not beginning with aws: or mark:",
    ),
]
TagValue = Annotated[str, matching(r"[\w.:/=+@ -]{0,256}", "research, in characters that a tag of AWS may have")]
MOST_TAGS = 20
"""Of one's own: AWS takes 50 on a resource, and instances have nine of the service's."""
HostName = Annotated[
    str, matching(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}", "a name in DNS, api.example.com")
]
Account = Annotated[str, matching(r"\d{12}", "123456789012, the digits in quotes")]
Bundle = Annotated[str, matching(r"artifacts/[\w./-]+\.tar\.gz", "artifacts/model.tar.gz")]
Secret = Annotated[
    str,
    matching(
        r"[\w/+=.@-]{1,512}|arn:[a-z-]+:secretsmanager:[a-z0-9-]+:\d{12}:secret:[\w/+=.@-]+",
        "mark/webhook, the name or ARN of a secret in Secrets Manager",
        secret=True,
    ),
]
Schedule = Annotated[str, matching(r"(cron|rate)\(.+\)", "cron(0 7 * * ? *) or rate(1 day)")]


def _addresses(text: str) -> str:
    try:
        IPv4Network(text)
    except ValueError as error:
        raise PydanticCustomError("pattern", "should be a network such as 10.77.0.0/16") from error
    return text


Cidr = Annotated[str, AfterValidator(_addresses)]
PROCESS_ENDPOINTS = (
    "cloudformation",
    "ec2",
    "ecr.api",
    "ecr.dkr",
    "lambda",
    "logs",
    "monitoring",
    "secretsmanager",
    "servicequotas",
    "sqs",
    "ssm",
)
"""Services that processes and start scripts call; S3 has a gateway endpoint, which is free."""
MAIL_ENDPOINTS = ("secretsmanager", "email")
"""Services that the report function calls: functions in a network have no public address. One zone's will do."""
COSTS_ENDPOINT = "ce"
"""Cost Explorer, where the report asks it."""
LARGEST, SMALLEST = 16, 24
"""Prefixes of a network of our own: AWS makes subnets down to /28, and each zone's is a sixteenth."""


class NetworkSettings(Part):
    """Network of the service: one of its own, or one that is there."""

    cidr: Cidr = Field("10.77.0.0/16", description="Addresses of the network, also of one there.")
    zones: tuple[str, ...] = Field(
        (),
        description="Availability zones, two at least; left out, `mark deploy` asks AWS and keeps what it chose.",
    )
    vpc: str | None = Field(None, pattern=r"^vpc-", description="A network that is there; left out, one is made.")
    subnets: tuple[str, ...] = Field((), description="Its subnets, one for each of `zones`, in that order.")
    egress: Literal["public", "ipv6", "private"] = Field(
        "public",
        description="How instances reach AWS. public: each has a public IPv4 address, 3.65 USD a month, that "
        "nothing can connect to. ipv6: by IPv6, which is free; nodes, gateways and controllers keep public "
        "addresses. private: nothing has one, and VPC endpoints cost 7 USD a month each and zone.",
    )

    @property
    def private(self) -> bool:
        """True where nothing has a way out of the network."""
        return self.egress == "private"

    @model_validator(mode="after")
    def _subnets_of_zones(self) -> Self:
        if len(self.zones) == 1:
            raise ValueError("zones: two at least, so that one may fail")
        if len(set(self.zones)) != len(self.zones):
            raise ValueError(f"zones: each once, not {', '.join(self.zones)}")
        wanted = (len(self.zones) or 2) if self.vpc else 0
        if not self.vpc and not LARGEST <= IPv4Network(self.cidr).prefixlen <= SMALLEST:
            raise ValueError(f"cidr: from /{LARGEST} to /{SMALLEST} for a network that is made, not {self.cidr}")
        if len(self.subnets) != wanted:
            raise ValueError(f"subnets: {wanted} wanted, one for each zone of a vpc that is there")
        return self


class MachineSettings(Part):
    """A kind of instances: those of an architecture, with or without an accelerator, start from one template."""

    architecture: Literal["amd64", "arm64"] = Field("amd64", description="Its processor.")
    accelerator: Literal["", "nvidia"] = Field("", description="nvidia for types with such GPUs.")
    ami: str | None = Field(
        None,
        pattern=r"^ami-",
        description="Machine image with Docker; left out, AWS's newest one.",
    )
    root_device: str = Field(
        AWS_ROOT_DEVICE, pattern=r"^/dev/[a-z0-9]+$", description="Root device of the ami; `mark doctor` compares."
    )
    disk_gib: PositiveInt | None = Field(
        None,
        description="Size of the root disk; left out, what system, images and the models' files take, twice for a "
        "version beside.",
    )

    @model_validator(mode="after")
    def _image_known(self) -> Self:
        if self.ami is None and self.name == "arm64-nvidia":
            raise ValueError("ami: AWS publishes no image for containers on arm64 with nvidia; name one")
        if self.disk_gib is not None and self.disk_gib < (
            least := snapshot_gib(own_image=self.ami is not None, gpu=bool(self.accelerator))
        ):
            raise ValueError(
                f"disk_gib: AWS's image takes {least}, not {self.disk_gib}; leave it out, ask for more, or name "
                "an ami of your own"
            )
        return self

    @property
    def name(self) -> str:
        """`amd64`, `arm64`, `amd64-nvidia`: as the launch templates are told apart."""
        return f"{self.architecture}-{self.accelerator}" if self.accelerator else self.architecture


USUAL_MACHINES = (MachineSettings(), MachineSettings(architecture="arm64"))
"""AWS publishes a machine image for each, and nodes have the service's image made for both. For GPUs
it needs CUDA."""


FUNCTION_MIB = 3008
"""Lambda's largest function until December 2020, and still in new accounts. MArk's "3 GB" of 2019 was this one, so
that its latencies are this size's."""


class StoreSettings(Part):
    """The store that all processes share: an ElastiCache of their own, with TLS and a password."""

    engine: Literal["valkey", "redis"] = Field("valkey", description="valkey or redis.")
    node_type: str | None = Field(
        None, description="Node type; left out, the smallest that holds what the models keep at most."
    )
    replicas: NotNegativeInt = Field(1, description="Copies; the first one takes over when the store fails.")
    passwords: PositiveInt = Field(
        1,
        description="Number of its users' passwords: with one more a deploy makes new ones, beside which those "
        "before count until the next (docs/deploy.md).",
    )

    @property
    def valid_passwords(self) -> tuple[int, ...]:
        """Numbers of the passwords that count, the newest first; ElastiCache takes two of a user."""
        return tuple(range(self.passwords, max(0, self.passwords - 2), -1))


class GatewayMachineSettings(Part):
    """Machines of gateways in the shape ha; service.gateways says how many."""

    instance_type: str | None = Field(
        None,
        description="Instance type, of a processor that `machines` has; left out, the cheapest for peak_rps, on "
        "Graviton where `machines` has arm64.",
    )
    scheme: Literal["internet-facing", "internal"] = Field(
        "internal", description="Whether clients come from the internet or from the network."
    )
    clients: tuple[str, ...] = Field(
        (), description="Addresses (CIDR) that may call; left out, the network's own."
    )


class NodeSettings(Part):
    """Nodes of the lean shape: each runs a gateway, a controller and a copy of the store."""

    instance_type: str | None = Field(
        None,
        description="Instance type; left out, t4g.micro where it carries models and load, else t4g.small (t3 on "
        "amd64; docs/costs.md).",
    )
    architecture: Literal["amd64", "arm64"] = Field("arm64", description="Its processor.")
    ami: str | None = Field(
        None,
        pattern=r"^ami-",
        description="Machine image with Docker; left out, AWS's newest one.",
    )
    root_device: str = Field(
        AWS_ROOT_DEVICE, pattern=r"^/dev/[a-z0-9]+$", description="Root device of the ami; `mark doctor` compares."
    )
    disk_gib: Annotated[int, Field(ge=SNAPSHOT_GIB)] | None = Field(
        None, description="Size of the root disk; left out, what system, images and store take."
    )
    name: HostName | None = Field(
        None, description="Name that clients call: that of the certificate, api.example.com."
    )
    zone: str | None = Field(
        None,
        pattern=r"^Z[A-Z0-9]+$",
        description="Hosted zone of Route 53 that holds the name; left out, one of the network's own is made.",
    )
    certificate: Arn | None = Field(
        None,
        description="Secret (ARN) of the certificate that clients see, a JSON object: `certificate` is the chain, "
        "`key` the private key, both PEM.",
    )

    self_signed: bool = Field(
        False,
        description="Instead of `certificate`: nodes make it, by an authority of the service's own. No client can "
        "check it.",
    )
    store_image: str = Field(
        "public.ecr.aws/docker/library/redis:7.2-alpine",
        description="Image of the store: Redis or Valkey, with TLS.",
    )

    @model_validator(mode="after")
    def _one_certificate(self) -> Self:
        if self.self_signed and self.certificate is not None:
            raise ValueError("self_signed: nodes take `certificate`, or make their own; leave one of them out")
        return self

    @property
    def machine(self) -> MachineSettings:
        """The node as a kind of machine."""
        return MachineSettings(
            architecture=self.architecture, ami=self.ami, root_device=self.root_device, disk_gib=self.disk_gib
        )


class ControlSettings(Part):
    """Tasks of controllers (Fargate); service.controllers says how many."""

    cpu: Literal[256, 512, 1024, 2048] = Field(1024, description="CPU units; 1024 are a vCPU.")
    memory_mib: PositiveInt = Field(2048, description="Memory.")


class FunctionSettings(Part):
    """The Lambda functions."""

    bundles: Path = Field(Path("dist/lambda"), description="Folder of the handlers' zips.")
    infer_image: Image | None = Field(
        None, description="Image in ECR of the inference function; left out, the zip infer.zip."
    )
    provisioned: NotNegativeInt = Field(
        0, description="Environments of each inference function kept warm, billed."
    )
    memory_mib: Annotated[int, Field(ge=128, le=10240)] | None = Field(
        None,
        description="Memory of each inference function, or what its model needs. Left out, a service has 3008, "
        "the most in a new account, and a replay 3072.",
    )
    probe: bool = Field(
        False,
        description="Whether `mark try` reaches the service in an account: by a function in its network, which "
        "sends the request. AWS may take up to 40 minutes to remove it.",
    )
    reserved: PositiveInt | None = Field(None, description="Most calls at once of each; left out, the account's.")


class ReportMailSettings(Part):
    """The report that is mailed."""

    sender: Mail | None = Field(None, description="From whom: an identity that SES has verified. None: no mail.")
    to: tuple[Mail, ...] = Field((), description="To whom.")
    schedule: Schedule = Field("cron(0 7 * * ? *)", description="When, as EventBridge Scheduler has it.")
    timezone: str = Field("UTC", description="Time zone of the schedule.")
    reconcile: bool = Field(
        False,
        description="Whether it asks Cost Explorer what AWS says, 0.01 USD a report; only then may its function. "
        "Cost Explorer is reached in us-east-1 alone.",
    )


class ArchiveSettings(Part):
    """The service's bucket: copies of its journals, and the reports that were mailed. It outlives the service."""

    journals_days: PositiveInt | None = Field(
        None, description="How long copies of journals are kept; left out, for ever."
    )
    reports_days: PositiveInt | None = Field(None, description="How long reports are kept; left out, for ever.")


class AlarmSettings(Part):
    """Alarms that are sent at once."""

    to: tuple[Mail, ...] = Field((), description="Recipients of alarms, by mail.")
    webhook: Secret | None = Field(
        None,
        description="Secret (name or ARN in Secrets Manager) that holds the address of a webhook in Slack's form, "
        "https://...: alarms are posted there, too (docs/deploy.md#alarms).",
    )
    max_usd_per_hour: Positive | None = Field(
        None, description="Told when all models' instances together spend more; none when left out."
    )
    max_overflow_share: float = Field(
        0.2, gt=0, le=1, description="Told when Lambda answers more than this share."
    )


class RolloutSettings(Part):
    """The service in an AWS account (`mark synth`, `diff`, `deploy`, `destroy`; docs/deploy.md)."""

    shape: Literal["lean", "ha"] = Field(
        "lean",
        description="lean: gateway, controller and store together on `nodes`. ha: gateways behind a load "
        "balancer, controllers on Fargate, the store in ElastiCache (docs/deploy.md says when).",
    )
    nodes: Nodes = Field(2, description="Nodes of the lean shape; with one, its loss stops the service.")
    node: NodeSettings = Field(NodeSettings(), description="What a node of the lean shape is.")

    peak_rps: Positive | None = Field(
        None,
        description="Highest rate of all models together, requests/s, that the gateways of the shape ha are made "
        "for; left out, what two lean nodes carry.",
    )
    owner: Owner = Field("mark", description="The team responsible: the tag mark:owner.")
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict,
        max_length=MOST_TAGS,
        description="Tags of your own on all that can be tagged, instances that are launched and their disks "
        "included, such as `{cost-centre: research}`; 20 at most.",
    )
    account: Account | None = Field(None, description="The account it must be; left out, that of the credentials.")
    service_role: bool = Field(
        False,
        description="Whether CloudFormation acts in a role of its own, and the service's roles have a permissions "
        "boundary: an administrator makes both once, of `access.json` (docs/account.md).",
    )
    image: Image | None = Field(
        None, description="Image in ECR of the service's processes (infra/image/Dockerfile)."
    )
    agent_image: Image | None = Field(
        None, description="Image in ECR of the agents alone, where they need more or less; left out, `image`."
    )
    training_image: Image | None = Field(
        None,
        description="Image in ECR of a Lambda function that trains the forecasters which take torch "
        "(infra/image/infer.Dockerfile); left out, controllers train them, if `image` has torch.",
    )
    model_image: Image | None = Field(
        None, description="Image in ECR of a model server that an agent calls on its own machine, if there is one."
    )
    bundle: Bundle | None = Field(None, description="Model files in the service's bucket, unpacked in /model.")
    certificate: Arn | None = Field(None, description="ACM certificate (ARN) that clients see.")
    machines: Annotated[tuple[MachineSettings, ...], Field(min_length=1)] | None = Field(
        None,
        description="Kinds of instances that may be rented: what needs another kind is never offered. Left out, "
        "a service has those without an accelerator; so has a replay of settings with a section rollout, while "
        "one without it takes any.",
    )
    network: NetworkSettings = Field(NetworkSettings(), description="Where it stands.")
    store: StoreSettings = Field(StoreSettings(), description="What its processes share.")
    gateway: GatewayMachineSettings = Field(GatewayMachineSettings(), description="What gateways run on.")
    control: ControlSettings = Field(ControlSettings(), description="What controllers run on.")
    functions: FunctionSettings = Field(FunctionSettings(), description="The Lambda functions.")
    report: ReportMailSettings = Field(ReportMailSettings(), description="The report that is mailed.")
    ends_on: date | None = Field(
        None,
        description="The day (UTC) at whose beginning the service ends by itself, nodes and instances; the other "
        "resources stay. Deploy with a later day to go on. Left out, it has no end. For the shape lean.",
    )
    archive: ArchiveSettings = Field(ArchiveSettings(), description="How long its bucket keeps what.")
    alarms: AlarmSettings = Field(AlarmSettings(), description="Alarms: when, and to whom.")
    keep_logs_days: Literal[7, 30, 90, 365] = Field(365, description="How long logs are kept.")

    @property
    def ends_at(self) -> float | None:
        """The instant at which the service ends, epoch seconds; None for no end."""
        return None if self.ends_on is None else datetime.combine(self.ends_on, time(), UTC).timestamp()

    @property
    def machine_kinds(self) -> tuple[MachineSettings, ...]:
        """Kinds of instances that a service may rent."""
        return self.machines or USUAL_MACHINES

    @property
    def agent_version(self) -> str:
        """Version of what new instances run, a tag of theirs: another once image, model or machines differ."""
        parts = (
            self.agent_image or self.image,
            self.model_image,
            self.bundle,
            [one.model_dump() for one in self.machine_kinds],
        )
        return sha256(json.dumps(parts).encode()).hexdigest()[:12]

    @property
    def function_mib(self) -> int:
        """Memory of an inference function of a service, MiB."""
        return self.functions.memory_mib or FUNCTION_MIB

    def machine_of(self, architecture: str) -> MachineSettings | None:
        """Kind for gateways and controllers of this processor, if there is one: without an accelerator rather."""
        found = [machine for machine in self.machine_kinds if machine.architecture == architecture]
        return min(found, key=lambda machine: bool(machine.accelerator), default=None)

    @model_validator(mode="after")
    def _lean_has_addresses(self) -> Self:
        if self.shape == "lean" and self.network.private:
            raise ValueError(
                "network.egress private: the lean shape has no interface endpoints; use shape: ha, or ipv6 or "
                "public, whose addresses nothing can connect to"
            )
        return self

    @model_validator(mode="after")
    def _only_nodes_end(self) -> Self:
        if self.ends_on is not None and self.shape != "lean":
            raise ValueError("ends_on: what the shape ha stands on cannot end by itself; leave it out")
        return self

    @model_validator(mode="after")
    def _machines_once(self) -> Self:
        names = [machine.name for machine in self.machines or ()]
        if len(set(names)) != len(names):
            raise ValueError(f"machines: each kind once, not {', '.join(names)}")
        return self

    @model_validator(mode="after")
    def _tags_once(self) -> Self:
        keys = Counter(key.lower() for key in self.tags)
        alike = [key for key in self.tags if keys[key.lower()] > 1]
        if alike:
            raise ValueError(f"tags: IAM takes {', '.join(alike)} for one key")
        return self


def node_name(rollout: RolloutSettings, service: str) -> str:
    """Name of the nodes that clients call; what a trial calls them where none is given."""
    return rollout.node.name or f"{service}.mark.internal"


def endpoint_services(rollout: RolloutSettings) -> tuple[str, ...]:
    """Services of AWS that are reached through interface endpoints of a network of our own."""
    if rollout.shape == "lean":
        return ()
    mails = rollout.report.sender is not None
    named = PROCESS_ENDPOINTS if rollout.network.private else ()
    mail = (*MAIL_ENDPOINTS, *((COSTS_ENDPOINT,) if rollout.report.reconcile else ())) if mails else ()
    return tuple(dict.fromkeys((*named, *mail)))
