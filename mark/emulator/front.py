"""The one endpoint: who a call is for, what faults it meets, and its answer."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from mark.emulator import strict
from mark.emulator.authorization.authorizer import Authorizer
from mark.emulator.control import Control
from mark.emulator.cost_explorer import CostExplorer
from mark.emulator.ec2.account_limits import ACCOUNT_SETTINGS, AccountLimits
from mark.emulator.ec2.api import Ec2Api
from mark.emulator.ec2.commitments import AccountCommitments
from mark.emulator.ec2.imds import Imds
from mark.emulator.errors import ApiError, error_body
from mark.emulator.events.scheduler import Scheduler
from mark.emulator.faults import Fault, Faults, error_of
from mark.emulator.fis import FaultInjection
from mark.emulator.functions.api import LambdaApi
from mark.emulator.moto_app import StrictMoto
from mark.emulator.moto_parts import operation_and_params, query_parameters, request_of, serialize
from mark.emulator.pricing import Pricing
from mark.emulator.ses import Ses
from mark.emulator.signature import AccessKey, SignedRequest, check
from mark.protocols.local_names import is_local_name

LOG = logging.getLogger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

SERVICE = re.compile(rb"Credential=[^/]+/\d+/[^/]+/([a-z0-9-]+)/aws4_request")
ROLE = re.compile(rb"\bapp/mark-([a-z-]+)")
"""Role of a caller, as clients of the service send it (`mark.aws.session`)."""
RESERVE = re.compile(r"PUT /2017-10-31/functions/([^/]+)/concurrency/?")
INVOKE = re.compile(r"/2015-03-31/functions/([^/]+)/invocations")
BOTO3_NAMES = {
    "monitoring": "cloudwatch",
    "servicequotas": "service-quotas",
    "ses": "sesv2",
    "tagging": "resourcegroupstaggingapi",
}
"""A signature's word for a service -> boto3's, where they differ."""
PARTS = frozenset(("acl", "encryption", "lifecycle", "policy", "tagging", "uploads", "versioning", "versions"))
"""Parts of a bucket or an object that a call of S3 may be about."""
MOST_BYTES = 16 * 1024 * 1024
SETS_UP = "setup"
"""The role that an account is set up by, as `mark.aws.session` says it."""


@dataclass(slots=True)
class Call:
    """One request, read to its end."""

    scope: Scope
    body: bytes
    service: str = ""
    action: str = ""
    role: str = ""
    form: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The decoded path."""
        return str(self.scope["path"])

    def headers(self) -> dict[str, str]:
        """By lower-case name."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.scope["headers"]}


@dataclass(slots=True)
class Answer:
    """One reply."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Handlers by service: ours, and moto for the rest."""

    ec2: Ec2Api
    lambdas: LambdaApi
    pricing: Pricing
    limits: AccountLimits
    commitments: AccountCommitments
    costs: CostExplorer
    fault_injection: FaultInjection
    ses: Ses
    scheduler: Scheduler
    moto: StrictMoto


@dataclass(slots=True)
class Gate:
    """Gate that is closed until the account is set up: only its setup is answered."""

    closed: bool = False

    def open(self) -> None:
        """Answer everybody from now on."""
        self.closed = False

    def check(self, role: str) -> None:
        """ApiError while it is closed for that role."""
        if self.closed and role != SETS_UP:
            raise ApiError("ServiceUnavailable", "The account is being set up; try again.", 503)


class Front:
    """An ASGI application: our own services first, everything else is moto's."""

    def __init__(
        self,
        services: Services,
        *,
        imds: Imds,
        control: Control,
        faults: Faults,
        calls: Counter[tuple[str, str]],
        gate: Gate,
        authorizer: Authorizer | None,
        key: AccessKey | None,
    ) -> None:
        self._services = services
        self._imds = imds
        self._control = control
        self._faults = faults
        self._calls = calls
        self._gate = gate
        self._authorizer = authorizer
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        body = await _read(receive)
        if body is None:
            await _reply(send, Answer(413, b""))
            return
        call = Call(scope, body)
        if _is_from_a_page(call.headers()):
            await _reply(send, Answer(403, b'{"error": "web pages may not call the emulated AWS"}'))
        elif call.path.startswith("/_imds/"):
            headers = call.headers()
            status, text = self._imds.answer(scope["method"], call.path.removeprefix("/_imds/"), headers)
            await _reply(send, Answer(status, text, "text/plain"))
        elif call.path.startswith("/_mark/") and not self._may_control(call):
            await _reply(
                send, Answer(403, b'{"error": "the controls ask for the account\'s secret key as bearer"}')
            )
        elif call.path.startswith("/_mark/"):
            status, document = self._control.answer(scope["method"], call.path.removeprefix("/_mark/"), body)
            await _reply(send, Answer(status, json.dumps(document).encode()))
        else:
            await self._aws(call, send)

    def _may_control(self, call: Call) -> bool:
        """True for whoever has the account's key."""
        told = call.headers().get("authorization", "")
        return self._key is None or hmac.compare_digest(told.encode(), f"Bearer {self._key.secret}".encode())

    async def _aws(self, call: Call, send: Send) -> None:
        _name(call)
        self._calls[call.role, f"{call.service}:{call.action}"] += 1
        try:
            if self._key is not None:
                check(self._key, _as_signed(call))
            self._gate.check(call.role)
            strict.check(call.service, call.action, call.path, call.body)
            self._authorize(call)
            if call.service == "lambda" and call.action != "Invoke":
                self._services.lambdas.check(call.action, call.body)
            if call.service == "scheduler":
                self._services.scheduler.check(call.scope["method"], call.path, call.body)
            await self._meet_faults(call)
            lost = self._faults.hit(("lost",), call.service, call.action, _text(call))
            answer = await self._ours(call)
            if answer is None:
                sink = _discard if lost else send
                if call.service == "scheduler":
                    sink = self._following(sink)
                await self._services.moto(call.scope, _replay(call.body), sink)
            if lost:
                raise error_of(lost, call.service)
        except ApiError as error:
            answer = _refusal(call, error)
        if answer is not None:
            await _reply(send, answer)

    def _authorize(self, call: Call) -> None:
        if self._authorizer is not None and call.role:
            service = BOTO3_NAMES.get(call.service, call.service)
            operation, params = operation_and_params(service, request_of(call.scope, call.body))
            self._authorizer.check(call.role, service, operation, params)

    def _following(self, send: Send) -> Send:
        """Follow what moto did with schedules before the caller hears that it is done."""

        async def follow(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._services.scheduler.look()
            await send(message)

        return follow

    async def _meet_faults(self, call: Call) -> None:
        slow = self._faults.hit(("slow",), call.service, call.action, _text(call))
        if slow is not None:
            await asyncio.sleep(slow.delay_s)
        fault: Fault | None = self._faults.hit(("throttle", "error"), call.service, call.action, _text(call))
        if fault is not None:
            raise error_of(fault, call.service)

    async def _ours(self, call: Call) -> Answer | None:
        """The answer, where it is not moto's to give."""
        if call.service == "ec2":
            xml = self._services.ec2.answer(call.action, call.form)
            return None if xml is None else Answer(200, xml.encode(), "text/xml;charset=UTF-8")
        if call.action == "Invoke":
            match = INVOKE.fullmatch(call.path)
            assert match
            status, headers, body = await self._services.lambdas.invoke(
                unquote(match[1]), call.headers(), call.scope["query_string"].decode(), call.body
            )
            return Answer(status, body, "application/json", headers)
        if call.action == "SimulatePrincipalPolicy" and self._authorizer is not None:
            found = self._authorizer.simulate(query_parameters("iam", call.action, _form_of(call.body)))
            return Answer(200, serialize("iam", call.action, found).encode(), "text/xml")
        document = self._fault_target(call)
        return None if document is None else Answer(200, json.dumps(document).encode())

    def _fault_target(self, call: Call) -> dict[str, Any] | None:
        """The document, where it is not moto's to tell."""
        services = self._services
        if call.service in ("freetier", "servicequotas"):
            return services.limits.answer(call.action, call.body)
        if call.service == "lambda" and call.action.rstrip("/") == ACCOUNT_SETTINGS:
            return services.limits.account_settings()
        if call.service == "lambda" and (asked := RESERVE.fullmatch(call.action)):
            services.limits.reserve(unquote(asked[1]), int(json.loads(call.body)["ReservedConcurrentExecutions"]))
        if call.service == "ses":
            return services.ses.answer(call.scope["method"], call.path, call.body)
        whole: Mapping[str, AccountCommitments | CostExplorer | FaultInjection | Pricing] = {
            "ce": services.costs,
            "fis": services.fault_injection,
            "pricing": services.pricing,
            "savingsplans": services.commitments,
        }
        ours = whole.get(call.service)
        return ours.answer(call.action, call.body) if ours else None


def _is_from_a_page(headers: Mapping[str, str]) -> bool:
    """True for a request of a web page: it names the page, or a host that was made to resolve to us."""
    return "origin" in headers or not is_local_name(headers.get("host", ""))


def _name(call: Call) -> None:
    """Service and action, from the signature's scope and wherever the protocol has the action."""
    target = b""
    for name, value in call.scope["headers"]:
        if name == b"authorization":
            found = SERVICE.search(value)
            call.service = found[1].decode() if found else ""
        elif name == b"x-amz-target":
            target = value
        elif name == b"user-agent" and (caller := ROLE.search(value)):
            call.role = caller[1].decode()
    if call.service == "ec2":
        call.form = _form_of(call.body)
        call.action = call.form.get("Action", "")
    elif call.service == "lambda" and INVOKE.fullmatch(call.path):
        call.action = "Invoke"
    elif target:
        call.action = target.decode().rsplit(".", 1)[-1]
    elif call.body.startswith(b"Action="):
        call.action = _form_of(call.body)["Action"]
    elif call.service == "s3":
        call.action = _of_bucket(call)
    else:
        call.action = f"{call.scope['method']} {call.path}"


def _form_of(body: bytes) -> dict[str, str]:
    """The fields of a body of the query protocol."""
    return dict(parse_qsl(body.decode(), keep_blank_values=True))


def _as_signed(call: Call) -> SignedRequest:
    scope = call.scope
    return SignedRequest(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
        body=call.body,
    )


def _of_bucket(call: Call) -> str:
    """S3's actions differ by method, by whether an object is meant, by what of it: `PUT /bucket?versioning`."""
    _, bucket, *key = call.path.split("/", 2)
    names = (text.partition("=")[0] for text in call.scope["query_string"].decode().split("&"))
    part = next((f"?{name}" for name in names if name in PARTS), "")
    return f"{call.scope['method']} /{bucket}{'/object' if key and key[0] else ''}{part}"


def _text(call: Call) -> str:
    """Text in which a fault's `match` is searched."""
    if call.action == "Invoke" or call.service == "s3":
        return call.path
    return " ".join(call.form.values()) if call.form else call.body.decode("utf-8", "replace")


def _refusal(call: Call, error: ApiError) -> Answer:
    query = bool(call.form) or call.body.startswith(b"Action=") or call.service == "route53"  # XML, too
    content_type, body = error_body(error, query=query, service=call.service)
    return Answer(error.status, body, content_type, ((b"x-amzn-errortype", error.code.encode()),))


async def _read(receive: Receive) -> bytes | None:
    """The body, or None where it is too large."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body"):
            return body


def _replay(body: bytes) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


async def _discard(_message: dict[str, Any]) -> None:
    """Nobody hears it."""


async def _reply(send: Send, answer: Answer) -> None:
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
