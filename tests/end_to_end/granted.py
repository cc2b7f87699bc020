"""What a live service called of AWS, by role, against what its roles are granted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import botocore.session

from mark.aws.permissions.calls import ROLES

NAMES = {"monitoring": "cloudwatch", "servicequotas": "service-quotas", "ses": "sesv2"}
"""A signature's word for a service -> boto3's, where they differ."""


def beyond_what_is_granted(callers: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Calls that no role's list holds; callers: the emulated AWS's record, by role and `service:action`."""
    found = []
    for role, actions in callers.items():
        granted = {(call.service, call.action) for call in ROLES.get(role, ())}
        for text in actions:
            service, _, action = text.partition(":")
            name = NAMES.get(service, service)
            operations = _operations(name, action)
            if not any((name, operation) in granted for operation in operations):
                found.append(f"{role or 'somebody'}: {name}:{' or '.join(operations)}")
    return found


def _operations(service: str, action: str) -> list[str]:
    """boto3's names of an action; one of a REST protocol stands as method and path, which several may have."""
    method, _, path = action.partition(" ")
    if not path:
        return [action]
    shapes = _shapes(service)
    return [name for name, verb, shape in shapes if verb == method and shape.fullmatch(path.rstrip("/"))] or [
        action
    ]


@cache
def _shapes(service: str) -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    model = botocore.session.get_session().get_service_model(service)
    found = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        path, _, part = http["requestUri"].partition("?")
        named = f"{path.rstrip('/')}?{part}" if service == "s3" and part and "=" not in part else path.rstrip("/")
        path = re.sub(r"\\\{\w+\\\+?\\\}|\\\{\w+\\\}", "[^/?]+", re.escape(named))
        found.append((name, http["method"], re.compile(path)))
    return tuple(found)
