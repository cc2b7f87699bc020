"""All that is used of moto's insides, in one place and untyped: they are nobody's promise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from moto.awslambda.models import LambdaBackend as _LambdaBackend
from moto.backends import get_backend
from moto.cloudformation import parsing as _parsing
from moto.cloudwatch.models import CloudWatchBackend as _CloudWatchBackend
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.events.models import EventTemplateParser as _EventTemplateParser
from moto.events.models import Rule as _Rule
from moto.route53.exceptions import Route53ClientError as _Route53Error
from moto.route53.models import Route53Backend as _Route53Backend
from moto.secretsmanager.exceptions import ResourceExistsException as _ResourceExists
from moto.secretsmanager.models import SecretsManagerBackend as _SecretsBackend
from moto.sqs.models import Queue as _Queue
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import NotFound

from mark.emulator.config import ACCOUNT, REGION

CLOUDWATCH_BACKEND: Any = _CloudWatchBackend
EVENT_TEMPLATES: Any = _EventTemplateParser
LAMBDA_BACKEND: Any = _LambdaBackend
QUEUE: Any = _Queue
RESOURCE_TYPES: Any = _parsing
RULE: Any = _Rule
ROUTE53_BACKEND: Any = _Route53Backend
ROUTE53_ERROR: Any = _Route53Error
SECRETS_BACKEND: Any = _SecretsBackend
SECRETS_EXISTS: Any = _ResourceExists


def backend_of(service: str) -> Any:
    """Moto's state of a service in the account: functions, queues, networks, rules, alarms."""
    find: Any = get_backend
    return find(service)[ACCOUNT][REGION]


def tags_of_function(name: str) -> dict[str, str]:
    """Tags of a Lambda function."""
    return dict(backend_of("lambda").get_function(name).tags)


def role_of(arn: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """A role's trust, and its policies; None where there is none."""
    find: Any = get_backend
    roles = find("iam")[ACCOUNT]["aws"].roles.values()
    role = next((one for one in roles if one.arn == arn), None)
    if role is None:
        return None
    attached = (json.loads(one.document) for one in role.managed_policies.values())
    return json.loads(role.assume_role_policy_document), [*map(json.loads, role.policies.values()), *attached]


def sold_in(instance_type: str, zone: str) -> bool:
    """True where AWS sells a type in a zone, by what moto has recorded of DescribeInstanceTypeOfferings."""
    filters = {"location": [zone], "instance-type": [instance_type]}
    return bool(backend_of("ec2").describe_instance_type_offerings("availability-zone", filters))


def is_free_tier(instance_type: str) -> bool:
    """True for a type that an account on AWS's Free plan may launch, by what moto has recorded of AWS."""
    return bool(INSTANCE_TYPES.get(instance_type, {}).get("FreeTierEligible"))


def instead_of(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a function in the place of one of moto's, which it is given before the other arguments."""
    known = getattr(owner, name)
    original = getattr(known, "original", known)  # an emulated AWS of this process was there before

    def put(ours: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*arguments: Any, **more: Any) -> Any:
            return ours(original, *arguments, **more)

        replaced.original = original  # type: ignore[attr-defined]
        setattr(owner, name, replaced)
        return replaced

    return put


@lru_cache(maxsize=256)
def _operation(service: str, action: str) -> Any:
    return get_service_model(service).operation_model(action)


def request_of(scope: Mapping[str, Any], body: bytes) -> Request:
    """The request of an ASGI scope."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    target = b"?".join((scope["raw_path"], scope["query_string"])).decode("latin-1")
    return Request.from_primitives(scope["method"], f"http://{headers.get('host', '')}{target}", headers, body)


def operation_and_params(service: str, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Operation and parameters of a request; its method and path where the service has no such operation."""
    try:
        operation, url_params = get_service_router(service).match(request)
    except NotFound:
        return f"{request.method} {request.path}", {}
    parser: Any = PROTOCOL_PARSERS[determine_request_protocol(get_service_model(service), request.content_type)]
    params: Mapping[str, Any] = parser(operation).parse(
        {
            "values": request.values,
            "headers": request.headers,
            "body": request.data,
            "url_params": url_params,
        }
    )
    return str(operation.name), params


def query_parameters(service: str, action: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The parameters in a form of the query protocol, typed by the service's model."""
    operation = _operation(service, action)
    fields: Any = {"values": MultiDict(form)}
    parsed: dict[str, Any] = PROTOCOL_PARSERS[operation.service_model.protocol](operation).parse(fields)
    return parsed


def serialize(service: str, action: str, result: Mapping[str, Any]) -> str:
    """The reply to an action of the query protocol."""
    operation = _operation(service, action)
    serializer: Any = get_serializer_class(service, operation.service_model.protocol)
    body: str = serializer(operation).serialize(dict(result))["body"]
    return body
