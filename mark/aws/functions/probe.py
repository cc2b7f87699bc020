"""A request to a service that is reached from its own network alone, through the function `probe`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from mark.aws.errors import translated, unless_absent
from mark.aws.names import PROBE, TOKEN, name_of
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mark.aws.session import Aws
    from mark.protocols.probe import ProbeReply


def clients_token(aws: Aws, service: str) -> str:
    """The bearer token of the service's clients. Misconfigured where no such service stands."""
    name = name_of(service, TOKEN)
    token = unless_absent(lambda: str(aws.secrets.get_secret_value(SecretId=name)["SecretString"]))
    if token is None:
        raise Misconfigured(
            f"there is no secret {name} in {aws.settings.region}: the service {service} is neither up on this "
            "machine (`mark up`) nor deployed there (`mark deploy --trial`)"
        )
    return token


def ask_from_within(aws: Aws, service: str, url: str, body: str) -> ProbeReply:
    """Have the function send the request. Misconfigured where the service has no such function."""
    asked = {"url": url, "body": body, "token": clients_token(aws, service)}
    lacking = (
        "which sends the request: write rollout.functions.probe: true and deploy, or call the service from its "
        "network"
    )
    return cast("ProbeReply", answer_of(aws, name_of(service, PROBE), asked, lacking))


def answer_of(aws: Aws, function: str, asked: Mapping[str, object], lacking: str) -> Any:
    """The function's answer. Misconfigured where it fails, or, with what it is for, where it is `lacking`."""
    answer = unless_absent(lambda: aws.lambda_.invoke(FunctionName=function, Payload=json.dumps(asked).encode()))
    if answer is None:
        raise Misconfigured(f"there is no function {function}, {lacking}")
    with translated():
        payload = answer["Payload"].read()
    if answer.get("FunctionError"):
        raise Misconfigured(f"the function {function} failed: {payload[:500].decode(errors='replace')}")
    return json.loads(payload)
