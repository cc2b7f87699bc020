"""`mark rotate`: a service's secrets are replaced while it serves.

The clients' token: a new version waits as AWSPENDING until every gateway has read it and accepts both; then it
becomes AWSCURRENT, which clients read, and the old one, AWSPREVIOUS now, counts for a while more. Every step
follows from the stages alone (`next_step`), so whoever runs the command again goes on where it was left. The
agents' password at the nodes' stores goes the same way: nodes accept it, agents read it as they connect.

Waits are counted on AWS's clock, which dates the secret's last change, and not on this machine's. Each step is a
conditional write: it names the version that it takes a stage from, and a new version's id follows from what was
found. So of two who rotate at once one does the step, and the other goes on from what it finds then.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, assert_never

from mark.aws.client_tokens import AGAIN_S, CURRENT, FRESH_S, PENDING, PREVIOUS, READ_EACH_S
from mark.aws.errors import translated, unless_absent
from mark.aws.names import AGENTS_PASSWORD, TOKEN, name_of
from mark.aws.session import Aws
from mark.config.rollout import RolloutSettings
from mark.config.settings import Settings
from mark.domain.errors import MarkError, Misconfigured
from mark.live.service_session import service_aws
from mark.report.terminal import show
from mark.store.users import PROCESSES, StoreUser

OURS = "mark-rotation-"
"""Beginning of a version's id that this command made; Secrets Manager takes 32 to 64 characters."""
READ_S = READ_EACH_S + 4 * AGAIN_S
"""Time for every gateway, or node, to read what counts, also where some of its calls fail."""
LEAST_S = FRESH_S + 2 * AGAIN_S
"""So long an old password of the agents counts at least: an instance may still tell it, and a connection begin."""
TOKEN_BYTES = 32
TimeOf = Callable[[Mapping[str, Any]], float]
"""Time of an answer of AWS's, epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A secret in plain words: its `value`, who `accepts` it, and who is `told` it and sends it."""

    value: str
    accepts: str
    told: str


WORDS: Mapping[str, Words] = MappingProxyType(
    {
        TOKEN: Words(value="token", accepts="gateway", told="clients"),
        AGENTS_PASSWORD: Words(value="password", accepts="node", told="agents"),
    }
)


class Move(StrEnum):
    """A change of the secret's versions."""

    MAKE = "make"
    PUBLISH = "publish"
    SETTLE = "settle"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Ids of the versions that have a stage, empty where none has; `changed_at`: of the secret, epoch seconds."""

    current: str
    pending: str = ""
    previous: str = ""
    changed_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Versions of a secret as AWS told them; `at`: when that was, epoch seconds of AWS's clock."""

    versions: Versions
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next change, not before `due_at` (epoch seconds)."""

    move: Move
    due_at: float = 0.0


def next_step(versions: Versions, keep_old_s: float) -> Step | None:
    """The next step of a rotation under way; None where none is. Misconfigured where somebody else rotates."""
    if versions.pending and not versions.pending.startswith(OURS):
        raise Misconfigured(
            f"the version {versions.pending} is {PENDING}, and not of `mark rotate`: let the rotation that made "
            "it end, or take that stage away"
        )
    if versions.pending and versions.pending == versions.current:
        return Step(move=Move.SETTLE)
    if versions.pending:
        return Step(move=Move.PUBLISH, due_at=versions.changed_at + READ_S)
    if versions.previous and versions.current.startswith(OURS):
        return Step(move=Move.RETIRE, due_at=versions.changed_at + keep_old_s)
    return None


def after(versions: Versions, step: Step, at: float, made: str) -> Versions:
    """The versions once the step is done at that time. made: id of a version that it makes."""
    match step.move:
        case Move.MAKE:
            return replace(versions, pending=made, changed_at=at)
        case Move.PUBLISH:
            return replace(versions, current=versions.pending, previous=versions.current, changed_at=at)
        case Move.SETTLE:
            return replace(versions, pending="", changed_at=at)
        case Move.RETIRE:
            return replace(versions, previous="", changed_at=at)
        case _:
            assert_never(step.move)


def steps_left(versions: Versions, now: float, keep_old_s: float) -> Iterator[Step]:
    """All steps to the end, each with the time at which it is done; a new rotation where none is under way."""
    step: Step | None = next_step(versions, keep_old_s) or Step(move=Move.MAKE)
    while step is not None:
        now = max(now, step.due_at)
        yield replace(step, due_at=now)
        versions = after(versions, step, now, made=OURS)
        step = next_step(versions, keep_old_s)


def reasons(rollout: RolloutSettings) -> Mapping[str, str]:
    """Secrets that are not rotated, and why: by their part of the name."""
    if rollout.shape == "ha":
        at_start = (
            "CloudFormation writes it into the user of ElastiCache, and processes read it when they start: write "
            f"rollout.store.passwords: {rollout.store.passwords + 1} and deploy"
        )
        told = dict.fromkeys((f"store-{user.value}" for user in PROCESSES), at_start)
        told |= dict.fromkeys((f"password-{user.value}" for user in PROCESSES), at_start)
    else:
        told = {
            f"store-{StoreUser.CONTROLLER.value}": "processes of a node read it when they start, and the nodes' "
            "authority and the gateways' password follow from it; no machine but the nodes has it"
        }
        if rollout.node.certificate:
            told["certificate"] = (
                "it is yours: put the next one into its secret, then replace one node after the other"
            )
    return told


def rotated(rollout: RolloutSettings) -> tuple[str, ...]:
    """Secrets that are rotated, by their part of the name."""
    return (TOKEN,) if rollout.shape == "ha" else (TOKEN, AGENTS_PASSWORD)


def rotate(
    settings: Settings,
    names: Sequence[str],
    *,
    keep_old_s: float,
    plan_only: bool,
    sleep: Callable[[float], None] = time.sleep,
    time_of: TimeOf | None = None,
) -> None:
    """Rotate these secrets, or all that can be; `keep_old_s`: so long the old value counts beside the new one.

    time_of: the time of an answer; AWS's own when left out.
    Misconfigured, before anything changes, for a name that is unknown or that cannot be rotated.
    """
    kept, known = reasons(settings.rollout), rotated(settings.rollout)
    for name in names:
        if name in kept:
            raise Misconfigured(f"{name} cannot be rotated: {kept[name]}")
        if name not in known:
            raise Misconfigured(f"unknown secret {name!r}; known: {', '.join((*known, *kept))}")
    chosen = (name for name in known if not names or name in names)
    keeps = {name: max(keep_old_s, LEAST_S) if name == AGENTS_PASSWORD else keep_old_s for name in chosen}
    with closing(service_aws(settings, "rotator")) as aws:
        rotation = _Rotation(aws, settings.service.name, time_of or answered_at)
        if plan_only:
            for name, old_s in keeps.items():
                found = rotation.find(name)
                for step in steps_left(found.versions, found.at, old_s):
                    show(f"{name}  {_time(step.due_at)}  {_words(name, step.move)}")
        else:
            rotation.run(keeps, sleep)
    if not names:
        for name, why in kept.items():
            show(f"{name}  not rotated: {why}")


def answered_at(answer: Mapping[str, Any]) -> float:
    """Time at which AWS gave an answer, epoch seconds: whole ones, so never too late (RFC 9110, 6.6.1)."""
    dated = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if dated is None:
        raise Misconfigured("the answer has no date: something between here and AWS takes it away")
    return parsedate_to_datetime(dated).timestamp()


class _Rotation:
    """Rotations of a service's secrets, beside each other."""

    def __init__(self, aws: Aws, service: str, time_of: TimeOf) -> None:
        self._aws, self._service, self._time_of = aws, service, time_of
        self._left: dict[str, tuple[Found, Step]] = {}

    def run(self, keeps: Mapping[str, float], sleep: Callable[[float], None]) -> None:
        """Do what is due first, until nothing is left. keeps: so long each old value counts, seconds."""
        for name, old_s in keeps.items():
            found = self.find(name)
            step = next_step(found.versions, old_s)
            if step is not None:
                show(f"{name}  a rotation that was interrupted goes on")
            self._left[name] = found, step or Step(move=Move.MAKE)
        while self._left:
            name, (found, step) = min(self._left.items(), key=lambda one: one[1][1].due_at)
            if (wait_s := step.due_at - found.at) > 0:
                show(f"{name}  waits until {_time(step.due_at)} to {_words(name, step.move)}")
                sleep(wait_s)
                for waiting in tuple(self._left):  # somebody else may have gone on meanwhile
                    self._look(waiting, keeps[waiting])
            else:
                self._do(name, found, step.move)
                self._look(name, keeps[name])

    def find(self, secret: str) -> Found:
        """The secret's versions as they are now. Misconfigured where there is no such secret."""
        name = name_of(self._service, secret)
        told = unless_absent(lambda: self._aws.secrets.describe_secret(SecretId=name))
        if told is None:
            raise Misconfigured(
                f"there is no secret {name} in {self._aws.settings.region}: the service {self._service} is not "
                "deployed there"
            )
        staged = {stage: id_ for id_, stages in told["VersionIdsToStages"].items() for stage in stages}
        changed = told.get("LastChangedDate") or told["CreatedDate"]
        versions = Versions(
            current=staged.get(CURRENT, ""),
            pending=staged.get(PENDING, ""),
            previous=staged.get(PREVIOUS, ""),
            changed_at=changed.timestamp(),
        )
        return Found(versions=versions, at=self._time_of(told))

    def _look(self, name: str, keep_old_s: float) -> None:
        found = self.find(name)
        if (step := next_step(found.versions, keep_old_s)) is not None:
            self._left[name] = found, step
        else:
            del self._left[name]
            show(f"{name}  rotated; {WORDS[name].accepts}s refuse the old one within {READ_EACH_S / 60:g} minutes")

    def _do(self, name: str, found: Found, move: Move) -> None:
        """Do the step, or find that somebody else has done one meanwhile."""
        try:
            with translated():
                _change(self._aws, name_of(self._service, name), move, found.versions)
        except MarkError:
            if self.find(name).versions == found.versions:
                raise
            show(f"{name}  is rotated by somebody else, too: goes on from what is found now")
        else:
            show(f"{name}  {_time(found.at)}  done: {_words(name, move)}")


def _change(aws: Aws, name: str, move: Move, versions: Versions) -> None:
    """Change the stages; AWS refuses it where they are no longer as they were found."""
    moved = aws.secrets.update_secret_version_stage
    match move:
        case Move.MAKE:
            aws.secrets.put_secret_value(
                SecretId=name,
                ClientRequestToken=version_made(name, versions),
                SecretString=secrets.token_hex(TOKEN_BYTES),
                VersionStages=[PENDING],
            )
        case Move.PUBLISH:  # Secrets Manager makes the old one AWSPREVIOUS by itself
            moved(
                SecretId=name,
                VersionStage=CURRENT,
                MoveToVersionId=versions.pending,
                RemoveFromVersionId=versions.current,
            )
        case Move.SETTLE:
            moved(SecretId=name, VersionStage=PENDING, RemoveFromVersionId=versions.pending)
        case Move.RETIRE:
            moved(SecretId=name, VersionStage=PREVIOUS, RemoveFromVersionId=versions.previous)
        case _:
            assert_never(move)


def version_made(name: str, versions: Versions) -> str:
    """Id of the version that a rotation makes from what was found: the same for all who found that.

    Secrets Manager refuses a second value under one id (API reference, PutSecretValue, `ClientRequestToken`).
    """
    return f"{OURS}{uuid.uuid5(uuid.NAMESPACE_URL, f'{name} {versions.current} {versions.changed_at!r}')}"


def _words(name: str, move: Move) -> str:
    words = WORDS[name]
    match move:
        case Move.MAKE:
            return f"make a new {words.value}, which {words.accepts}s accept beside the old one"
        case Move.PUBLISH:
            return f"have {words.told} read the new {words.value}, which every {words.accepts} accepts by then"
        case Move.SETTLE:
            return f"note that the new {words.value} is the one in use"
        case Move.RETIRE:
            return f"take the old {words.value} away"
        case _:
            assert_never(move)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
