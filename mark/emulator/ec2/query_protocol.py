"""EC2's query protocol, by moto's own parsers and serializers: form in, parameters; values in, XML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from werkzeug.datastructures import MultiDict

from mark.emulator.moto_parts import ec2_operation, ec2_parser, ec2_serializer

Params = dict[str, Any]


@lru_cache(maxsize=256)
def _operation(action: str) -> Any:
    return ec2_operation(action)


def form_of(body: bytes) -> dict[str, str]:
    """The fields of a query-protocol body."""
    return dict(parse_qsl(body.decode(), keep_blank_values=True))


def params_of(action: str, form: Mapping[str, str]) -> Params:
    """The action's parameters, typed by the service's model."""
    parsed: Params = ec2_parser(_operation(action)).parse({"values": MultiDict(form)})
    return parsed


def serialize(action: str, result: Mapping[str, Any]) -> str:
    """The action's reply."""
    body: str = ec2_serializer(_operation(action)).serialize(dict(result))["body"]
    return body
