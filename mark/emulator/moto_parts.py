"""All that is used of moto's insides, in one place and untyped: they are nobody's promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from moto.awslambda.models import LambdaBackend as _LambdaBackend
from moto.awslambda.models import lambda_backends
from moto.cloudformation import parsing as _parsing
from moto.cloudwatch.models import CloudWatchBackend as _CloudWatchBackend
from moto.cloudwatch.models import cloudwatch_backends
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from moto.ec2.models import ec2_backends
from moto.events.models import EventTemplateParser as _EventTemplateParser  # type: ignore[attr-defined]
from moto.events.models import Rule as _Rule
from moto.events.models import events_backends
from moto.scheduler.models import scheduler_backends
from moto.secretsmanager.exceptions import ResourceExistsException as _ResourceExists
from moto.secretsmanager.models import SecretsManagerBackend as _SecretsBackend
from moto.sqs.models import Queue as _Queue
from moto.sqs.models import sqs_backends
from werkzeug.datastructures import MultiDict

from mark.emulator.config import ACCOUNT, REGION

CLOUDWATCH_BACKEND: Any = _CloudWatchBackend
EVENT_TEMPLATES: Any = _EventTemplateParser
LAMBDA_BACKEND: Any = _LambdaBackend
QUEUE: Any = _Queue
RESOURCE_TYPES: Any = _parsing
RULE: Any = _Rule
SECRETS_BACKEND: Any = _SecretsBackend
SECRETS_EXISTS: Any = _ResourceExists


def cloudwatch_backend() -> Any:
    """Alarms."""
    return cloudwatch_backends[ACCOUNT][REGION]


def ec2_backend() -> Any:
    """Networks, groups, images and launch templates."""
    return ec2_backends[ACCOUNT][REGION]


def sold_in(instance_type: str, zone: str) -> bool:
    """True where AWS sells a type in a zone, by what moto has recorded of DescribeInstanceTypeOfferings."""
    filters = {"location": [zone], "instance-type": [instance_type]}
    return bool(ec2_backend().describe_instance_type_offerings("availability-zone", filters))


def events_backend() -> Any:
    """EventBridge's rules and targets."""
    return events_backends[ACCOUNT][REGION]


def lambda_backend() -> Any:
    """Functions and event source mappings."""
    return lambda_backends[ACCOUNT][REGION]


def scheduler_backend() -> Any:
    """EventBridge Scheduler's schedules."""
    return scheduler_backends[ACCOUNT][REGION]


def sqs_backend() -> Any:
    """Queues."""
    return sqs_backends[ACCOUNT][REGION]


def service_model(service: str) -> Any:
    """The model of a service, as boto3 names it."""
    return get_service_model(service)


def query_parameters(service: str, action: str, body: bytes) -> Mapping[str, Any]:
    """The parameters in a form, typed by the service's model."""
    fields: Any = {"values": MultiDict(parse_qsl(body.decode(), keep_blank_values=True))}
    parser = PROTOCOL_PARSERS["query"](get_service_model(service).operation_model(action))
    parsed: Mapping[str, Any] = parser.parse(fields)
    return parsed


def ec2_operation(action: str) -> Any:
    """The model of an EC2 action."""
    return get_service_model("ec2").operation_model(action)


def ec2_parser(operation: Any) -> Any:
    """Form fields in, parameters out."""
    return PROTOCOL_PARSERS["ec2"](operation)


def ec2_serializer(operation: Any) -> Any:
    """Values in, XML out."""
    return get_serializer_class("ec2", "ec2")(operation)
