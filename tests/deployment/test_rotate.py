"""`mark rotate`: its steps for any times and interruptions, and on the emulated AWS."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.archive import bucket_name
from mark.aws.client_tokens import (
    AGAIN_S,
    FRESH_S,
    READ_EACH_S,
    agents_password,
    valid_passwords,
    valid_tokens,
)
from mark.aws.functions.probe import clients_token
from mark.aws.permissions.policies import Names
from mark.aws.session import Aws
from mark.cli.main import run
from mark.config.settings import Settings
from mark.deployment import rotate as rotating
from mark.deployment.rotate import OURS, READ_S, Move, Versions, after, answered_at, next_step, steps_left
from mark.domain.errors import Misconfigured, RetryLater
from mark.emulator.config import ACCOUNT, REGION
from mark.live.control.leadership.node import AgentsPasswords
from mark.live.processes.metadata import Kept
from mark.store.connect import AsyncLink, connect, connect_async
from mark.store.embedded import EmbeddedRedis
from mark.store.keys import Keys
from mark.store.replication import NodeStore
from mark.store.users import StoreUser, acl_file, url_of
from tests.aws.builders import aws
from tests.emulator.conftest import World, config_for

SETTINGS = Settings.model_validate({"service": {"name": "shop"}})
SECRET, AGENTS_SECRET = "mark-shop-token", "mark-shop-store-agent"
OLD, NEW = "old-version", f"{OURS}1"
WHOLE = [Move.MAKE, Move.PUBLISH, Move.SETTLE, Move.RETIRE]
times = st.floats(0.0, 1e9)
keeps = st.floats(0.0, 1e6)


@given(now=times, keep_old_s=keeps)
def test_clients_read_a_token_that_gateways_know_and_the_old_one_stays_for_the_time_said(
    now: float, keep_old_s: float
) -> None:
    steps = list(steps_left(Versions(current=OLD, changed_at=0.0), now, keep_old_s))
    assert [step.move for step in steps] == WHOLE
    made, published, _, retired = (step.due_at for step in steps)
    assert made == now
    assert published >= made + READ_S
    assert retired >= published + keep_old_s


@given(now=times, keep_old_s=keeps, done=st.integers(0, len(WHOLE) - 1), later_s=keeps)
def test_a_rotation_that_was_interrupted_goes_on_where_it_was(
    now: float, keep_old_s: float, done: int, later_s: float
) -> None:
    versions = Versions(current=OLD, previous="older", changed_at=0.0)
    for step in list(steps_left(versions, now, keep_old_s))[:done]:
        versions, now = after(versions, step, step.due_at, made=NEW), step.due_at
    left = list(steps_left(versions, now + later_s, keep_old_s))
    assert [step.move for step in left] == WHOLE[done:]
    assert all(step.due_at >= now + later_s for step in left)


def test_a_rotation_of_somebody_else_is_left_alone() -> None:
    with pytest.raises(Misconfigured, match="and not of `mark rotate`"):
        next_step(Versions(current=OLD, pending="theirs"), 0.0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """An account with the service's token, whose roles are judged."""
    names = Names(service="shop", region=REGION, account=ACCOUNT, bucket=bucket_name("shop", ACCOUNT))
    made = World(config_for(tmp_path / "logs", names=names))
    monkeypatch.setattr(rotating, "service_aws", lambda _settings, role: aws(endpoint_url=made.url, role=role))
    yield made
    made.stop()


class Sleeper:
    """AWS's clock, moved by sleeping; each sleep notes which token clients read, and which count by then."""

    def __init__(self, world: World, *, interrupted_at: int | None = None) -> None:
        self.slept_s, self.world, self.interrupted_at = 0.0, world, interrupted_at
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def time_of(self, answer: Mapping[str, Any]) -> float:
        return answered_at(answer) + self.slept_s

    def sleep(self, wait_s: float) -> None:
        client, gateway = (aws(endpoint_url=self.world.url, role=role) for role in ("prober", "gateway"))
        self.seen.append((clients_token(client, "shop"), valid_tokens(gateway, "shop")))
        client.close()
        gateway.close()
        if len(self.seen) == self.interrupted_at:
            self.interrupted_at = None
            raise KeyboardInterrupt
        self.slept_s += wait_s


def rotate(sleeper: Sleeper, **differs: object) -> None:
    told = {"names": ("token",), "keep_old_s": 3600.0, "plan_only": False} | differs
    rotating.rotate(SETTINGS, sleep=sleeper.sleep, time_of=sleeper.time_of, **told)  # type: ignore[arg-type]


def with_token(world: World) -> str:
    there = aws(endpoint_url=world.url)
    there.secrets.create_secret(Name=SECRET, SecretString="first" * 8)
    there.close()
    return "first" * 8


@pytest.mark.parametrize("interrupted_at", [1, 2], ids=["before clients", "before the old one goes"])
def test_at_each_time_gateways_accept_what_clients_read(
    world: World, interrupted_at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    old = with_token(world)
    sleeper = Sleeper(world, interrupted_at=interrupted_at)
    with pytest.raises(KeyboardInterrupt):
        rotate(sleeper)
    sleeper.seen.pop()  # it is waited for again
    rotate(sleeper)
    (first, accepted), (then, accepted_then) = sleeper.seen
    assert (first, accepted[0]) == (old, old)
    assert then != old
    assert set(accepted) == set(accepted_then) == {old, then}
    sleeper.sleep(0.0)
    assert sleeper.seen[-1] == (then, (then,))
    said = capsys.readouterr().out
    assert (said.count("goes on"), said.count("done: make")) == (1, 1)
    used = world.state()["permissions"]["used"]["rotator"]
    assert {name.partition(":")[2] for name in used} == {
        "DescribeSecret",
        "PutSecretValue",
        "UpdateSecretVersionStage",
    }


@pytest.mark.parametrize(
    ("before", "to_the_end"),
    [(Move.MAKE, False), (Move.MAKE, True), (Move.PUBLISH, True), (Move.SETTLE, False), (Move.RETIRE, True)],
)
def test_of_two_at_once_each_step_is_done_by_one(
    world: World,
    before: Move,
    to_the_end: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one steps in after the first has looked, and before the first changes anything."""
    old = with_token(world)
    first, other = Sleeper(world), Sleeper(world)
    change, waiting = rotating._change, [before]

    def change_second(there: Aws, name: str, move: Move, versions: Versions) -> None:
        if move in waiting:
            waiting.clear()
            other.slept_s = first.slept_s
            other.interrupted_at = None if to_the_end else 1
            with contextlib.suppress(KeyboardInterrupt):
                rotate(other)
        change(there, name, move, versions)

    monkeypatch.setattr(rotating, "_change", change_second)
    rotate(first)
    said = capsys.readouterr().out
    assert "is rotated by somebody else, too" in said
    assert [said.count(f"done: {step}") for step in ("make", "have", "note", "take")] == [1, 1, 1, 1]
    other.interrupted_at = None
    other.sleep(0.0)
    read, accepted = zip(*(first.seen + other.seen), strict=True)
    assert set(read) - {old} == {other.seen[-1][0]}, "one new token"
    assert other.seen[-1] == (read[-1], (read[-1],)), "the old one is gone"
    for token, valid in zip(read, accepted, strict=True):
        assert token in valid


def test_time_is_that_of_awss_answer() -> None:
    def answer(**headers: str) -> dict[str, Any]:
        return {"ResponseMetadata": {"HTTPHeaders": headers}}

    assert answered_at(answer(date="Mon, 23 Nov 2026 08:00:01 GMT")) == 1795420801.0
    with pytest.raises(Misconfigured, match="the answer has no date"):
        answered_at(answer())


def test_a_plan_changes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    old = with_token(world)
    sleeper = Sleeper(world)
    rotate(sleeper, plan_only=True)
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("token  ")]) == len(WHOLE)
    sleeper.sleep(0.0)
    assert sleeper.seen == [(old, (old,))]


def test_what_cannot_be_rotated_is_refused_with_the_reason(world: World) -> None:
    sleeper = Sleeper(world)
    with pytest.raises(Misconfigured, match="there is no secret mark-shop-token"):
        rotate(sleeper)
    with pytest.raises(Misconfigured, match="store-controller cannot be rotated: processes of a node read it"):
        rotate(sleeper, names=("token", "store-controller"))
    with pytest.raises(Misconfigured, match="unknown secret 'tokens'; known: token, store-agent"):
        rotate(sleeper, names=("tokens",))


# The agents' password at a node's store.


class Service(Sleeper):
    """A node's store with its controller, an agent, and the process beside it; each sleep lasts in steps."""

    def __init__(self, world: World, redis: EmbeddedRedis, *, interrupted_after_s: float = math.inf) -> None:
        super().__init__(world)
        self.redis, self.failures, self.interrupted_at_s = redis, list[str | None](), interrupted_after_s
        self.roles = {role: aws(endpoint_url=world.url, role=role) for role in ("member", "node")}
        self.passwords = AgentsPasswords(
            NodeStore(connect(url_of(redis.url, StoreUser.NODE, "node")), 0),
            lambda: valid_passwords(self.roles["node"], "shop"),
            self.failures.append,
            each_s=READ_EACH_S,
            again_s=AGAIN_S,
            monotonic=lambda: self.slept_s,
        )
        self.told = Kept(
            lambda: agents_password(self.roles["member"], "shop"), FRESH_S, monotonic=lambda: self.slept_s
        )
        self.loop = asyncio.new_event_loop()
        self.lasting = self.link()
        self.goes_on()

    def link(self) -> AsyncLink:
        return connect_async(url_of(self.redis.url, StoreUser.AGENT, OLD), password=self.told)

    def goes_on(self) -> None:
        """A turn of the node; an agent that stays connected and one that begins are both answered."""
        self.passwords.poll()
        assert self.failures[-1] is None
        fresh = self.link()
        for link in (self.lasting, fresh):
            self.loop.run_until_complete(link.call("GET", Keys("shop").of("clock")))
        self.loop.run_until_complete(fresh.aclose())

    def sleep(self, wait_s: float) -> None:
        until = self.slept_s + wait_s
        while self.slept_s < until:
            self.slept_s = min(until, self.slept_s + 60.0)
            self.goes_on()
            if self.slept_s >= self.interrupted_at_s:
                self.interrupted_at_s = math.inf
                raise KeyboardInterrupt

    def takes(self, password: str) -> bool:
        link = connect(url_of(self.redis.url, StoreUser.AGENT, password))
        try:
            link.call("GET", Keys("shop").of("clock"))
        except RetryLater:
            return False
        finally:
            link.close()
        return True

    def close(self) -> None:
        self.loop.run_until_complete(self.lasting.aclose())
        self.loop.close()
        for role in self.roles.values():
            role.close()


@pytest.mark.parametrize(
    ("interrupted_after_s", "keep_old_s"),
    [(math.inf, 3600.0), (300.0, 0.0), (800.0, 3600.0)],
    ids=["whole", "leaked, at first", "before agents"],
)
def test_agents_reach_the_store_all_the_while_their_password_is_replaced(
    world: World, tmp_path: Path, interrupted_after_s: float, keep_old_s: float
) -> None:
    there = aws(endpoint_url=world.url)
    there.secrets.create_secret(Name=AGENTS_SECRET, SecretString=OLD)
    users = acl_file("shop", {StoreUser.AGENT: OLD, StoreUser.NODE: "node"})
    with EmbeddedRedis(tmp_path / "redis", users=users) as redis:
        service = Service(world, redis, interrupted_after_s=interrupted_after_s)
        told = {"names": ("store-agent",), "keep_old_s": keep_old_s}
        if interrupted_after_s < math.inf:
            with pytest.raises(KeyboardInterrupt):
                rotate(service, **told)
        rotate(service, **told)
        new = agents_password(service.roles["member"], "shop")
        assert new != OLD
        assert service.takes(new)
        service.sleep(READ_EACH_S)
        assert (service.takes(new), service.takes(OLD)) == (True, False)
        service.close()
    there.close()
    used = world.state()["permissions"]["used"]
    assert {name.partition(":")[2] for role in ("member", "node") for name in used[role]} == {"GetSecretValue"}


def test_a_store_that_starts_anew_takes_what_counts_and_drops_connections_of_what_does_not(
    world: World, tmp_path: Path
) -> None:
    there = aws(endpoint_url=world.url)
    there.secrets.create_secret(Name=AGENTS_SECRET, SecretString=OLD)
    users = acl_file("shop", {StoreUser.AGENT: "older", StoreUser.NODE: "node"})
    with EmbeddedRedis(tmp_path / "redis", users=users) as redis:
        thief = connect(url_of(redis.url, StoreUser.AGENT, "older"))
        thief.call("GET", Keys("shop").of("clock"))
        service = Service(world, redis)
        with pytest.raises(RetryLater):
            thief.call("GET", Keys("shop").of("clock"))
        service.close()
    there.close()


def test_token_and_password_are_rotated_beside_each_other(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with_token(world)
    there = aws(endpoint_url=world.url)
    there.secrets.create_secret(Name=AGENTS_SECRET, SecretString=OLD)
    there.close()
    sleeper = Sleeper(world)
    rotate(sleeper, names=())
    assert sleeper.slept_s < READ_S + 2 * 3600.0, "the waits are shared"
    said = capsys.readouterr().out
    assert [said.count(f"{name}  rotated") for name in ("token", "store-agent")] == [1, 1]
    assert "store-controller  not rotated" in said


class Publishing:
    """Secrets Manager, where the new version is published and settled after some reads of the stages."""

    def __init__(self, after_reads: int) -> None:
        self.secrets, self.reads_left = self, after_reads

    def get_secret_value(self, **asked: str) -> dict[str, str]:
        stages = {"AWSCURRENT": "old", "AWSPENDING": "new"}
        if self.reads_left <= 0:
            stages = {"AWSCURRENT": "new", "AWSPREVIOUS": "old"}
        self.reads_left -= 1
        stage = asked["VersionStage"]
        if stage not in stages:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": stage}}, "GetSecretValue")
        return {"SecretString": stages[stage]}


@pytest.mark.parametrize("after_reads", range(4))
def test_whoever_reads_while_the_new_one_is_published_misses_neither(after_reads: int) -> None:
    for read in (valid_tokens, valid_passwords):
        assert set(read(Publishing(after_reads), "shop")) == {"old", "new"}  # type: ignore[arg-type]


def test_a_node_that_cannot_read_the_secret_says_so_and_keeps_what_it_knows() -> None:
    now, readable, said, taken = [0.0], [True], list[str | None](), list[tuple[str, ...]]()

    class Store:
        def has_user(self, _user: StoreUser) -> bool:
            return True

        def take_passwords(self, _user: StoreUser, passwords: tuple[str, ...]) -> None:
            taken.append(passwords)

    def read() -> tuple[str, ...]:
        if not readable[0]:
            raise RetryLater("throttled")
        return (f"read at {now[0]:g}",)

    node = AgentsPasswords(Store(), read, said.append, each_s=600.0, again_s=60.0, monotonic=lambda: now[0])  # type: ignore[arg-type]
    for now[0], readable[0] in ((0.0, True), (5.0, False), (600.0, False), (605.0, True), (660.0, True)):
        node.poll()
    assert said == [None, None, "throttled", "throttled", None]
    assert taken == [("read at 0",)] * 4 + [("read at 660",)]


@pytest.mark.parametrize("kept", ["inf", "1e300", "-1", "nan"])
def test_a_time_that_no_rotation_waits_for_is_refused_in_one_line(
    kept: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rotate", "--plan", "--keep-old", kept]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--keep-old" in line
