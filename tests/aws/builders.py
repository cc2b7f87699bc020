"""AWS in the test's own process (moto), faults on the wire, and fakes of the ports beside the cloud."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

from botocore.awsrequest import AWSResponse
from moto.core import DEFAULT_ACCOUNT_ID as MOTO_ACCOUNT
from moto.core.models import botocore_stubber
from moto.ec2.models import ec2_backends

from mark.aws import provision
from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import FleetSetup
from mark.aws.inbox import EventInbox
from mark.aws.provision import ServiceResources, ServiceSetup, set_up
from mark.aws.resources import LambdaSpec, describe
from mark.aws.session import Aws, AwsSettings, Credentials
from mark.config.rollout import RolloutSettings
from mark.domain.billing.costs import Transition
from mark.domain.fleet.instances import Role
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import Member, MemberState
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import Market
from mark.ports import Clock, Ledger, Membership
from mark.protocols.events import InstanceMessage, compose_message
from tests.planner.builders import offering

IMAGE = "ami-12c6146b"  # one that moto knows
ON_DEMAND = offering("c5.large", usd_per_hour=0.085)
SPOT = replace(ON_DEMAND, market=Market.SPOT, usd_per_hour=0.03)
SLEEPER = offering("t3.large", usd_per_hour=0.0832)
OFFERINGS = {item.name: item for item in (ON_DEMAND, SPOT, SLEEPER)}
REPORT = {"sender": "mark@a.example", "to": ["team@b.example"]}
KEYS = Credentials(access_key_id="testing", secret_access_key="testing")


def aws(**differs: Any) -> Aws:
    return Aws(AwsSettings(**{"region": "us-east-1", "credentials": KEYS, "max_attempts": 2} | differs))


def service(
    name: str = "shop",
    *,
    rollout: Mapping[str, Any] | None = None,
    infer: LambdaSpec | None = None,
    trains: bool = False,
    **differs: Any,
) -> ServiceSetup:
    """A service with one model; `rollout`: the settings of its resources."""
    settings = RolloutSettings.model_validate(rollout or {})
    wanted = describe(name, settings, [infer or infer_function(name)], store="MARK_STORE_URL", trains=trains)
    plain = ServiceSetup(
        resources=wanted, agents_store="redis://x", reports_store="redis://x", image_id=IMAGE, code=zipped()
    )
    return replace(plain, **differs)


def infer_function(service: str = "shop") -> LambdaSpec:
    return LambdaSpec(
        role="infer",
        model="m",
        name=f"mark-{service}-infer-m",
        memory_mib=512,
        timeout_s=60,
        environment={"A": "1"},
        has_versions=True,
    )


def zipped(text: str = "pass") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("m.py", (1980, 1, 1, 0, 0, 0)), text)
    return buffer.getvalue()


@dataclass
class HandClock(Clock):
    """A clock that is moved by hand."""

    at: float = 1000.0

    def now(self) -> float:
        return self.at


@dataclass
class FakeAgents(Membership):
    """The Membership port: agents as the test says they are."""

    agents: dict[str, Member] = field(default_factory=dict)
    drained: list[str] = field(default_factory=list)
    listed: Mapping[str, ListedInstance] = field(default_factory=dict)

    def list_instances(self, instances: Mapping[str, ListedInstance]) -> None:
        self.listed = instances

    def members(self) -> Sequence[Member]:
        return [self.agents[name] for name in sorted(self.agents)]

    def drain(self, instances: Sequence[str]) -> None:
        self.drained.extend(instances)

    def undrain(self, instances: Sequence[str]) -> None:
        self.drained = [name for name in self.drained if name not in instances]

    def say(self, instance: str, state: MemberState = MemberState.READY, **differs: Any) -> None:
        self.agents[instance] = replace(member(instance, state), **differs)


@dataclass
class FakeLedger(Ledger):
    """The Ledger port: what was noted, in order; `fail_next` is raised once."""

    noted: list[Transition] = field(default_factory=list)
    fail_next: Exception | None = None

    def note(self, transition: Transition) -> None:
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        self.noted.append(transition)

    def transitions(self, model: str) -> Sequence[Transition]:
        return sorted((told for told in self.noted if told.model == model), key=lambda told: told.at)


def member(instance: str, state: MemberState = MemberState.READY) -> Member:
    return Member(
        instance=instance,
        model="m",
        offering=ON_DEMAND.name,
        role=Role.SERVING,
        host="127.77.0.1",
        port=8001,
        state=state,
        max_batch=1,
        batch_s=(0.1,),
        capacity_rps=10.0,
    )


def launch(count: int = 1, token: str = "t1-1", kind: str = ON_DEMAND.name, role: Role = Role.SERVING) -> Launch:
    return Launch(token=token, reason="test", offering=kind, count=count, role=role)


@dataclass
class Scene:
    """A service that is set up, one model's cloud, and what stands around it."""

    aws: Aws
    cloud: Ec2Cloud
    clock: HandClock
    agents: FakeAgents
    ledger: FakeLedger
    inbox: EventInbox
    resources: ServiceResources
    warmed: list[int]

    @property
    def events_url(self) -> str:
        return self.resources.events_url

    @property
    def bucket(self) -> str:
        return self.resources.bucket

    def send(self, word: InstanceMessage) -> None:
        """As the interruption handler does."""
        self.aws.sqs.send_message(QueueUrl=self.events_url, MessageBody=compose_message(word))
        self.inbox.receive(0)

    def states(self) -> dict[str, str]:
        """EC2's own states of all instances, those that are gone too."""
        reply = self.aws.ec2.describe_instances()
        return {
            instance["InstanceId"]: instance["State"]["Name"]
            for reservation in reply["Reservations"]
            for instance in reservation["Instances"]
        }

    def ids(self) -> list[str]:
        return [instance.id for instance in self.cloud.observe()]

    def close(self) -> None:
        self.cloud.close()
        self.inbox.close()
        self.aws.close()


def scene(
    rails: Guardrails | None = None, *, again: Scene | None = None, whole: bool = False, **differs: Any
) -> Scene:
    """A scene; `again`: another controller's, on the same AWS. Unless `whole`, nothing but what instances need."""
    there = again.aws if again else aws()
    made = again.resources if again else (set_up if whole else set_up_of_instances)(there, service())
    if again is None:
        honour_tokens(there)
    clock, agents = again.clock if again else HandClock(), again.agents if again else FakeAgents()
    ledger, warmed = again.ledger if again else FakeLedger(), list[int]()
    inbox = EventInbox(there.sqs, made.events_url, visibility_s=0)
    plain = FleetSetup(service="shop", model="m", run="r1", offerings=OFFERINGS, templates=made.templates)
    cloud = Ec2Cloud(
        replace(plain, **differs),
        aws=there,
        clock=clock,
        membership=agents,
        ledger=ledger,
        inbox=inbox,
        guard=Guard(rails or Guardrails(max_instances=100, max_usd_per_hour=100.0), OFFERINGS),
        warm=warmed.append,
    )
    return Scene(there, cloud, clock, agents, ledger, inbox, made, warmed)


def set_up_of_instances(there: Aws, setup: ServiceSetup) -> ServiceResources:
    """Of all that `set_up` makes, launch templates and queues: functions and the like take most of its calls.

    Templates are made once a process: moto, which forgets them with each test, gets them back.
    """
    nothing = dict.fromkeys(("_make_functions", "make_alarm", "make_bucket"), lambda *_, **__: None)
    if _templates:
        nothing["_make_template"] = lambda *_, **__: None
    with patch.multiple(
        provision, _make_rule=lambda *_: "arn:aws:events:us-east-1:123456789012:rule/r", **nothing
    ):
        made = set_up(there, setup)
    known = vars(ec2_backends[MOTO_ACCOUNT]["us-east-1"])
    if not _templates:
        _templates.update({name: dict(known[name]) for name in LAUNCH_TEMPLATES})
    for name, kept in _templates.items():
        known[name].update(kept)
    return made


LAUNCH_TEMPLATES = ("launch_templates", "launch_template_name_to_ids")
"""Where moto keeps them."""
_templates: dict[str, dict[str, Any]] = {}


class Wire:
    """What stands between a client and moto: rules in order, the first that answers wins.

    (All of botocore's before-send handlers are called, also when one has answered: so this is the only one.)
    """

    def __init__(self, client: Any) -> None:
        self.rules: list[Rule] = []
        client.meta.events.unregister("before-send", botocore_stubber)
        client.meta.events.register("before-send", self)

    def __call__(self, event_name: str, request: Any, **_: Any) -> Any:
        action = event_name.rsplit(".", maxsplit=1)[-1]
        for rule in self.rules:
            answer = rule(action, request)
            if answer is not None:
                return answer
        return botocore_stubber(event_name, request)


Rule = Callable[[str, Any], AWSResponse | None]
_wires: WeakKeyDictionary[Any, Wire] = WeakKeyDictionary()


def wire(client: Any) -> Wire:
    if client not in _wires:
        _wires[client] = Wire(client)
    return _wires[client]


def honour_tokens(there: Aws) -> None:
    """EC2 answers a CreateFleet whose ClientToken it has seen as it did before; moto alone does not."""
    known: dict[str, AWSResponse] = {}

    def answer(action: str, request: Any) -> AWSResponse | None:
        if action != "CreateFleet":
            return None
        token = parse_qs(request.body.decode() if isinstance(request.body, bytes) else request.body)[
            "ClientToken"
        ][0]
        if token not in known:
            known[token] = botocore_stubber(f"before-send.ec2.{action}", request)
        return known[token]

    wire(there.ec2).rules.append(answer)


def fail(
    there: Aws, action: str, code: str, *, times: int = 1, status: int = 503, about: str = ""
) -> Counter[str]:
    """EC2 answers the next calls of `action`, those that name `about`, with an error; counts how many it did."""
    failed = Counter[str]()

    def answer(asked: str, request: Any) -> AWSResponse | None:
        if asked != action or failed[action] >= times or about not in str(request.body):
            return None
        failed[action] += 1
        body = f"<Response><Errors><Error><Code>{code}</Code><Message>test</Message></Error></Errors></Response>"
        return AWSResponse(request.url, status, {}, _Raw(body.encode()))

    wire(there.ec2).rules.insert(0, answer)
    if action == "StartInstances":
        wire(there.waking).rules.insert(0, answer)
    return failed


def answer(client: Any, action: str, code: str, status: int) -> None:
    """The client's calls of `action` are answered with an error from now on, without a retry."""

    def refuse(model: Any, **_: Any) -> Any:
        if model.name != action:
            return None
        error = {"Code": code, "Message": "test"}
        return SimpleNamespace(status_code=status, headers={}), {
            "Error": error,
            "ResponseMetadata": {"HTTPStatusCode": status},
        }

    client.meta.events.register_first("before-call", refuse)


def fall_short(there: Aws, by: int, code: str) -> None:
    """EC2 Fleet has `by` instances fewer than asked and says why, with HTTP 200 as AWS does."""

    def ask_less(params: dict[str, Any], **_: Any) -> dict[str, Any]:
        capacity = params["TargetCapacitySpecification"]
        less = {key: value - by if isinstance(value, int) and value else value for key, value in capacity.items()}
        return {**params, "TargetCapacitySpecification": less}

    def say_why(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Errors"] = [{"ErrorCode": code, "ErrorMessage": "test", "Lifecycle": "spot"}]

    there.ec2.meta.events.register("provide-client-params.ec2.CreateFleet", ask_less)
    there.ec2.meta.events.register("after-call.ec2.CreateFleet", say_why)


class _Raw:
    """What an AWSResponse reads its body from."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> list[bytes]:
        return [self._body]


def asked_for(there: Aws, *actions: str) -> list[str]:
    """EC2's actions among these that are asked for from now on, in order."""
    calls: list[str] = []
    for action in actions:
        client = there.waking if action == "StartInstances" else there.ec2
        client.meta.events.register(f"before-call.ec2.{action}", lambda model, **_: calls.append(model.name))
    return calls
