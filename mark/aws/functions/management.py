"""A service's functions, their role, and what calls them: made where missing, brought up to date where not."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.aws.ec2.tags import SERVICE
from mark.aws.errors import absent_is_done, translated, unless_absent
from mark.aws.names import RAW, name_of
from mark.aws.permissions.policies import Names, PolicyDocument, policy, trust_policy
from mark.aws.resources import RUNTIME, LambdaSpec, ReaderSpec, tag_list
from mark.aws.session import Aws
from mark.domain.errors import AlreadyDone

ROLES_MADE = ("functions", "schedule")
"""The functions', and that of the schedules, which call some."""
POLICY = "handlers"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""Time of every file in a zip: the same files give the same zip."""


def pack(*packages: Path) -> bytes:
    """A zip of these packages' Python files. Libraries are not in it: a rollout adds them as a layer or image."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in packages:
            for path in sorted(package.rglob("*.py")):
                name = str(path.relative_to(package.parent))
                archive.writestr(zipfile.ZipInfo(name, LONG_AGO), path.read_bytes())
    return buffer.getvalue()


def make_role(aws: Aws, names: Names, roles: Sequence[str], tags: Mapping[str, str]) -> str:
    """The role that all functions of the service run as, which may do what each of `roles` may; its ARN."""
    name = name_of(names.service, "functions")
    return role_of(aws, name, principal="lambda", may=policy(names, *roles), tags=tags)


def role_of(aws: Aws, name: str, *, principal: str, may: PolicyDocument, tags: Mapping[str, str]) -> str:
    """A role that `principal` of AWS takes, with what it may do; its ARN."""
    arn = unless_absent(lambda: aws.iam.get_role(RoleName=name)["Role"]["Arn"])
    if arn is None:
        with translated():
            made = aws.iam.create_role(
                RoleName=name,
                AssumeRolePolicyDocument=json.dumps(trust_policy(principal)),
                Tags=tag_list(tags),  # type: ignore[arg-type]
            )
        arn = made["Role"]["Arn"]
    with translated():
        aws.iam.put_role_policy(RoleName=name, PolicyName=POLICY, PolicyDocument=json.dumps(may))
    return arn


def remove_roles(aws: Aws, service: str) -> None:
    """Remove the service's roles, with what they may do."""
    for part in ROLES_MADE:
        name = name_of(service, part)
        with absent_is_done():
            aws.iam.delete_role_policy(RoleName=name, PolicyName=POLICY)
        with absent_is_done():
            aws.iam.delete_role(RoleName=name)


def make_function(
    aws: Aws,
    function: LambdaSpec,
    variables: Mapping[str, str],
    *,
    code: bytes,
    role_arn: str,
    tags: Mapping[str, str],
) -> str:
    """The function as it is described, with this environment; its ARN.

    AWS does not yet accept a role that was made seconds ago, and says Misconfigured: ask again.
    """
    wanted: dict[str, Any] = {
        "Role": role_arn,
        "Handler": function.handler,
        "Runtime": RUNTIME,
        "MemorySize": function.memory_mib,
        "Timeout": function.timeout_s,
        "Environment": {"Variables": dict(variables)},
    }
    have = unless_absent(lambda: aws.lambda_.get_function_configuration(FunctionName=function.name))
    if have is None:
        with translated():
            made = aws.lambda_.create_function(
                FunctionName=function.name, Code={"ZipFile": code}, Tags=tags, **wanted
            )
        return made["FunctionArn"]
    if have["CodeSha256"] != base64.b64encode(hashlib.sha256(code).digest()).decode():
        with translated():
            aws.lambda_.update_function_code(FunctionName=function.name, ZipFile=code)
            aws.lambda_.get_waiter("function_updated_v2").wait(FunctionName=function.name)
    there = {**have, "Environment": {"Variables": have.get("Environment", {}).get("Variables", {})}}
    if any(there.get(key) != value for key, value in wanted.items()):
        with translated():
            aws.lambda_.update_function_configuration(FunctionName=function.name, **wanted)
    return have["FunctionArn"]


def feed(aws: Aws, reader: ReaderSpec, queue_arn: str) -> None:
    """Have the function called with what comes into the queue."""
    with translated():
        there = aws.lambda_.list_event_source_mappings(FunctionName=reader.function, EventSourceArn=queue_arn)
        if there["EventSourceMappings"]:
            return
    try:
        with translated():
            aws.lambda_.create_event_source_mapping(
                EventSourceArn=queue_arn,
                FunctionName=reader.function,
                BatchSize=reader.batch,
                FunctionResponseTypes=list(reader.answers),  # type: ignore[arg-type]
            )
    except AlreadyDone:
        return


def remove_functions(aws: Aws, service: str) -> None:
    """Remove what the raw queue calls, and all functions that bear the service's name and tag."""
    source = f":{name_of(service, RAW)}"
    with translated():
        pages = aws.lambda_.get_paginator("list_event_source_mappings").paginate()
        fed = [
            m
            for page in pages
            for m in page["EventSourceMappings"]
            if m.get("EventSourceArn", "").endswith(source)
        ]
    for mapping in fed:
        with absent_is_done():
            aws.lambda_.delete_event_source_mapping(UUID=mapping["UUID"])
    prefix = name_of(service, "")
    with translated():
        listed = aws.lambda_.get_paginator("list_functions").paginate()
        named = [f for page in listed for f in page["Functions"] if f["FunctionName"].startswith(prefix)]
    for function in named:
        with absent_is_done():
            tags = aws.lambda_.list_tags(Resource=function["FunctionArn"])["Tags"]
            if tags.get(SERVICE) == service:  # a service `a` does not own what `a-b` has
                aws.lambda_.delete_function(FunctionName=function["FunctionName"])
