"""Calls of the run to the account beside `mark`'s own commands: interruptions, cold starts, the journal."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import boto3

from mark.aws.functions.function_url import compose_ping, parse_report
from mark.aws.lease_table import LeaseTable
from mark.aws.names import LEASE, name_of
from mark.aws.session import Aws

ACTION = "aws:ec2:send-spot-instance-interruptions"
MOST_INTERRUPTED = 5
"""Spot instances of one action of FIS (its quotas)."""
SETTLE_S, TRIES = 10.0, 6
"""IAM takes some seconds to show a new role to FIS: so often and so long apart it is tried."""
COLD_TRIES = 3
HOLD_S = 1.0
"""A ping keeps its environment for so long, so that each of those sent at once meets another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStarts:
    """Delays of calls that started cold, seconds; and what all calls used."""

    later_s: tuple[float, ...]
    calls: int
    gib_s: float


def client(service: str, region: str) -> Any:
    """A client that `mark` itself has no use for, by the person's own credentials."""
    return boto3.client(service, region_name=region)  # type: ignore[call-overload]


@contextmanager
def fault_role(aws: Aws, service: str) -> Iterator[str]:
    """A role in which FIS may interrupt the service's spot instances, and nothing else; its ARN."""
    name = f"mark.{service}.interrupt"
    trust = {"Effect": "Allow", "Principal": {"Service": "fis.amazonaws.com"}, "Action": "sts:AssumeRole"}
    find = {"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"}
    allow = {
        "Effect": "Allow",
        "Action": "ec2:SendSpotInstanceInterruptions",
        "Resource": "arn:aws:ec2:*:*:instance/*",
        "Condition": {"StringEquals": {"aws:ResourceTag/mark:service": service}},
    }
    remove_fault_role(aws, service)
    made = aws.iam.create_role(
        RoleName=name,
        AssumeRolePolicyDocument=_policy(trust),
        Tags=[{"Key": "mark:service", "Value": service}],
    )
    try:
        aws.iam.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=_policy(find, allow))
        yield made["Role"]["Arn"]
    finally:
        remove_fault_role(aws, service)


def remove_fault_role(aws: Aws, service: str) -> None:
    """Remove it where it is there."""
    name = f"mark.{service}.interrupt"
    with suppress(aws.iam.exceptions.NoSuchEntityException):
        aws.iam.delete_role_policy(RoleName=name, PolicyName=name)
    with suppress(aws.iam.exceptions.NoSuchEntityException):
        aws.iam.delete_role(RoleName=name)


def interrupt(fis: Any, role: str, service: str, *, sleep: Callable[[float], None] = time.sleep) -> str:
    """Have FIS send the notice to the service's spot instances; empty, or why it did not."""
    made = fis.create_experiment_template(
        clientToken=secrets.token_hex(16),
        description=f"interrupts spot instances of {service}",
        roleArn=role,
        stopConditions=[{"source": "none"}],
        targets={
            "fleet": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceTags": {"mark:service": service},
                "filters": [{"path": "State.Name", "values": ["running"]}],
                "selectionMode": f"COUNT({MOST_INTERRUPTED})",
            }
        },
        actions={
            "interrupt": {
                "actionId": ACTION,
                "parameters": {"durationBeforeInterruption": "PT2M"},
                "targets": {"SpotInstances": "fleet"},
            }
        },
        tags={"mark:service": service},
    )["experimentTemplate"]["id"]
    try:
        for _ in range(TRIES):
            begun = fis.start_experiment(clientToken=secrets.token_hex(16), experimentTemplateId=made)
            state = begun["experiment"]["state"]
            while state["status"] not in ("completed", "stopped", "failed"):
                sleep(1.0)
                state = fis.get_experiment(id=begun["experiment"]["id"])["experiment"]["state"]
            if state["status"] == "completed":
                return ""
            if "role" not in state.get("reason", ""):
                break
            sleep(SETTLE_S)
        return str(state.get("reason", "FIS says no reason"))
    finally:
        fis.delete_experiment_template(id=made)


def cold_starts(aws: Aws, function: str, count: int) -> ColdStarts:
    """Call a function so often at once that each call starts cold, and again while its environments are warm.

    Before each try a variable of the function is changed: Lambda uses no environment again that had others. A
    controller that warms it at that instant leaves fewer cold calls, and then it is tried again.
    """
    invoking = aws.invoking(connections=count, timeout_s=60.0)

    def call(_: int) -> tuple[float, bool, float]:
        began = time.monotonic()
        answer = invoking.invoke(FunctionName=function, LogType="Tail", Payload=compose_ping("", HOLD_S))
        answer["Payload"].read()
        took_s = time.monotonic() - began
        report = parse_report(answer.get("LogResult", ""))
        return took_s, bool(report and report.cold), report.gib_s if report else 0.0

    cold_s, warm_s, gib_s, calls = list[float](), list[float](), 0.0, 0
    for _ in range(COLD_TRIES):
        _forget_environments(aws, function)
        with ThreadPoolExecutor(count) as pool:
            found = [one for _ in range(2) for one in pool.map(call, range(count))]
        cold_s += [took_s for took_s, is_cold, _ in found if is_cold]
        warm_s += [took_s for took_s, is_cold, _ in found if not is_cold]
        calls, gib_s = calls + len(found), gib_s + sum(used for *_, used in found)
        if warm_s and len(cold_s) >= count:
            break
    later = [took_s - median(warm_s) for took_s in cold_s] if warm_s else []
    return ColdStarts(later_s=tuple(later), calls=calls, gib_s=gib_s)


def _forget_environments(aws: Aws, function: str) -> None:
    known = (
        aws.lambda_.get_function_configuration(FunctionName=function).get("Environment", {}).get("Variables", {})
    )
    changed = {**known, "MARK_COLD_STARTS": secrets.token_hex(4)}
    aws.lambda_.update_function_configuration(FunctionName=function, Environment={"Variables": changed})
    aws.lambda_.get_waiter("function_updated_v2").wait(FunctionName=function)


def journal_lines(aws: Aws, service: str, model: str) -> list[bytes]:
    """The journal's first segment, from the table of the lease: there it is before an order is sent."""
    table = LeaseTable(aws.tables, name_of(service, LEASE))
    lines = list(table.lines(model, segment=0, place=0))
    return [one.line for one in lines if one.segment == lines[0].segment]


def _policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
