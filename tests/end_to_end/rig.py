"""A live service under test: brought up by the public command in its own folder, and ended whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mark.controller.journal import Tick, read_journal
from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.domain.fleet.orders import Launch
from mark.live.local.clock_control import set_clock
from mark.live.local.emulator_client import EmulatedControls
from mark.steady_time import steady_time
from mark.store.connect import connect
from mark.store.service import ServiceStore
from tests.end_to_end.grants import note
from tests.waiting import PATIENCE_S

MARK = str(Path(sys.executable).with_name("mark"))
UP_S, COMMAND_S = 2 * PATIENCE_S, PATIENCE_S
"""A service or a command that is not done within this hangs, even on a busy machine."""
LEAST_IN_TIME = 0.5
"""However busy the machine is: a service that answers less in time has lost its way."""

LIGHT = """
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
    - model: inception-v3
      market: spot
      offerings: {{types: [c5.large, c5.xlarge, c5.2xlarge]}}
      expected_rps: 30
"""
"""One emulated model on spot with standbys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command said, and how long it took."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        assert self.status == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass(slots=True)
class Rig:
    """A folder for services' states, and the `mark` command that keeps them there."""

    home: Path
    name: str = "mark"
    seen: set[int] = field(default_factory=set)

    @property
    def environment(self) -> dict[str, str]:
        cache = Path(tempfile.gettempdir()) / "mark-test-engine"
        return {**os.environ, "MARK_STATE": str(self.home / "state"), "MARK_CACHE": str(cache)}

    @property
    def folder(self) -> Path:
        return self.home / "state" / self.name

    # Commands.

    def start(self, *arguments: str, command: tuple[str, ...] = (MARK,)) -> subprocess.Popen[str]:
        """A command that goes on beside the test, as in a terminal's foreground: a shell's `&` ignores Ctrl-C."""
        return subprocess.Popen(  # noqa: S603 - our own command
            [*command, *arguments],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_hears_ctrl_c,  # noqa: PLW1509 - it makes one call into the kernel
        )

    def mark(self, *arguments: str, timeout_s: float = COMMAND_S) -> Said:
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Said(status=process.returncode, out=out, err=err)

    def ask(self, *arguments: str) -> dict[str, Any]:
        """The document of a command with --json, of this service."""
        return self.mark(*arguments, "--name", self.name, "--json").document

    def config(self, text: str) -> Path:
        """A settings file; its world is ideal: what a test does not ask for is not refused."""
        path = self.home / f"{self.name}.yaml"
        path.write_text(f"simulate: {{world: ideal}}\n{text}", encoding="utf-8")
        return path

    def up(self, text: str, *arguments: str) -> dict[str, Any]:
        return self.mark(
            "up", "--config", str(self.config(text)), "--detach", "--json", *arguments, timeout_s=UP_S
        ).document

    # What runs.

    @property
    def running(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "service.json").read_text(encoding="utf-8"))
        return found

    @property
    def store(self) -> ServiceStore:
        return ServiceStore(connect(self.running["store"]), self.name)

    @property
    def controls(self) -> EmulatedControls:
        return EmulatedControls(self.running["aws_endpoint"], self.running["aws_secret_access_key"])

    def run_at(self, speed: float) -> None:
        """Let the service's clock run so many times as fast as the wall, from where it is."""
        wall = steady_time()
        anchor = ClockAnchor(wall_at=wall, service_at=self.store.clock().service_time(wall), speed=speed)
        set_clock(self.store, self.controls, anchor)

    def lose_store(self) -> None:
        """Kill the store when its files are gone: it starts again without data."""
        folder = next(self.home.rglob("redis.sock")).parent
        for path in folder.rglob("*"):
            if path.suffix in (".aof", ".rdb", ".manifest"):
                path.unlink()
        os.kill(self.running["processes"]["store"], signal.SIGKILL)

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """What the emulated AWS holds, in these states."""
        rows = self.controls.state()["instances"]
        return [row for row in rows if row["state"] in states or not states]

    def ticks(self, model: str) -> list[Tick]:
        return list(read_journal(self.store.journal_lines(model))[1])

    def processes(self) -> set[int]:
        """Processes that have to do with this folder: by their command, environment or open files."""
        return {pid for pid in _numbers() if pid != os.getpid() and _touches(pid, str(self.home))}

    def down(self) -> Said:
        """End the service by the command; nothing of it may be left, and it called no more than is granted."""
        self.judge()
        said = self.mark("down", "--name", self.name)
        self.assert_gone()
        return said

    def judge(self) -> None:
        """The service that runs called no more than is granted; its processes are remembered."""
        self.seen |= self.processes()
        with suppress(OSError, RetryLater):  # it is down already, or its AWS was killed
            state = self.controls.state()
            assert state["callers"]["controller"]
            assert "" not in state["callers"]
            assert state["permissions"]["refused"] == {}
            note(state["permissions"]["used"])

    def assert_gone(self) -> None:
        """No process that ever was this service's runs."""
        home = str(self.home)
        eventually(lambda: not (self.processes() | {pid for pid in self.seen if _touches(pid, home)}))
        assert not (self.folder / "service.json").exists()

    def end(self) -> None:
        """End what is left, whatever the test did; used when it is over."""
        if self.processes():
            self.mark("down", "--name", self.name)
        left = {pid: _described(pid) for pid in self.processes()}
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"left behind: {left}"


@contextmanager
def rig(home: Path, name: str) -> Iterator[Rig]:
    """A rig whose processes have ended when it is over."""
    made = Rig(home, name)
    try:
        yield made
    finally:
        made.end()


def _hears_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def eventually(check: Callable[[], object], *, within_s: float = PATIENCE_S, each_s: float = 0.05) -> None:
    """`check` must come to hold within so many seconds."""
    until = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < until, f"not within {within_s:g} s"
        time.sleep(each_s)


@contextmanager
def core_waits() -> Iterator[list[float]]:
    """Seconds of the body in which a process of the machine waited for a core; 0 where Linux does not count."""
    found: list[float] = []
    pressure = Path("/proc/pressure/cpu")

    def so_far_s() -> float:
        return int(pressure.read_text().split("total=", 1)[1].split()[0]) / 1e6 if pressure.exists() else 0.0

    before = so_far_s()
    yield found
    found.append(so_far_s() - before)


def assert_in_time(load: Mapping[str, Any], share: float, *, rate: float) -> None:
    """As many as promised are in time, but for those that came while the machine had too few cores."""
    late = (1 - load["attained"]) * load["sent"]
    assert load["attained"] >= LEAST_IN_TIME, str(load)
    assert late <= (1 - share) * load["sent"] + rate * load["waited_s"], str(load)


def fetch(
    url: str,
    body: object = None,
    *,
    token: str | None = None,
    timeout_s: float = PATIENCE_S,
    more: Mapping[str, str] | None = None,
) -> tuple[int, bytes, dict[str, str]]:
    """GET, or POST of a JSON body: status, body and headers by lower-case name; errors are answers too.

    more: further headers.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", **(more or {})}
    if token:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - our own service
    opener = urllib.request.build_opener(_NoErrors)
    with opener.open(request, timeout=timeout_s) as reply:
        return reply.status, reply.read(), {key.lower(): value for key, value in reply.headers.items()}


class _NoErrors(urllib.request.HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        return response


def launched_by_token(ticks: list[Tick]) -> dict[str, int]:
    """How many instances each launch of the journal asked for."""
    return {order.token: order.count for tick in ticks for order in tick.orders if isinstance(order, Launch)}


def _numbers() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _described(pid: int) -> str:
    """Its command, and what each of its threads waits for in the kernel."""
    proc = Path(f"/proc/{pid}")
    try:
        waits = [
            f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}"
            for task in proc.glob("task/*")
        ]
        return f"{(proc / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()} {waits}"
    except OSError:
        return "it ended meanwhile"


def _touches(pid: int, home: str) -> bool:
    proc = Path(f"/proc/{pid}")
    try:
        if (proc / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z":
            return False
        told = (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
        if home.encode() in told:
            return True
        return any(home in os.readlink(link) for link in (proc / "fd").iterdir())
    except OSError:
        return False  # it ended while it was looked at, or is another user's
