"""From a request on the wire to its operation and parameters, as boto3 names them: as far as IAM asks for them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from mark.emulator.ec2.query_protocol import params_of
from mark.emulator.moto_parts import query_parameters, service_model

BOTO3_NAMES = {
    "monitoring": "cloudwatch",
    "servicequotas": "service-quotas",
    "ses": "sesv2",
    "tagging": "resourcegroupstaggingapi",
}
"""A signature's word for a service -> boto3's, where they differ."""
OF_S3 = {
    "GET /bucket/object": "GetObject",
    "HEAD /bucket/object": "HeadObject",
    "PUT /bucket": "CreateBucket",
    "PUT /bucket/object": "PutObject",
    "PUT /bucket?lifecycle": "PutBucketLifecycleConfiguration",
    "PUT /bucket?tagging": "PutBucketTagging",
    "PUT /bucket?versioning": "PutBucketVersioning",
}
"""The front's words for calls of S3 -> operations."""


def operation_and_params(
    service: str, action: str, *, path: str, query: str, body: bytes, form: Mapping[str, str]
) -> tuple[str, str, Mapping[str, Any]]:
    """Service, operation and parameters of a request whose service and action the front has named."""
    name = BOTO3_NAMES.get(service, service)
    if service == "ec2":
        return name, action, params_of(action, form)
    if service == "s3":
        bucket, _, key = path.removeprefix("/").partition("/")
        shape = action.replace(f"/{bucket}", "/bucket", 1)
        return name, OF_S3.get(shape, action), {"Bucket": bucket, "Key": key}
    qualified = {"Qualifier": values[0]} if (values := parse_qs(query).get("Qualifier")) else {}
    if action == "Invoke":
        return name, action, {"FunctionName": unquote(path.split("/")[3]), **qualified}
    method, _, asked = action.partition(" ")
    if not asked:
        return name, action, _of_body(name, action, path, body)
    operation, named = _routed(name, method, path)
    given = _record_names(body) if service == "route53" and body else _of_body(name, action, path, body)
    return name, operation, {**given, **named, **qualified}


def _of_body(service: str, action: str, path: str, body: bytes) -> Mapping[str, Any]:
    """Parameters in a form, in CBOR (whose calls have a path of their own) or in JSON."""
    if body.startswith(b"Action="):
        return query_parameters(service, action, body)
    if path.startswith("/service/"):
        return _cbor(body)
    given: Mapping[str, Any] = json.loads(body) if body.startswith(b"{") else {}
    return given


def _routed(service: str, method: str, path: str) -> tuple[str, dict[str, str]]:
    """The operation of a REST path, and the parameters in it; the path itself where it has none."""
    for operation, verb, shape, members in _routes(service):
        if verb == method and (match := shape.fullmatch(path.rstrip("/"))):
            return operation, dict(zip(members, map(unquote, match.groups()), strict=True))
    return f"{method} {path}", {}


@cache
def _routes(service: str) -> tuple[tuple[str, str, re.Pattern[str], tuple[str, ...]], ...]:
    """Operations with method, path and the names of the parameters in it; the most literal paths first."""
    found = []
    model = service_model(service)
    for name in model.operation_names:
        operation = model.operation_model(name)
        path = operation.http["requestUri"].partition("?")[0].rstrip("/")
        places = re.findall(r"\{(\w+)\+?\}", path)
        shape = re.compile(re.sub(r"\\\{\w+\\\+\\\}", "(.+)", re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(path))))
        inputs = operation.input_shape.members if operation.input_shape else {}
        members = {member.serialization.get("name", key): key for key, member in inputs.items()}
        found.append((name, operation.http["method"], shape, tuple(members.get(place, place) for place in places)))
    return tuple(sorted(found, key=lambda one: (len(one[3]), -len(one[2].pattern), one[0])))


def _record_names(body: bytes) -> dict[str, Any]:
    """The names that a change of records is about."""
    root = ET.fromstring(body)  # noqa: S314 our own client's
    sets = (one for one in root.iter() if one.tag.endswith("}ResourceRecordSet"))
    names = (next(part.text or "" for part in one if part.tag.endswith("}Name")) for one in sets)
    return {"ChangeBatch": {"Changes": [{"ResourceRecordSet": {"Name": name}} for name in names]}}


def simulation_body(answers: Iterable[tuple[str, str, bool]]) -> bytes:
    """The reply of SimulatePrincipalPolicy, of action, resource and whether it is allowed."""
    members = "".join(
        f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{escape(resource)}</EvalResourceName>"
        f"<EvalDecision>{'allowed' if allowed else 'implicitDeny'}</EvalDecision></member>"
        for action, resource, allowed in answers
    )
    name, inner = "SimulatePrincipalPolicy", f"<EvaluationResults>{members}</EvaluationResults>"
    return f"<{name}Response><{name}Result>{inner}</{name}Result></{name}Response>".encode()


def _cbor(body: bytes) -> dict[str, Any]:
    """CloudWatch's parameters: the part of CBOR (RFC 8949) that a client writes, at whatever length."""
    value, _ = _cbor_item(body or b"\xa0", 0)
    assert isinstance(value, dict)
    return value


def _cbor_item(data: bytes, at: int) -> tuple[Any, int]:
    kind, short = data[at] >> 5, data[at] & 0x1F
    at += 1
    if kind == 7:
        simple = {20: False, 21: True, 22: None}
        if short in simple:
            return simple[short], at
        size, code = {25: (2, ">e"), 26: (4, ">f"), 27: (8, ">d")}[short]
        return struct.unpack_from(code, data, at)[0], at + size
    wide = {24: 1, 25: 2, 26: 4, 27: 8}.get(short, 0)
    endless = short == 31
    count = int.from_bytes(data[at : at + wide], "big") if wide else short
    at += wide
    if kind in (0, 1):
        return (count if kind == 0 else -1 - count), at
    if kind in (2, 3):
        text = data[at : at + count]
        return (text if kind == 2 else text.decode()), at + count
    if kind == 6:
        return _cbor_item(data, at)
    items: list[Any] = []
    most = count * (2 if kind == 5 else 1)
    while (data[at] != 0xFF) if endless else len(items) < most:
        item, at = _cbor_item(data, at)
        items.append(item)
    at += endless
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == 5 else items), at
