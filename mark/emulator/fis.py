"""Fault Injection Service: experiments that interrupt spot instances, checked as AWS checks them.

Emulated is the action `aws:ec2:send-spot-instance-interruptions` alone. A template is checked when it is made, its
role and targets when it is started: a role that may not do it, or no target, and the experiment has failed.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mark.aws.permissions.evaluation import Access, evaluate
from mark.domain.errors import Misconfigured
from mark.emulator.clock import ServiceClock
from mark.emulator.config import ACCOUNT, REGION
from mark.emulator.ec2.machine import Machine, MachineState
from mark.emulator.ec2.machines import Machines
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.moto_parts import role_of

ACTION, TARGET, KIND = "aws:ec2:send-spot-instance-interruptions", "SpotInstances", "aws:ec2:spot-instance"
NOTICE_S = 120.0
LEAST_S, MOST_S = 120.0, 900.0
"""Of `durationBeforeInterruption` (FIS actions reference: from 2 to 15 minutes)."""
MOST_TARGETS = 5
"""Spot instances of one action (FIS quotas)."""
NEEDED, FINDS = "ec2:SendSpotInstanceInterruptions", "ec2:DescribeInstances"
"""Rights that a role must give: to interrupt a target, and to find targets by their tags."""
_DURATION = re.compile(r"PT(?:(\d+)M)?(?:(\d+)S)?")
_SELECTION = re.compile(r"ALL|COUNT\(([1-9]\d*)\)|PERCENT\(([1-9]\d?|100)\)")
_TEMPLATE, _EXPERIMENT = (
    re.compile(rf"(\w+) /{kind}(?:/([^/]+))?") for kind in ("experimentTemplates", "experiments")
)
REQUIRED = ("clientToken", "description", "stopConditions", "actions", "roleArn")


@dataclass(slots=True)
class _Experiment:
    id: str
    template: Mapping[str, Any]
    began_at: float
    ends_at: float
    failure: str = ""


class FaultInjection:
    """Templates and experiments of the account. All calls are made on the event loop's thread."""

    def __init__(self, clock: ServiceClock, machines: Machines) -> None:
        self._clock, self._machines = clock, machines
        self._templates: dict[str, dict[str, Any]] = {}
        self._experiments: dict[str, _Experiment] = {}
        #: Client token -> what it was sent with first, and what that made.
        self._tokens: dict[str, tuple[bytes, str]] = {}

    def answer(self, action: str, body: bytes) -> dict[str, Any]:
        """The reply to one call, which is its method and path."""
        if found := _TEMPLATE.fullmatch(action):
            if found[1] == "POST" and not found[2]:
                return {"experimentTemplate": self._templates[self._once(body, self._create)]}
            if found[1] == "DELETE" and found[2]:
                return {"experimentTemplate": self._templates.pop(self._known(found[2], self._templates))}
        elif found := _EXPERIMENT.fullmatch(action):
            if found[1] == "POST" and not found[2]:
                return self._shown(self._once(body, self._start))
            if found[1] == "GET" and found[2]:
                return self._shown(self._known(found[2], self._experiments))
        raise not_emulated(f"fis: {action}")

    def _once(self, body: bytes, make: Callable[[dict[str, Any]], str]) -> str:
        request = json.loads(body)
        token = request.get("clientToken")
        if not token:
            raise _invalid("clientToken is required")
        before = self._tokens.get(token)
        if before is not None and before[0] != body:
            raise ApiError("ConflictException", f"The client token {token} was used with another request.", 409)
        if before is None:
            self._tokens[token] = before = body, make(request)
        return before[1]

    def _create(self, request: dict[str, Any]) -> str:
        lacking = [name for name in REQUIRED if not request.get(name)]
        if lacking:
            raise _invalid(f"{', '.join(lacking)} must not be empty")
        if any(one.get("source") != "none" for one in request["stopConditions"]):
            raise not_emulated("stop conditions of FIS but `none`")
        extra = set(request) - {*REQUIRED, "targets", "tags"}
        if extra:
            raise not_emulated(f"{', '.join(sorted(extra))} of FIS templates")
        if not str(request["roleArn"]).startswith(f"arn:aws:iam::{ACCOUNT}:role/"):
            raise _invalid(f"{request['roleArn']} is not a role of this account")
        targets = request.get("targets", {})
        for name, target in targets.items():
            _check_target(name, target)
        for name, one in request["actions"].items():
            _check_action(name, one, targets)
        unused = set(targets) - {name for one in request["actions"].values() for name in one["targets"].values()}
        if unused:
            raise _invalid(f"Targets {', '.join(sorted(unused))} are used by no action")
        made = f"EXT{secrets.token_hex(7)}"
        shown = {key: value for key, value in request.items() if key != "clientToken"}
        self._templates[made] = {"id": made, **shown, "creationTime": self._clock.now()}
        return made

    def _start(self, request: dict[str, Any]) -> str:
        template = self._templates[self._known(request.get("experimentTemplateId", ""), self._templates)]
        now, made = self._clock.now(), f"EXP{secrets.token_hex(7)}"
        waits_s = max(
            _seconds(one["parameters"]["durationBeforeInterruption"]) for one in template["actions"].values()
        )
        experiment = _Experiment(made, template, now, now + waits_s)
        self._experiments[made] = experiment
        experiment.failure = self._run(template)
        return made

    def _run(self, template: Mapping[str, Any]) -> str:
        """Interrupt all targets, or none; why not."""
        chosen: list[tuple[list[Machine], float]] = []
        for one in template["actions"].values():
            name = one["targets"][TARGET]
            machines = self._resolved(template["targets"][name])
            if not machines:
                return f"Target resolution returned empty set for target {name}"
            if len(machines) > MOST_TARGETS:
                return f"Target resolution for {name} exceeds the quota of {MOST_TARGETS} spot instances"
            if reason := _refusal(template["roleArn"], machines):
                return reason
            chosen.append((machines, _seconds(one["parameters"]["durationBeforeInterruption"]) - NOTICE_S))
        for machines, advised_s in chosen:
            self._machines.interrupt(machines, advised_s)
        return ""

    def _resolved(self, target: Mapping[str, Any]) -> list[Machine]:
        """Running spot instances that a target means."""
        arns, tags = target.get("resourceArns", []), target.get("resourceTags", {})
        found = [
            one
            for one in self._machines
            if one.is_spot
            and one.state is MachineState.RUNNING
            and one.life.can_be_warned
            and (_arn(one) in arns if arns else all(one.tags.get(key) == value for key, value in tags.items()))
        ]
        selection = _SELECTION.fullmatch(target["selectionMode"])
        assert selection is not None, "it was checked"
        if selection[2]:
            return self._machines.victims(int(selection[2]) / 100, found)
        if selection[1] and found:
            return self._machines.victims(min(1.0, int(selection[1]) / len(found)), found)
        return found

    def _shown(self, name: str) -> dict[str, Any]:
        one, now = self._experiments[name], self._clock.now()
        done = "failed" if one.failure else "completed" if now >= one.ends_at else "running"
        state = {"status": done, **({"reason": one.failure} if one.failure else {})}
        kept = {key: one.template[key] for key in ("roleArn", "targets", "stopConditions")}
        actions = {key: {**value, "state": state} for key, value in one.template["actions"].items()}
        times = {"creationTime": one.began_at, "startTime": one.began_at}
        ended = {"endTime": one.began_at if one.failure else one.ends_at} if done != "running" else {}
        told = {"id": one.id, "experimentTemplateId": one.template["id"], "state": state, "actions": actions}
        return {"experiment": {**told, **kept, **times, **ended}}

    @staticmethod
    def _known(name: str, among: Mapping[str, object]) -> str:
        if name not in among:
            raise ApiError("ResourceNotFoundException", f"{name} does not exist", 404)
        return name


def _check_target(name: str, target: Mapping[str, Any]) -> None:
    if target.get("resourceType") != KIND:
        raise not_emulated(f"targets of FIS of the type {target.get('resourceType')}")
    if not _SELECTION.fullmatch(str(target.get("selectionMode"))):
        raise _invalid(f"Target {name}: selectionMode is ALL, COUNT(n) or PERCENT(n)")
    if bool(target.get("resourceArns")) == bool(target.get("resourceTags")):
        raise _invalid(f"Target {name}: name either resourceArns or resourceTags")
    if len(target.get("resourceArns", ())) > MOST_TARGETS:
        raise _invalid(f"Target {name}: at most {MOST_TARGETS} resourceArns")
    if any(one != {"path": "State.Name", "values": ["running"]} for one in target.get("filters", ())):
        raise not_emulated("filters of FIS but State.Name: running")
    if target.get("parameters"):
        raise not_emulated("parameters of FIS targets")


def _check_action(name: str, action: Mapping[str, Any], targets: Mapping[str, Any]) -> None:
    if action.get("actionId") != ACTION:
        raise not_emulated(f"FIS's action {action.get('actionId')}")
    if action.get("startAfter"):
        raise not_emulated("startAfter of FIS actions")
    if set(action.get("parameters", {})) != {"durationBeforeInterruption"}:
        raise _invalid(f"Action {name}: {ACTION} takes the parameter durationBeforeInterruption and no other")
    if not LEAST_S <= _seconds(action["parameters"]["durationBeforeInterruption"]) <= MOST_S:
        raise _invalid(f"Action {name}: durationBeforeInterruption is from PT2M to PT15M")
    if set(action.get("targets", {})) != {TARGET} or action["targets"][TARGET] not in targets:
        raise _invalid(f"Action {name}: {ACTION} takes the target {TARGET}, which names one of the template's")


def _refusal(role_arn: str, machines: Sequence[Machine]) -> str:
    """Why the role cannot interrupt these; empty where it can."""
    found = role_of(role_arn)
    if found is None:
        return f"The experiment role {role_arn} does not exist"
    trust, policies = found
    principals = [one.get("Principal", {}).get("Service") for one in trust.get("Statement", ())]
    if not any("fis.amazonaws.com" in (one if isinstance(one, list) else [one]) for one in principals):
        return f"Unable to assume role {role_arn}: fis.amazonaws.com is not trusted"
    try:
        if not evaluate(Access(action=FINDS, resource="*", context={}), policies).allowed:
            return f"{role_arn} is not authorized to perform: {FINDS}"
        refused = [
            one
            for one in machines
            if not evaluate(Access(action=NEEDED, resource=_arn(one), context=_tags(one)), policies).allowed
        ]
    except Misconfigured as error:
        raise not_emulated(f"a policy of {role_arn}: {error}") from error
    return f"{role_arn} is not authorized to perform: {NEEDED} on {_arn(refused[0])}" if refused else ""


def _tags(machine: Machine) -> dict[str, tuple[str, ...]]:
    return {f"aws:ResourceTag/{key}": (value,) for key, value in machine.tags.items()}


def _arn(machine: Machine) -> str:
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{machine.id}"


def _seconds(text: str) -> float:
    """An ISO 8601 duration; 0 for what is none."""
    found = _DURATION.fullmatch(str(text))
    return 60.0 * int(found[1] or 0) + int(found[2] or 0) if found else 0.0


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
