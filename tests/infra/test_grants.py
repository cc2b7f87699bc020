"""Grants of the templates' roles: each is used by a call that a test makes, or stands here with its reason.

What a role calls and uses is recorded on an emulated account, call by call, and held against its policy
(`Recorder.assert_permitted`) by the evaluator that the emulated AWS asks before every call. End-to-end tests
hold the other way: no call of the services that they end was refused. What AWS, or an instance's start script,
does in a role nobody can record here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.policies import PLATFORM
from mark.deployment.synth import Synthesis
from tests.aws.iam import NAMES, NEVER_ASKED, policy
from tests.end_to_end.grants import stale
from tests.infra.conftest import of_type, plain

Grant = tuple[str, str]
"""A statement and an action."""
TESTS = Path(__file__).parents[1]
UNRECORDED = {
    "agent": "calls nothing of itself: its start script and its model's metadata do (BY_AWS)",
    "deployer": "CloudFormation's calls are judged by nobody here; `scripts.rehearsal` makes them all",
    "probe": "calls nothing: it sends HTTPS within the network",
    "rotator": "a person's; tests/deployment/test_rotate.py holds it to what `mark rotate` used",
}
"""Roles whose calls no test records, and why."""
BY_AWS: Mapping[str, str] = {
    "Answers": "a start script tells CloudFormation that its process answers",
    "Artifacts": "an agent's start script fetches the model's bundle, and what answers its metadata further ones",
    "Bucket": "S3 tells by it what is not there from what is denied",
    "Call": "EventBridge Scheduler calls functions",
    "Certificate": "a node's start script reads the certificate",
    "Collector": "a gateway's or a node's start script reads the headers of the collector of spans and metrics",
    "Image": "start scripts, ECS and Lambda pull images",
    "ImageLogin": "a pull begins with it",
    "Log": "Docker's driver writes what a node's processes say",
    "Logs": "Lambda, ECS or Docker's driver writes what a process says",
    "Network": "Lambda makes the interface by which a function stands in the network",
    "RawQueue": "Lambda reads the queue for the function",
    "Topic": "Lambda tells of what the function `orphans` finds",
    "Secrets": "a node's start script reads the store's passwords",
    "UnpostedQueue": "Lambda keeps there what the webhook's function could not post",
}
"""Statements of what AWS does in a role, or a start script before any process of ours, and what for."""


def grants(made: Synthesis) -> Iterator[tuple[str, Grant]]:
    for stack, template in made.templates.items():
        for name, role in of_type(template, "AWS::IAM::Role").items():
            for inline in plain(role.get("Policies") or []):
                for statement in inline["PolicyDocument"]["Statement"]:
                    actions = statement["Action"]
                    for action in [actions] if isinstance(actions, str) else actions:
                        yield f"{stack}/{name}", (statement.get("Sid", ""), action)


def recorded_roles() -> set[str]:
    """Roles that a test holds to what they use: the first word of `assert_permitted`, or those of its loop."""
    found: set[str] = set()
    for path in (TESTS / "aws").glob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.For) and "assert_permitted" in ast.unparse(node):
                found |= {one.value for one in ast.walk(node.iter) if isinstance(one, ast.Constant)}
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".assert_permitted"):
                found |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
    return found


def used() -> set[Grant]:
    """Grants that recorded calls of a role need; `assert_permitted` fails where a role has one that none used."""
    found: set[Grant] = set()
    for role in recorded_roles():
        by_aws = {(need.scope, need.action) for need in PLATFORM[role]}
        written = policy(NAMES, role)["Statement"]
        found |= {(one["Sid"], action) for one in written for action in one["Action"]} - by_aws
    return found - set(NEVER_ASKED)


def test_every_role_is_recorded_or_says_why_not() -> None:
    assert recorded_roles() | set(UNRECORDED) == set(ROLES)
    assert not recorded_roles() & set(UNRECORDED)


def test_nothing_is_granted_that_is_not_used(
    synthesis: Synthesis, others_synthesis: Synthesis, lean_synthesis: Synthesis, trial_synthesis: Synthesis
) -> None:
    needed, left = used(), {}
    for made in (synthesis, others_synthesis, lean_synthesis, trial_synthesis):
        left |= {grant: role for role, grant in grants(made) if grant not in needed | set(NEVER_ASKED)}
    assert {sid for sid, _ in left} == set(BY_AWS), left


def test_what_no_live_service_uses_is_excused_only_while_it_is_granted() -> None:
    assert list(stale()) == []
