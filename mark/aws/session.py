"""boto3 clients made from a frozen value: region, endpoint, retries and timeouts stand in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import BotoCoreError

from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from boto3.session import Session
    from mypy_boto3_ce import CostExplorerClient
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ecr import ECRClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_service_quotas import ServiceQuotasClient
    from mypy_boto3_sesv2 import SESV2Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

PRICES_REGION = "us-east-1"
POLL_S = 10
"""A long poll of a queue waits this long; SQS allows 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Keys handed in as values; an endpoint that checks none takes any."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """The address of AWS, and the time-outs and retries of its clients.

    `endpoint_url` None: AWS's own. `credentials` None: what boto3 finds (role, profile, environment).
    `max_attempts` counts the first call too; `adaptive` also slows down the client that is throttled. `role`: who
    asks, a role of `aws/permissions/calls.py`; each call says so (`app/mark-ROLE` in its user agent).
    """

    region: str
    endpoint_url: str | None = None
    credentials: Credentials | None = None
    retry_mode: Literal["standard", "adaptive"] = "adaptive"
    max_attempts: int = 4
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 10.0
    connections: int = 50
    user_agent: str = "mark-serving"
    role: str = ""


class _Client:
    """An attribute of `Aws`: the client of a service. differs: of its configuration."""

    def __init__(self, service: str, waits_s: float, differs: Mapping[str, Any]) -> None:
        self._service, self._waits_s, self._differs = service, waits_s, differs

    def __set_name__(self, _owner: type[Aws], name: str) -> None:
        self._name = name

    def __get__(self, aws: Aws | None, _owner: type[Aws]) -> Any:
        return self if aws is None else aws.client(self._name, self._service, self._waits_s, self._differs)


def _client(service: str, *, waits_s: float = 0.0, **differs: Any) -> Any:
    """A client whose calls may take `waits_s` longer than others."""
    return _Client(service, waits_s, differs)


class Aws:
    """The clients of one process, each made when it is first asked for; they may be shared by threads."""

    #: Instances, fleets, launch templates.
    ec2: EC2Client = _client("ec2")
    #: Starts of stopped instances, in one attempt.
    #: EC2 answers a lack of capacity with HTTP 500, which boto3 would ask again for seconds.
    waking: EC2Client = _client("ec2", retries={"total_max_attempts": 1})
    #: Queues; its calls may wait for a long poll.
    sqs: SQSClient = _client("sqs", waits_s=POLL_S)
    #: Functions: their making, and calls that are not urgent.
    lambda_: LambdaClient = _client("lambda", waits_s=60)
    #: EventBridge rules.
    events: EventBridgeClient = _client("events")
    #: Roles.
    iam: IAMClient = _client("iam")
    #: CloudFormation: stacks, change sets, events.
    stacks: CloudFormationClient = _client("cloudformation", waits_s=20)
    #: CloudWatch's alarms.
    alarms: Any = _client("cloudwatch")
    #: CloudWatch's metrics, of which a page may take its time.
    metrics: Any = _client("cloudwatch", waits_s=60)
    #: EventBridge Scheduler.
    schedules: Any = _client("scheduler")
    #: S3.
    objects: S3Client = _client("s3", waits_s=60)
    #: DynamoDB.
    tables: Any = _client("dynamodb")
    #: Route 53.
    names: Any = _client("route53")
    #: Systems Manager's parameters.
    parameters: SSMClient = _client("ssm")
    #: Secrets Manager.
    secrets: Any = _client("secretsmanager")
    #: The client of Cost Explorer.
    costs: CostExplorerClient = _client("ce")
    #: Container images.
    images: ECRClient = _client("ecr")
    #: Mail.
    mail: SESV2Client = _client("sesv2")
    #: List prices; asked in one of the three regions that tell those of all.
    prices: PricingClient = _client("pricing", region_name=PRICES_REGION)
    #: The account's plan, Free or Paid; one region answers for all.
    plan: Any = _client("freetier", region_name=PRICES_REGION)
    #: Quotas of the account.
    quotas: ServiceQuotasClient = _client("service-quotas")
    #: Savings Plans of the account; one region answers for all.
    savings_plans: Any = _client("savingsplans", region_name=PRICES_REGION)
    #: Resources of all services that bear a tag.
    tagging: Any = _client("resourcegroupstaggingapi")
    #: The client that names the owner of the credentials.
    identity: STSClient = _client("sts")

    def __init__(self, settings: AwsSettings) -> None:
        self.settings = settings
        self._clients: dict[str, Any] = {}
        self._making = Lock()  # boto3's sessions may not be shared by threads, its clients may

    @cached_property
    def _session(self) -> Session:
        """Made with the first client: boto3 takes 20 MiB, and most gateways and agents never call AWS."""
        from boto3.session import Session  # noqa: PLC0415

        from mark.aws.service_models import light_session  # noqa: PLC0415 - with boto3

        keys = self.settings.credentials
        return Session(
            botocore_session=light_session(),
            region_name=self.settings.region,
            aws_access_key_id=keys.access_key_id if keys else None,
            aws_secret_access_key=keys.secret_access_key if keys else None,
            aws_session_token=(keys.session_token or None) if keys else None,
        )

    def invoking(self, *, connections: int, timeout_s: float) -> LambdaClient:
        """A client for requests of users: one attempt; the caller decides about a failure."""
        with self._making:
            client: LambdaClient = self._made(
                "lambda",
                retries={"total_max_attempts": 1},
                read_timeout=timeout_s,
                max_pool_connections=connections,
            )
            self._clients[f"lambda {len(self._clients)}"] = client
        return client

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def client(self, name: str, service: str, waits_s: float, differs: Mapping[str, Any]) -> Any:
        """The client of that name."""
        with self._making:
            if name not in self._clients:
                read_s = self.settings.read_timeout_s + waits_s
                self._clients[name] = self._made(service, read_timeout=read_s, **differs)
            return self._clients[name]

    def _made(self, service: str, **differs: Any) -> Any:
        from botocore.config import Config  # noqa: PLC0415 - with boto3

        settings = self.settings
        plain: dict[str, Any] = {
            "retries": {"mode": settings.retry_mode, "total_max_attempts": settings.max_attempts},
            "connect_timeout": settings.connect_timeout_s,
            "max_pool_connections": settings.connections,
            "user_agent_extra": settings.user_agent,
            "user_agent_appid": f"mark-{settings.role}" if settings.role else None,
            "tcp_keepalive": True,
        }
        try:
            return self._session.client(  # type: ignore[call-overload]
                service, endpoint_url=settings.endpoint_url, config=Config(**(plain | differs))
            )
        except (BotoCoreError, ValueError) as error:
            raise Misconfigured(f"no client for {service}: {error}") from error
