"""What a live service called of AWS, by role, against what its roles are granted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import botocore.session

from mark.aws.calls import ROLES

NAMES = {"servicequotas": "service-quotas", "ses": "sesv2"}
"""A signature's word for a service -> boto3's, where they differ."""


def beyond_what_is_granted(callers: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Calls that no role's list holds; callers: the emulated AWS's record, by role and `service:action`."""
    found = []
    for role, actions in callers.items():
        granted = {(call.service, call.action) for call in ROLES.get(role, ())}
        for text in actions:
            service, _, action = text.partition(":")
            name = NAMES.get(service, service)
            if (name, _operation(name, action)) not in granted:
                found.append(f"{role or 'somebody'}: {name}:{_operation(name, action)}")
    return found


def _operation(service: str, action: str) -> str:
    """boto3's name of an action; one of a REST protocol stands as method and path."""
    method, _, path = action.partition(" ")
    if not path:
        return action
    return next(
        (name for name, verb, shape in _shapes(service) if verb == method and shape.fullmatch(path.rstrip("/"))),
        action,
    )


@cache
def _shapes(service: str) -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    model = botocore.session.get_session().get_service_model(service)
    found = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        path = re.sub(
            r"\\\{\w+\\\+?\\\}|\\\{\w+\\\}", "[^/]+", re.escape(http["requestUri"].partition("?")[0].rstrip("/"))
        )
        found.append((name, http["method"], re.compile(path)))
    return tuple(found)
