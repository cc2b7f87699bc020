"""Grants of roles that services of a whole run used, and those that none needs, each with its reason.

The emulated AWS asks IAM before every call, and says which statement allowed it. A service under test notes that
when it ends (`Rig.down`); after a run of all of them (`conftest.py`), what a role may do and none did has its
reason here. Roles that do not act on one machine are held to recorded calls (tests/infra/test_grants.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from mark.aws.permissions.policies import PLATFORM, policy
from tests.aws.iam import NAMES, NEVER_ASKED

Use = tuple[str, str, str]
"""A role, a statement of its policy, and an action."""
USED: set[Use] = set()
"""Grants that the services of this process used."""
SET_UP = "setup"
"""Role that makes an emulated account; in AWS a deploy does, whose role is the deployer's."""
_WAKES = "standbys fall asleep and are woken in `tests/live/scarcity.py`, whose calls are judged, too"
_TRAINS = (
    "a service on one machine trains its forecasters in processes; tests/aws/test_calls.py records the function's"
)
_UNREADY = "only of an instance that never served; tests/emulator/test_authorization.py ends some as the role"
_ENDS = "agents that are left alone power off first; tests/aws/test_calls.py records the function's calls"
NOT_HERE: Mapping[Use, str] = MappingProxyType(
    {
        (
            "controller",
            "EventsQueue",
            "sqs:ChangeMessageVisibility",
        ): "only of a message that is not written down yet",
        ("controller", "OwnInstances", "ec2:StartInstances"): _WAKES,
        ("controller", "OwnInstances", "ec2:StopInstances"): _WAKES,
        ("controller", "OwnInstances", "ec2:TerminateInstances"): _UNREADY,
        (
            "controller",
            "Plans",
            "savingsplans:DescribeSavingsPlanRates",
        ): "only where the account has a plan; tests/aws/test_commitments.py reads plans as the controllers' role",
        ("controller", "Training", "lambda:InvokeFunction"): _TRAINS,
        ("controller", "Trainings", "s3:GetObject"): _TRAINS,
        ("controller", "Trainings", "s3:PutObject"): _TRAINS,
        ("orphans", "Notice", "s3:PutObject"): _ENDS,
        ("orphans", "OwnInstances", "ec2:TerminateInstances"): _ENDS,
        ("gateway", "Token", "secretsmanager:GetSecretValue"): "on one machine the clients' token is a file",
    }
)
"""Grants that services need elsewhere, or seldom."""


def note(used: Mapping[str, Iterable[str]]) -> None:
    """Note what a service used, as the emulated AWS says it: by role, a statement and an action with a blank."""
    for role, grants in used.items():
        for grant in grants:
            statement, action = grant.split(" ")
            USED.add((role, statement, action))


def unused() -> Iterator[Use]:
    """Grants of the roles that acted which nothing used and nothing explains."""
    for role in sorted({role for role, *_ in USED} - {SET_UP}):
        explained = {(need.scope, need.action) for need in PLATFORM[role]} | set(NEVER_ASKED)
        for statement in policy(NAMES, role)["Statement"]:
            for action in statement["Action"]:
                use = (role, statement["Sid"], action)
                if use[1:] not in explained and use not in USED and use not in NOT_HERE:
                    yield use


def stale() -> Iterator[Use]:
    """Excuses for what no policy grants any more."""
    for role, sid, action in NOT_HERE:
        granted = {(one["Sid"], name) for one in policy(NAMES, role)["Statement"] for name in one["Action"]}
        if (sid, action) not in granted:
            yield role, sid, action
