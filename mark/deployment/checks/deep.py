"""`mark doctor --deep`: whether the role of a deployed service's controllers may do what they do.

Every call is tried in that role where EC2 and Lambda have a DryRun, or where it only reads; the rest is simulated
by IAM. Who may not take the role has all of it simulated. Nothing in the account is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mark.aws.account.preflight import Caller
from mark.aws.account.quotas import read_quotas
from mark.aws.account.role_checks import (
    CallCheck,
    check_call,
    check_instances,
    check_launch,
    one_instance,
    simulate,
    take_role,
)
from mark.aws.ec2.launch import FleetSetup, fleet_request
from mark.aws.lease_table import LEASE as LEASE_ITEM
from mark.aws.names import DEAD_LETTERS, LEASE, TRAIN, name_of
from mark.aws.outside_pause import read_pause
from mark.aws.permissions.calls import PROCESSES
from mark.aws.permissions.policies import Names, Statement, statements
from mark.aws.resources import called_as, launch_templates
from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import Stacks
from mark.config.settings import Settings
from mark.config.training import trains_in_function
from mark.deployment.bundles import overflowing
from mark.deployment.checks.findings import Finding
from mark.deployment.model_versions import first_bundles, in_versions
from mark.domain.errors import MarkError
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import Offering
from mark.live.aws_resources import function_of
from mark.live.models import LiveModel

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CreateFleetRequestTypeDef

DRY_RUN = "dry-run"
"""The order's token and the life that the tags of a DryRun name."""
LIVE_ALIAS = "live"
"""The alias of functions whose environments are provisioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFacts:
    """Answers of AWS about a role. `not_taken`: why its calls could not be tried; empty where they were.

    `not_simulated`: why what was not tried is not known either; empty where it is.
    """

    service: str
    #: Name of the role.
    role: str
    checks: tuple[CallCheck, ...]
    not_taken: str = ""
    not_simulated: str = ""


def check_deep(settings: Settings, models: Sequence[LiveModel], aws: Aws, who: Caller) -> Iterator[Finding]:
    """Ask AWS about the controllers' role, and say what it found. MarkError where stacks cannot be read."""
    service = settings.service.name
    part = "node" if settings.rollout.shape == "lean" else "controller"
    exports = _exports(Stacks(aws), service, "archive", "network", "state", "functions")
    if not exports:
        yield Finding(
            check="deep",
            state="skipped",
            message=f"{service} is not deployed here: its controllers have no role yet",
        )
        return
    names = _names(settings, models, who, exports)
    yield from role_findings(_ask(settings, models, aws, names, part, exports))


def role_findings(facts: RoleFacts) -> Iterator[Finding]:
    """Findings about a role: one for each action that fails, and one about all others. Pure."""
    wrong = (one for one in reversed(facts.checks) if one.answer in ("refused", "wrong"))
    failing = {(one.action, one.detail): one for one in wrong}
    for (action, _), one in sorted(failing.items()):
        renew = f"`mark deploy` with the same settings renews what stands for {facts.service}"
        policies = f"`aws iam get-role-policy --role-name {facts.role} --policy-name calls` shows what it may do"
        remedy = (
            f"ask whoever runs your AWS organisation: a service control policy refuses {action}"
            if one.by_organisation
            else renew
            if one.answer == "wrong"
            else f"{renew}; {policies}"
        )
        yield Finding(check=action, state="error", message=f"{facts.role}: {one.detail}", remedy=remedy)
    if facts.not_simulated:
        message = f"{facts.role}: what cannot be tried was not simulated: {facts.not_simulated}"
        remedy = "ask with credentials that may `iam:SimulatePrincipalPolicy` on this role"
        yield Finding(check="deep", state="unknown", message=message, remedy=remedy)
    elif not failing:
        actions = len({one.action for one in facts.checks if one.answer == "allowed"})
        how = (
            f"simulated by IAM, not tried: you may not take the role ({facts.not_taken})"
            if facts.not_taken
            else "tried by DryRun and reads, or simulated by IAM"
        )
        yield Finding(check="deep", state="ok", message=f"{facts.role} may do all {actions} actions, {how}")


def _ask(
    settings: Settings,
    models: Sequence[LiveModel],
    aws: Aws,
    names: Names,
    part: str,
    exports: Mapping[str, str],
) -> RoleFacts:
    """Try what can be tried in the role, simulate the rest."""
    checks: list[CallCheck] = []
    not_taken = not_simulated = ""
    try:
        with closing(take_role(aws, names.role(part), "controller")) as there:
            checks += _tried(settings, models, there, names, exports)
        if part == "node":
            with closing(take_role(aws, names.role(part), part)) as there:
                checks += _tried_by_nodes(there, names)
    except MarkError as error:
        not_taken = str(error)
    settled = {one.action for one in checks if one.answer != "unknown"}
    try:
        granted = _granted(part, names)
        checks += simulate(aws, names.role(part), granted, region=names.region, without=settled)
    except MarkError as error:
        not_simulated = str(error)
    return RoleFacts(
        service=names.service,
        role=name_of(names.service, part),
        checks=tuple(checks),
        not_taken=not_taken,
        not_simulated=not_simulated,
    )


def _tried(
    settings: Settings, models: Sequence[LiveModel], there: Aws, names: Names, exports: Mapping[str, str]
) -> Iterator[CallCheck]:
    """The controllers' calls that change nothing, in their role."""
    service = names.service
    for request in launch_requests(settings, models, exports):
        yield from check_launch(there, request)
    ec2, sqs = there.ec2, there.sqs
    seen = check_call("ec2:DescribeInstances", lambda: ec2.describe_instances(DryRun=True))
    yield seen
    if seen.answer == "allowed" and (instances := one_instance(there, service)):
        yield from check_instances(there, instances)
    reads: dict[str, Callable[[], object]] = {
        "cloudwatch:DescribeAlarms": lambda: there.alarms.describe_alarms(AlarmNamePrefix=name_of(service, "")),
        "ec2:DescribeSpotPriceHistory": lambda: ec2.describe_spot_price_history(DryRun=True),
        "servicequotas:ListServiceQuotas": lambda: read_quotas(there),
        "sqs:GetQueueUrl": lambda: sqs.get_queue_url(QueueName=name_of(service, DEAD_LETTERS)),
        "ssm:GetParameter": lambda: read_pause(there, service),
    }
    for action, read in reads.items():
        yield check_call(action, read)
    for name in (*names.infer, *([names.train] if names.train else ())):
        function, _, alias = name.partition(":")
        asked = {"FunctionName": function, "InvocationType": "DryRun"} | ({"Qualifier": alias} if alias else {})
        yield check_call("lambda:InvokeFunction", lambda asked=asked: there.lambda_.invoke(**asked))  # type: ignore[misc]


def _tried_by_nodes(there: Aws, names: Names) -> Iterator[CallCheck]:
    """Reads of the lease's table, in the lean shape."""
    table, tables = name_of(names.service, LEASE), there.tables
    found = {":part": {"S": "journal/doctor"}}
    yield check_call("dynamodb:GetItem", lambda: tables.get_item(TableName=table, Key=LEASE_ITEM))
    yield check_call(
        "dynamodb:Query",
        lambda: tables.query(
            TableName=table, KeyConditionExpression="part = :part", ExpressionAttributeValues=found, Limit=1
        ),
    )


def launch_requests(
    settings: Settings, models: Sequence[LiveModel], exports: Mapping[str, str]
) -> Iterator[CreateFleetRequestTypeDef]:
    """A CreateFleet request of each kind of machine and market that models may rent, as controllers make it."""
    service, rollout = settings.service.name, settings.rollout
    published = sorted(name for name in exports if name.startswith(name_of(service, "subnet-")))
    subnets = rollout.network.subnets or tuple(exports[name] for name in published)
    templates = {key: spec.name for key, spec in launch_templates(service, rollout).items()}
    seen: set[tuple[str, str]] = set()
    for model in models:
        for item in model.served.offerings:
            kind = (item.instance_type.machine, item.market.value)
            if kind in seen:
                continue
            seen.add(kind)
            offering: Offering = replace(item, zone="any")  # any subnet of the service's will do
            setup = FleetSetup(
                service=service,
                model=model.name,
                run=DRY_RUN,
                owner=rollout.owner,
                tags=rollout.tags,
                offerings={offering.name: offering},
                templates=templates,
                subnets=tuple(("", subnet) for subnet in subnets),
            )
            order = Launch(token=DRY_RUN, reason=DRY_RUN, offering=offering.name, count=1, role=Role.SERVING)
            yield fleet_request(setup, order)


def _granted(part: str, names: Names) -> list[Statement]:
    """Statements that the role should allow, each once."""
    found: list[Statement] = []
    for role in PROCESSES[part]:
        found += [one for one in statements(role, names) if one not in found]
    return found


def _names(settings: Settings, models: Sequence[LiveModel], who: Caller, exports: Mapping[str, str]) -> Names:
    """The service as its permissions name it, by what its stacks say."""
    service, rollout = settings.service.name, settings.rollout
    told = in_versions(settings, models, first_bundles(settings, models))
    called = [name for model in overflowing(told) for name in called_as(function_of(model.served))]
    aliased = [f"{name}:{LIVE_ALIAS}" for name in called] if rollout.functions.provisioned else []
    return Names(
        service=service,
        region=settings.service.aws.region,
        account=who.account,
        partition=who.arn.split(":")[1],
        bucket=exports.get(name_of(service, "bucket"), ""),
        zone=rollout.node.zone or exports.get(name_of(service, "zone"), ""),
        host=rollout.node.name or "",
        infer=(*called, *aliased),
        train=name_of(service, TRAIN) if trains_in_function(settings) else "",
    )


def _exports(stacks: Stacks, service: str, *parts: str) -> dict[str, str]:
    """Outputs of these stacks of the service, by name; none where none of them stands."""
    states = (stacks.state(name_of(service, part)) for part in parts)
    return {name: value for state in states if state is not None for name, value in state.exports.items()}
