"""The emulated account in the test's own process and in virtual time, and what may go wrong with its calls.

EC2 is the emulated AWS's own (`mark.emulator.ec2`): its instances, quotas, spot market, idempotency tokens and
listings that lag. Secrets are moto's. Queue, bucket and the rest are as small as the controller's calls. boto3 is
real to its wire, retries included: each request is answered where it would be sent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from botocore.awsrequest import AWSResponse
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from moto.core.request import Request
from moto.secretsmanager.responses import SecretsManagerResponse

from mark.cloudmodel.capacity import Capacity
from mark.cloudmodel.world import TYPICAL, World
from mark.domain.clock import ClockAnchor
from mark.domain.commitments.owned import NO_COMMITMENTS
from mark.domain.offerings.offering import InstanceType
from mark.emulator.clock import ServiceClock
from mark.emulator.config import REGION, Draws
from mark.emulator.ec2.account_limits import AccountLimits
from mark.emulator.ec2.api import Ec2Api
from mark.emulator.ec2.commitments import AccountCommitments
from mark.emulator.ec2.machine import Machine, MachineState
from mark.emulator.ec2.machines import Machines
from mark.emulator.errors import ApiError, error_body
from mark.emulator.events.bus import event_of
from mark.emulator.faults import Fault, Faults
from mark.emulator.metering import Meter
from mark.emulator.moto_parts import backend_of
from mark.live.processes.emulator import life_draws
from mark.protocols.events import compose_message, message_of_event
from mark.simulator.rng import stream

How = Literal["refused", "lost", "unanswered", "unreachable", "killed-before", "killed-after"]
"""What befalls a call: refused; done, and the answer an error; done, and no answer; not done, and no answer; and
the process that called is gone before AWS heard of it, or after."""
EVENTS_URL = "https://sqs.us-east-1.amazonaws.com/123456789012/mark-shop-events"
BUCKET = "mark-shop-archive"
ENDED = (MachineState.SHUTTING_DOWN, MachineState.TERMINATED)
ROUTES = {
    "DescribeSavingsPlans": "POST /DescribeSavingsPlans",
    "DescribeSavingsPlanRates": "POST /DescribeSavingsPlanRates",
}


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What befalls calls: the next `count` of an action from `at` on, for `lasts_s` at most; "" any action."""

    at: float
    service: str
    action: str
    how: How
    code: str = "InternalError"
    status: int = 500
    count: int = 1
    lasts_s: float = 600.0


@dataclass(slots=True)
class Message:
    """One message of the queue; `shown_at` is when it is given next."""

    id: str
    body: str
    shown_at: float


@dataclass(slots=True)
class Account:
    """One account. `now`: the time. `ask`: how agents live (see `mark.emulator.ec2.machines.Power`)."""

    now: Callable[[], float]
    types: Mapping[str, InstanceType]
    power: Any
    seed: int
    world: World = TYPICAL
    stress: float = 0.0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: What happened to calls: (seconds, service, action, how, code).
    met: list[tuple[float, str, str, str, str]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    #: Late and repeated deliveries: (from, to, seconds late), and when notices are lost: (from, to).
    late: list[tuple[float, float, float]] = field(default_factory=list)
    silent: list[tuple[float, float]] = field(default_factory=list)
    lags: list[tuple[float, float, float]] = field(default_factory=list)
    clock: ServiceClock = field(init=False)
    machines: Machines = field(init=False)
    faults: Faults = field(init=False)
    meter: Meter = field(init=False)
    #: Instances that each launch asked for, by its token.
    asked: dict[str, int] = field(default_factory=dict)
    #: Everything that ever was: id -> the machine.
    ever: dict[str, Machine] = field(default_factory=dict)
    _armed: list[list[Any]] = field(default_factory=list)
    _sent: int = 0
    _ec2: Ec2Api = field(init=False)
    _limits: AccountLimits = field(init=False)
    _commitments: AccountCommitments = field(init=False)

    def __post_init__(self) -> None:
        self.clock = ServiceClock(ClockAnchor(), wall=self.now)
        self.faults = Faults(self.now)
        self.machines = Machines(
            clock=self.clock,
            capacity=Capacity(self.world, self.seed, start_at=self.now()),
            draws=Draws(
                victims=stream(self.seed, "victims"),
                lambdas=stream(self.seed, "lambda"),
                lives=lambda _: life_draws(self.seed),
            ),
            stress=self.stress,
            boot_factor=self.faults.boot_factor,
            power=self.power,
            environment=lambda _: {},
            watcher=self,
        )
        self.machines.launch_failure = self.faults.launch_failure
        self.meter = Meter(self.machines.mean_usd_per_hour)
        self.machines.metered = self.meter.note_state
        self._limits, self._commitments = AccountLimits({}, 1000), AccountCommitments(NO_COMMITMENTS, [])
        self._ec2 = Ec2Api(
            self.machines, self.types, self.faults, self.clock, self._limits, commitments=self._commitments
        )
        make_templates()

    # What people and chance do to it.

    def trouble(self, one: Trouble, *, since: float) -> None:
        """Have this befall calls, at its time since then."""
        self._armed.append([replace(one, at=since + one.at), one.count])

    def disturb(self, fault: Fault) -> None:
        """Set one of the emulated AWS's own faults, from now on."""
        self.faults.add(fault)

    def pass_time(self) -> None:
        """Have happen what is due by now."""
        self.clock.fire_due()

    def alive(self) -> list[Machine]:
        """Instances that are not gone, and not on their way there."""
        return [one for one in self.machines if one.state not in ENDED]

    # What is told of instances (the emulated AWS's Watcher).

    def state_changed(self, machine: Machine, at: float) -> None:
        self.ever.setdefault(machine.id, machine)
        detail = {"instance-id": machine.id, "state": machine.state.label}
        self._tell("EC2 Instance State-change Notification", machine, detail, at)

    def spot_warned(self, machine: Machine, at: float) -> None:
        if any(begins <= at < ends for begins, ends in self.silent):
            return
        detail = {"instance-id": machine.id, "instance-action": "terminate"}
        self._tell("EC2 Spot Instance Interruption Warning", machine, detail, at)

    def rebalance_advised(self, machine: Machine, at: float) -> None:
        self._tell("EC2 Instance Rebalance Recommendation", machine, {"instance-id": machine.id}, at)

    def _tell(self, kind: str, machine: Machine, detail: Mapping[str, str], at: float) -> None:
        """Through EventBridge and the interruption handler: at least once, sometimes late."""
        body = compose_message(
            message_of_event(event_of(kind, source="aws.ec2", resource=machine.id, detail=detail, at=at))
        )
        delays = [late_s for begins, ends, late_s in self.late if begins <= at < ends]
        for late_s in (max(delays, default=0.0), *delays):  # one that is late comes twice, too
            self._sent += 1
            self.messages[f"m{self._sent}"] = Message(f"m{self._sent}", body, at + late_s)

    # The wire.

    def __call__(self, event_name: str, request: Any, **_: Any) -> AWSResponse:
        """Answer a request in the place of AWS (botocore's `before-send`)."""
        _, service, action = event_name.split(".")
        self.calls[service, action] += 1
        trouble = self._meets(service, action)
        if trouble is None:
            return self._answer_or_refuse(service, action, request)
        self.met.append((self.now(), service, action, trouble.how, trouble.code))
        error = _refusal(request, service, ApiError(trouble.code, "test", trouble.status))
        match trouble.how:
            case "refused":
                return error
            case "unreachable":
                raise EndpointConnectionError(endpoint_url=request.url)
            case "killed-before":
                raise Killed
        self._answer_or_refuse(service, action, request)
        match trouble.how:
            case "lost":
                return error
            case "unanswered":
                raise ReadTimeoutError(endpoint_url=request.url)
            case _:
                raise Killed

    def _answer_or_refuse(self, service: str, action: str, request: Any) -> AWSResponse:
        try:
            return self._answer(service, action, request)
        except ApiError as error:
            return _refusal(request, service, error)

    def _meets(self, service: str, action: str) -> Trouble | None:
        now = self.now()
        for armed in self._armed:
            one, left = armed
            is_meant = one.service in ("", service) and one.action in ("", action)
            if is_meant and left > 0 and one.at <= now < one.at + one.lasts_s:
                armed[1] -= 1
                found: Trouble = one
                return found
        return None

    def _answer(self, service: str, action: str, request: Any) -> AWSResponse:
        body = request.body or b""
        text = body.decode() if isinstance(body, bytes) else str(body)
        if service == "ec2":
            form = dict(parse_qsl(text, keep_blank_values=True))
            self._note_launch(form)
            self._ec2._lag_s = max(
                (lag for begins, ends, lag in self.lags if begins <= self.now() < ends), default=0
            )
            xml = self._ec2.answer(action, form)
            assert xml is not None, f"{action} is moto's"
            return _response(request, 200, xml.encode(), "text/xml")
        if service == "s3":
            return self._objects(action, request)
        if service == "lambda":
            report = "UmVwb3J0"
            return _response(request, 200, b"{}", "application/json", {"x-amz-log-result": report})
        if service == "secrets-manager":
            given = {
                key: value.decode() if isinstance(value, bytes) else value
                for key, value in request.headers.items()
            }
            asked = Request.from_primitives("POST", request.url, given, text.encode())
            status, headers, told = SecretsManagerResponse.dispatch(asked, request.url, asked.headers)
            return _response(request, status, told.encode(), "application/json", headers)
        params = json.loads(text or "{}")
        found: dict[str, Any]
        if service == "sqs":
            found = {
                "ReceiveMessage": self._receive,
                "DeleteMessageBatch": self._delete,
                "ChangeMessageVisibilityBatch": self._show_again,
                "GetQueueUrl": self._queue_url,
                "GetQueueAttributes": self._queue_attributes,
            }[action](params)
        elif service == "cloudwatch":
            found = {"MetricAlarms": []}
        elif service == "ssm":
            raise ApiError("ParameterNotFound", "test")
        elif service == "service-quotas":
            found = self._limits.answer(action, body)
        else:
            assert service == "savingsplans", f"{service} {action}"
            found = self._commitments.answer(ROUTES[action], body)
        return _response(request, 200, json.dumps(found).encode(), "application/json")

    def _note_launch(self, form: Mapping[str, str]) -> None:
        """Keep how many a launch asked for when it was first sent."""
        count = form.get("TargetCapacitySpecification.TotalTargetCapacity", form.get("MaxCount"))
        keys = [key for key, value in form.items() if key.endswith(".Key") and value == "mark:token"]
        if count is not None and keys:
            self.asked.setdefault(form[keys[0].removesuffix("Key") + "Value"], int(count))

    def _objects(self, action: str, request: Any) -> AWSResponse:
        key = urlsplit(request.url).path
        if action == "PutObject":
            body = request.body
            self.objects[key] = body if isinstance(body, bytes) else body.read()
            return _response(request, 200, b"", "application/xml", {"ETag": '"1"'})
        assert action == "GetObject", action
        if key not in self.objects:
            raise ApiError("NoSuchKey", "test", 404)
        return _response(request, 200, self.objects[key], "application/octet-stream")

    # The queue.

    def _receive(self, params: Mapping[str, Any]) -> dict[str, Any]:
        now = self.now()
        given: list[dict[str, str]] = []
        for message in list(self.messages.values()):
            if message.shown_at <= now and len(given) < params["MaxNumberOfMessages"]:
                message.shown_at = now + params["VisibilityTimeout"]
                given.append({"MessageId": message.id, "ReceiptHandle": message.id, "Body": message.body})
        return {"Messages": given}

    def _delete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        for entry in params["Entries"]:
            self.messages.pop(entry["ReceiptHandle"], None)
        return {"Successful": [{"Id": entry["Id"]} for entry in params["Entries"]], "Failed": []}

    def _show_again(self, params: Mapping[str, Any]) -> dict[str, Any]:
        for entry in params["Entries"]:
            if entry["ReceiptHandle"] in self.messages:
                self.messages[entry["ReceiptHandle"]].shown_at = self.now() + entry["VisibilityTimeout"]
        return {"Successful": [{"Id": entry["Id"]} for entry in params["Entries"]], "Failed": []}

    def _queue_url(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"QueueUrl": f"https://sqs.us-east-1.amazonaws.com/123456789012/{params['QueueName']}"}

    def _queue_attributes(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"Attributes": {"ApproximateNumberOfMessages": "0"}}


def make_templates() -> None:
    """The service's launch templates, in moto's tables, where they are not there."""
    backend = backend_of("ec2")
    for role, shutdown in (("serving", "terminate"), ("standby", "stop")):
        name = f"mark-shop-{role}"
        if name in backend.launch_template_name_to_ids:
            continue
        data = {"ImageId": "ami-1", "InstanceInitiatedShutdownBehavior": shutdown}
        backend.create_launch_template(name, "", data, {})


def remove_templates() -> None:
    """As a destroy removes the stack of launches: from then on none succeeds."""
    backend = backend_of("ec2")
    for name in list(backend.launch_template_name_to_ids):
        backend.delete_launch_template(name, None)


def subnets() -> tuple[tuple[str, str], ...]:
    """The subnets of the account's default network in three zones."""
    found = backend_of("ec2").get_default_subnets()
    return tuple((f"{REGION}{zone}", found[f"{REGION}{zone}"].id) for zone in "abc")


class _Raw:
    """What an AWSResponse reads its body from."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> list[bytes]:
        return [self._body]

    def read(self, *_: Any) -> bytes:
        body, self._body = self._body, b""
        return body


def _response(
    request: Any, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None
) -> AWSResponse:
    made = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
    return AWSResponse(request.url, status, made, _Raw(body))  # type: ignore[arg-type]


def _refusal(request: Any, service: str, error: ApiError) -> AWSResponse:
    kind, body = error_body(error, query=service == "ec2", service=service)
    return _response(request, error.status, body, kind, {"x-amzn-errortype": error.code})
