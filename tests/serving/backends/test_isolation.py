"""Models that share an instance: one that leaks, hangs or spies harms nobody and learns nothing."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Parallelism
from mark.domain.tensor import TensorSpec
from mark.ports import BackendGone, InferReply
from mark.serving.backends.isolation import (
    USERS,
    Isolation,
    memory_limit_gib,
    needed_folders,
    scrubbed,
    unreadable_by_others,
    user_of,
    user_of_installed,
)
from mark.serving.backends.replica_messages import (
    HEAD,
    Started,
    pack_replies,
    pack_started,
    read_replies,
    read_started,
)
from mark.serving.backends.replicas import ReplicatedBackend
from tests.serving.backends.asks import INPUTS, OUTPUTS, ask, outputs
from tests.waiting import PATIENCE_S

PLANNED_GIB = 0.1
USERS_DIFFER = os.geteuid() == 0 and unreadable_by_others(needed_folders([Path(__file__)])) is None


class Tenant:
    """Answers with its process's number; hangs at 14, and holds ever more memory at 15."""

    inputs, outputs = INPUTS, OUTPUTS

    def __init__(self):
        self._held = []

    def predict(self, inputs):
        x = inputs["x"]
        if (x == 14).any():
            signal.pause()
        while (x == 15).any():
            self._held.append(np.ones(2**20))
        return {"y": x[:, :1] * 0 + os.getpid()}


class Leaks(Tenant):
    """Holds ever more memory from the beginning."""

    def __init__(self):
        held = []
        while True:
            held.append(np.ones(2**20))


class Breeder(Tenant):
    """Has a child that holds ever more memory, once it is told 15."""

    def predict(self, inputs):
        if (inputs["x"] == 15).any():
            subprocess.run([sys.executable, "-c", "held = []\nwhile True: held.append(b'x' * 2**20)"], check=False)
            signal.pause()
        return {"y": inputs["x"][:, :1] * 0 + os.getpid()}


class Spy(Tenant):
    """Answers with the sum of what it gets at of the process that it is told: a power of two for each kind."""

    def predict(self, inputs):
        other = int(inputs["x"][0, 0])
        found = [
            _reads(f"/proc/{other}/environ"),
            _reads(f"/proc/{other}/mem"),
            _reads(f"/proc/{other}/fd/0"),
            _lists(f"/proc/{other}/cwd"),
            _kills(other),
            _traces(other),
            _reads(f"/proc/{other}/maps"),
            any(_reads(str(file)) for file in Path(os.environ.get("OTHERS_FILES", "/none")).rglob("*")),
            _lists(os.environ.get("OTHERS_FILES", "/none")),
            os.getuid() == 0 or any(int(line.split()[1], 16) for line in _capabilities()),
            any(_lists(str(folder)) for folder in Path(tempfile.gettempdir()).parent.parent.glob("mark-model-*")),
            any(name.startswith(("MARK_", "AWS_")) for name in os.environ),
            len(os.listdir("/proc/self/fd")) > 5,  # standard ones, the parent's socket, and that of listing
        ]
        return {"y": inputs["x"][:, :1] * 0 + sum(2**place for place, is_found in enumerate(found) if is_found)}


def _reads(path: str) -> bool:
    try:
        Path(path).open("rb").close()
    except OSError:
        return False
    return True


def _traces(process: int) -> bool:
    """By ptrace's PTRACE_SEIZE, which stops nothing."""
    return ctypes.CDLL(None, use_errno=True).ptrace(0x4206, process, 0, 0) == 0


def _capabilities() -> list[str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("CapPrm", "CapEff", "CapAmb"))]


def _lists(path: str) -> bool:
    try:
        os.listdir(path)
    except OSError:
        return False
    return True


def _kills(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def run(test: Callable[[list[ReplicatedBackend]], Awaitable[None]], *models, users: bool = False) -> None:
    async def scenario() -> None:
        backends = [
            ReplicatedBackend(
                model,
                Parallelism(),
                name="m",
                isolation=Isolation(PLANNED_GIB, USERS[place] if users else None),
            )
            for place, model in enumerate(models)
        ]
        try:
            for backend in backends:
                await backend.start()
            await test(backends)
        finally:
            for backend in backends:
                await backend.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


async def number(backend: ReplicatedBackend, *sent: float) -> int:
    (reply,) = await backend.infer([ask(list(sent))])
    assert reply.status == 200
    return int(outputs(reply)[0][0])


async def has_ended(process: int) -> None:
    while _kills(process):
        await asyncio.sleep(0.01)


def test_what_holds_more_memory_than_planned_is_ended_and_its_neighbour_answers_meanwhile():
    async def test(backends: list[ReplicatedBackend]) -> None:
        leaks, other = backends
        process, neighbour = await number(leaks, 1, 1), await number(other, 1, 1)
        leaking = asyncio.ensure_future(leaks.infer([ask([15, 0])]))
        while not leaking.done():
            assert await number(other, 1, 1) == neighbour
            await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="ended while they answered"):
            await leaking
        await has_ended(process)
        assert leaks.is_gone
        with pytest.raises(BackendGone):
            await leaks.infer([ask([1, 1])])
        assert not other.is_gone

    run(test, Tenant, Tenant)


def test_what_hangs_is_really_ended():
    async def test(backends: list[ReplicatedBackend]) -> None:
        (backend,) = backends
        process = await number(backend, 1, 1)
        hanging = asyncio.ensure_future(backend.infer([ask([14, 0])]))
        while not any(replica.is_busy for replica in backend._replicas):
            await asyncio.sleep(0.01)
        assert backend.replace_hung()
        assert [reply.status for reply in await hanging] == [504]
        await has_ended(process)
        assert backend.is_gone

    run(test, Tenant)


@pytest.mark.parametrize("of_agent", [True, False])
def test_a_model_learns_nothing_of_its_neighbour_or_of_its_agent(of_agent, monkeypatch):
    if not USERS_DIFFER:
        pytest.skip("models have users of their own where root runs them from files that all may read")
    monkeypatch.setenv("MARK_STORE_URL", "redis://agent:secret@store")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    async def test(backends: list[ReplicatedBackend]) -> None:
        spy, other = backends
        target = os.getpid() if of_agent else await number(other, 1, 1)
        assert await number(spy, target, 0) == 0

    with tempfile.TemporaryFile(), versions(2) as (_, others):  # a file of the agent's that nobody else has open
        assert user_of(others) == USERS[1], "as the neighbour runs"
        monkeypatch.setenv("OTHERS_FILES", str(others))
        run(test, Spy, Tenant, users=True)


@contextmanager
def versions(count: int) -> Iterator[list[Path]]:
    """Folders of versions with a file each, claimed one after another; all may come to them."""
    root = Path(tempfile.mkdtemp()) / ".versions"
    try:
        root.parent.chmod(0o711)
        found = []
        for number in range(count):
            folder = root / "service" / f"model-{number}" / f"{number:012}"
            folder.mkdir(parents=True)
            (folder / "weights").write_text("secret")
            found.append(folder)
        user_of(found[0])
        yield found
    finally:
        shutil.rmtree(root.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives users")
def test_each_version_has_a_user_of_its_own_that_stays_whoever_asks():
    with versions(4) as folders:
        with ThreadPoolExecutor() as agents:
            users = list(agents.map(user_of, folders * 8))
        assert users[4:] == users[:4] * 7
        assert len(set(users)) == 4
        assert set(users) <= set(USERS)
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o750}


def test_installed_models_have_users_of_their_own_too():
    users: dict[str, int] = {}
    for number in range(40):
        users[f"model {number}"] = user_of_installed(f"model {number}", users.values())
    assert len(set(users.values())) == 40
    assert user_of_installed("model 0", ()) == users["model 0"]


def test_memory_of_a_models_children_counts():
    async def test(backends: list[ReplicatedBackend]) -> None:
        (backend,) = backends
        process = await number(backend, 1, 1)
        with pytest.raises(RuntimeError, match="ended while they answered"):
            await backend.infer([ask([15, 0])])
        await has_ended(process)
        assert backend.is_gone

    run(test, Breeder)


def test_a_model_that_takes_too_much_memory_to_load_does_not_start():
    with pytest.raises(Misconfigured, match="its process ended with status -9"):
        run(lambda _: asyncio.sleep(0), Leaks)


REPLIES = st.builds(
    InferReply, st.integers(0, 2**31), st.text(), st.binary(), st.integers(0, 2**31), variant=st.text()
)
SPECS = st.builds(
    TensorSpec, name=st.text(), datatype=st.text(), shape=st.lists(st.integers(-1, 2**31)).map(tuple)
)


def parts(message: bytes) -> tuple[bytes, bytes]:
    length, rest = HEAD.unpack(message[: HEAD.size])
    text, bodies = message[HEAD.size :][:length], message[HEAD.size + length :]
    assert len(bodies) == rest
    return text, bodies


@given(st.lists(REPLIES), st.builds(Started, st.tuples(SPECS), st.tuples(SPECS), st.text()))
def test_messages_are_read_as_they_were_sent(replies, started):
    assert read_replies(*parts(pack_replies(replies)), len(replies)) == replies
    assert read_started(*parts(pack_started(started))) == started


JSON = st.recursive(st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=2), st.lists, max_leaves=12)


@given(st.one_of(st.binary(), JSON.map(json.dumps).map(str.encode)), st.binary(max_size=9), st.integers(0, 2))
def test_whatever_else_a_model_sends_is_refused_or_no_more_than_data(text, bodies, count):
    with suppress(ValueError):
        replies = read_replies(text, bodies, count)
        assert len(replies) == count
        assert b"".join(reply.body for reply in replies) == bodies
    with suppress(ValueError):
        assert isinstance(read_started(text, bodies), Started)


def test_a_model_s_environment_has_no_credentials():
    kept = {"PATH": "/bin", "LANG": "C", "MODEL_DIR": "/models", "OMP_NUM_THREADS": "1", "HF_HOME": "/hf"}
    secret = {
        "MARK_STORE_URL": "redis://store",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1",
        "DB_PASSWORD": "x",
        "GITHUB_TOKEN": "x",
        "OPENAI_API_KEY": "x",
        "SSH_AUTH_SOCK": "/run/agent",
        "DATABASE": "postgres://me:secret@db/x",
    }
    assert scrubbed(kept | secret) == kept


def test_a_model_may_hold_a_quarter_more_than_planned_and_128_mib_at_least():
    assert [memory_limit_gib(planned) for planned in (0.0, 0.25, 0.5, 4.0)] == [0.125, 0.375, 0.625, 5.0]
