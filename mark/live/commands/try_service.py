"""`mark try`: one request to the service, by the way that reaches it, and what came of it.

A service that is up on this machine is asked at its gateway. One in an AWS account has an internal address, so
its function `probe` asks there: credentials are enough, and no port is opened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import typer

from mark.aws.functions.probe import ask_from_within, clients_token
from mark.aws.names import name_of
from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import Stacks
from mark.config.rollout import node_name
from mark.config.served import served_models
from mark.config.settings import Settings
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.live.backend_specs import tensors_of
from mark.live.commands.client import as_client, refusal_hint
from mark.live.commands.load import NOT_ANSWERED, chosen
from mark.live.local.run_dir import RunFolder
from mark.live.local.running import Running
from mark.live.service_session import service_aws
from mark.protocols.oip.bodies import example_body
from mark.protocols.probe import ProbeReply, ask
from mark.report.terminal import note, show, show_json

SHOWN = 600
"""Characters of an answer that are shown; --json has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way to a service. `ask` sends a body to the model and gives the reply."""

    service: str
    model: str
    #: Where the request is sent from.
    through: str
    url: str
    body: str
    ask: Callable[[], ProbeReply]


class TryDocument(TypedDict):
    """The document of `mark try --json` (docs/json.md)."""

    service: str
    #: The model that was asked.
    model: str
    #: Where from: `this machine`, or a function and its region.
    through: str
    #: What was asked.
    url: str
    #: HTTP status; 0 where nothing answered.
    status: int
    #: instance, standby or lambda; null where no model answered.
    served_by: str | None
    #: Where the request was sent from, until the answer was there.
    latency_ms: float
    #: From this machine, the way there included.
    total_ms: float
    #: The answer, parsed where it is JSON; else why there is none.
    answer: object


def try_service(
    settings: Settings, *, model: str | None, address: str | None, key_file: Path | None = None, as_json: bool
) -> None:
    """Send the model's example and print the answer; typer.Exit where no model answered.

    key_file: of a client of a service that is up here.
    """
    running = RunFolder.of(settings.service.name).running()
    if running is None and key_file is not None:
        raise Misconfigured("--key-file is for a service on this machine; the probe in an account sends its token")
    running = running and as_client(running, key_file)
    with closing(service_aws(settings, "prober")) as aws:
        route = route_to_machine(running, model) if running else route_to_account(settings, aws, model, address)
        began = time.monotonic()
        reply = route.ask()
        total_ms = 1000 * (time.monotonic() - began)
    document = described(route, reply, total_ms)
    if as_json:
        show_json(document)
    elif reply["status"] == 200:
        _show(document)
    if reply["status"] != 200:
        hint = "" if running is None else refusal_hint(reply["status"], document["model"], key_file)
        note("; ".join(filter(None, (_failure(document), hint))))
        raise typer.Exit(NOT_ANSWERED)


def route_to_machine(running: Running, model: str | None) -> Route:
    """The way to a service that is up here."""
    found = chosen(running, model)
    url, body = f"{running.gateway}{_path(found['name'])}", json_text(found["example"], compact=True)
    return Route(
        service=running.name,
        model=found["name"],
        through="this machine",
        url=url,
        body=body,
        ask=lambda: ask(url, body, running.token),
    )


def route_to_account(settings: Settings, aws: Aws, model: str | None, address: str | None) -> Route:
    """The way to a service in an AWS account: its function `probe`. An emulated model is never there."""
    served = served_models(settings)
    wanted = [one for one in served if model in (None, one.model)]
    if not wanted:
        known = ", ".join(one.model for one in served)
        raise Misconfigured(f"the settings have no model {model}; they have {known}")
    found = next((one for one in wanted if one.backend.kind != "emulated"), wanted[0])
    service, region = settings.service.name, settings.service.aws.region
    url = f"https://{address or _address(settings, Stacks(aws))}{_path(found.model)}"
    inputs, _ = tensors_of(found.backend, found.model)
    body = json_text(example_body(inputs), compact=True)
    if settings.rollout.gateway.scheme == "internet-facing":  # the function has no way out of its network
        through, asked = "the internet", lambda: ask(url, body, clients_token(aws, service))
    else:
        through, asked = (
            f"{name_of(service, 'probe')} in {region}",
            lambda: ask_from_within(aws, service, url, body),
        )
    return Route(service=service, model=found.model, through=through, url=url, body=body, ask=asked)


def described(route: Route, reply: ProbeReply, total_ms: float) -> TryDocument:
    """The document of `mark try --json`."""
    try:
        answer: object = json.loads(reply["body"])
    except ValueError:
        answer = reply["body"]
    return {
        "service": route.service,
        "model": route.model,
        "through": route.through,
        "url": route.url,
        "status": reply["status"],
        "served_by": reply["served_by"] or None,
        "latency_ms": reply["ms"],
        "total_ms": round(total_ms, 1),
        "answer": answer,
    }


def _address(settings: Settings, stacks: Stacks) -> str:
    """The address that clients call, within the service's network: a balancer's, or the nodes' name."""
    service = settings.service.name
    state = stacks.state(name_of(service, "gateways"))
    balancer = state.exports.get(name_of(service, "address")) if state else None
    return balancer or node_name(settings.rollout, service)


def _path(model: str) -> str:
    return f"/v2/models/{model}/infer"


def _show(document: TryDocument) -> None:
    where = {"instance": "an instance", "standby": "a standby", "lambda": "Lambda"}.get(
        document["served_by"] or "", "the gateway"
    )
    way = f"{document['total_ms']:,.0f} ms from here, through {document['through']}"
    show(f"{document['model']} answered in {document['latency_ms']:,.0f} ms, on {where} ({way})")
    answer = json_text(document["answer"], compact=True)
    show(answer if len(answer) <= SHOWN else f"{answer[:SHOWN]} ... ({len(answer):,} characters; --json has all)")


def _failure(document: TryDocument) -> str:
    said = (
        document["answer"] if isinstance(document["answer"], str) else json_text(document["answer"], compact=True)
    )
    if document["status"] == 0:
        return (
            f"nothing answered at {document['url']}: {said}. A service that was just deployed takes some minutes; "
            "then its log /mark/SERVICE/gateway says more"
        )
    advice = "; instances take some minutes to boot: try again" if document["status"] == 503 else ""
    return f"{document['url']} answered with status {document['status']}: {said[:SHOWN]}{advice}"
