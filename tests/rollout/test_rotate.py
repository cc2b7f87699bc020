"""`mark rotate`: its steps for any times and interruptions, and on the emulated AWS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.archive import bucket_name
from mark.aws.client_tokens import valid_tokens
from mark.aws.functions.probe import clients_token
from mark.aws.permissions.policies import Names
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.emulator.config import ACCOUNT, REGION
from mark.rollout import rotate as rotating
from mark.rollout.rotate import OURS, READ_S, Move, Versions, after, next_step, steps_left
from tests.aws.builders import aws
from tests.emulator.conftest import World, config_for

SETTINGS = Settings.model_validate({"service": {"name": "shop"}})
SECRET = "mark-shop-token"
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
    """A clock that is moved by sleeping; each sleep notes which token clients read, and which count by then."""

    def __init__(self, world: World, *, interrupted_at: int | None = None) -> None:
        self.now, self.world, self.interrupted_at = 0.0, world, interrupted_at
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, wait_s: float) -> None:
        client, gateway = (aws(endpoint_url=self.world.url, role=role) for role in ("prober", "gateway"))
        self.seen.append((clients_token(client, "shop"), valid_tokens(gateway, "shop")))
        client.close()
        gateway.close()
        if len(self.seen) == self.interrupted_at:
            self.interrupted_at = None
            raise KeyboardInterrupt
        self.now += wait_s


def rotate(sleeper: Sleeper, **differs: object) -> None:
    told = {"names": (), "keep_old_s": 3600.0, "plan_only": False} | differs
    rotating.rotate(SETTINGS, clock=sleeper.clock, sleep=sleeper.sleep, **told)  # type: ignore[arg-type]


def with_token(world: World) -> str:
    there = aws(endpoint_url=world.url)
    there.secrets.create_secret(Name=SECRET, SecretString="first" * 8)
    there.close()
    return "first" * 8


@pytest.mark.parametrize(
    "interrupted_at", [None, 1, 2], ids=["whole", "before clients", "before the old one goes"]
)
def test_at_each_time_gateways_accept_what_clients_read(
    world: World, interrupted_at: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    old = with_token(world)
    sleeper = Sleeper(world, interrupted_at=interrupted_at)
    if interrupted_at is not None:
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
    assert (said.count("goes on"), said.count("done: make")) == (int(interrupted_at is not None), 1)
    assert "not rotated" in said
    used = world.state()["permissions"]["used"]["rotator"]
    assert {name.partition(":")[2] for name in used} == {
        "DescribeSecret",
        "PutSecretValue",
        "UpdateSecretVersionStage",
    }


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
    with pytest.raises(
        Misconfigured, match="store-agent cannot be rotated: its processes read it when they start"
    ):
        rotate(sleeper, names=("token", "store-agent"))
    with pytest.raises(Misconfigured, match="unknown secret 'tokens'; known: token, store-agent"):
        rotate(sleeper, names=("tokens",))
