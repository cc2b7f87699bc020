"""Whether a role may make its calls: DryRun calls in the role, and IAM's simulation of its policies. Read only.

EC2 answers a DryRun with DryRunOperation where the call would be allowed and with UnauthorizedOperation where it
would not (EC2 API reference, common query parameters, read 2026-11-23); Lambda's Invoke has the type DryRun.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from mark.aws.ec2.inventory import described
from mark.aws.ec2.tags import MODEL, SERVICE
from mark.aws.errors import cause_of, code_of, translated
from mark.aws.permissions.policies import Statement
from mark.aws.session import Aws, Credentials
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.orders import RefusalCause

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CreateFleetRequestTypeDef

ALLOWED = "DryRunOperation"
SESSION = "mark-doctor"
SESSION_S = 900
"""Life of the credentials of a role that is taken: the shortest that STS gives."""
SAMPLE = "doctor"
"""Stand-in for the stars of a policy's resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCheck:
    """Answer of AWS about one action of a role."""

    action: str
    #: `wrong`: it is not refused, but what it names is not there, or not as it must be.
    answer: Literal["allowed", "refused", "wrong", "unknown"]
    #: What AWS said where it is not allowed.
    detail: str = ""
    #: An organisation's service control policy refuses it, whatever the role's own policies say.
    by_organisation: bool = False


def take_role(aws: Aws, arn: str, role: str) -> Aws:
    """Clients with a role's credentials, whose calls say that they are `role`'s. MarkError where it may not be."""
    with translated():
        keys = aws.identity.assume_role(RoleArn=arn, RoleSessionName=SESSION, DurationSeconds=SESSION_S)[
            "Credentials"
        ]
    credentials = Credentials(
        access_key_id=keys["AccessKeyId"],
        secret_access_key=keys["SecretAccessKey"],
        session_token=keys["SessionToken"],
    )
    return Aws(replace(aws.settings, credentials=credentials, role=role))


def check_call(action: str, call: Callable[[], object]) -> CallCheck:
    """Make a call that changes nothing, and judge by its answer."""
    try:
        with translated():
            call()
    except MarkError as error:
        code = code_of(error)
        if code == ALLOWED:
            return CallCheck(action=action, answer="allowed")
        if cause_of(code) is RefusalCause.AUTHORIZATION:
            return CallCheck(action=action, answer="refused", detail=str(error))
        wrong = isinstance(error, Misconfigured)
        return CallCheck(action=action, answer="wrong" if wrong else "unknown", detail=str(error))
    return CallCheck(action=action, answer="allowed")


def check_launch(aws: Aws, request: CreateFleetRequestTypeDef) -> Iterator[CallCheck]:
    """Check a CreateFleet request and the RunInstances that EC2 makes of it in the caller's name.

    EC2 does not say that a DryRun of the first judges the second, so both are asked.
    """
    dry: CreateFleetRequestTypeDef = {**request, "DryRun": True}
    yield check_call("ec2:CreateFleet", lambda: aws.ec2.create_fleet(**dry))
    config = request["LaunchTemplateConfigs"][0]
    override = config["Overrides"][0]
    tags = [one for one in request["TagSpecifications"] if one["ResourceType"] != "fleet"]
    where = {"SubnetId": override["SubnetId"]} if "SubnetId" in override else {}
    market = {"InstanceMarketOptions": {"MarketType": "spot"}} if "SpotOptions" in request else {}
    run: dict[str, Any] = {
        "LaunchTemplate": config["LaunchTemplateSpecification"],
        "InstanceType": override["InstanceType"],
        "MinCount": 1,
        "MaxCount": 1,
        "TagSpecifications": tags,
        **where,
        **market,
    }
    yield check_call("ec2:RunInstances", lambda: aws.ec2.run_instances(**run, DryRun=True))


def check_instances(aws: Aws, instances: Sequence[str]) -> Iterator[CallCheck]:
    """Check what is done to instances that are there, by their ids. That one runs, or stops, is no mistake."""
    ids, ec2 = list(instances), aws.ec2
    calls: tuple[tuple[str, Callable[[], object]], ...] = (
        ("ec2:StartInstances", lambda: ec2.start_instances(InstanceIds=ids, DryRun=True)),
        ("ec2:StopInstances", lambda: ec2.stop_instances(InstanceIds=ids, DryRun=True)),
        ("ec2:TerminateInstances", lambda: ec2.terminate_instances(InstanceIds=ids, DryRun=True)),
    )
    for action, call in calls:
        found = check_call(action, call)
        yield replace(found, answer="unknown") if found.answer == "wrong" else found


def one_instance(aws: Aws, service: str) -> tuple[str, ...]:
    """The id of an instance of the service's fleets; none where there is none."""
    with translated():
        found = described(aws.ec2, {f"tag:{SERVICE}": [service], "tag-key": [MODEL]})
        return tuple(sorted(instance["InstanceId"] for instance in found)[:1])


def simulate(
    aws: Aws, arn: str, statements: Sequence[Statement], *, region: str, without: Collection[str]
) -> Iterator[CallCheck]:
    """Have IAM simulate what these statements should allow a role, without actions that were tried. MarkError.

    The simulation counts the role's policies, its boundary and the organisation's policies without conditions
    (IAM API reference, SimulatePrincipalPolicy, read 2026-11-23).
    """
    for statement in statements:
        actions = [action for action in statement.actions if action not in without]
        if not actions:
            continue
        with translated():
            pages = aws.iam.get_paginator("simulate_principal_policy").paginate(
                PolicySourceArn=arn,
                ActionNames=actions,
                ResourceArns=[_sample(resource) for resource in statement.resources],
                ContextEntries=_context(statement, region),  # type: ignore[arg-type]
            )
            answers = [one for page in pages for one in page["EvaluationResults"]]
        for answer in answers:
            allowed = answer["EvalDecision"] == "allowed"
            resource = answer.get("EvalResourceName", "*")
            organisation = answer.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations", True)
            yield CallCheck(
                action=answer["EvalActionName"],
                answer="allowed" if allowed else "refused",
                detail="" if allowed else f"{answer['EvalDecision']} on {resource}",
                by_organisation=not allowed and not organisation,
            )


def _sample(resource: str) -> str:
    """A resource that a policy's pattern means: simulations take no patterns."""
    return resource if resource == "*" else resource.replace("*", SAMPLE).replace("?", SAMPLE[0])


def _context(statement: Statement, region: str) -> list[dict[str, Any]]:
    """Context of a request under which the statement's conditions hold."""
    asked: list[tuple[str, str, str | list[str]]] = [("", "aws:RequestedRegion", region)]
    asked += [(op, key, value) for op, pairs in statement.conditions.items() for key, value in pairs.items()]
    known = {key: (op, [value] if isinstance(value, str) else value[:1]) for op, key, value in asked}
    return [
        {
            "ContextKeyName": key,
            "ContextKeyValues": values,
            "ContextKeyType": "stringList" if op.startswith("ForAllValues") else "string",
        }
        for key, (op, values) in known.items()
    ]
