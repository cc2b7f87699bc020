"""A running service's folder: its settings, its logs, and a document that says where everything listens.

`mark status`, `mark load` and the others find a service through it. It is private to the user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from mark.config.settings import Settings, settings_anywhere, state_dir
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.live.gateway_start import DOCUMENT as GATEWAY
from mark.live.local.running import Running
from mark.live.local.service_lock import NAME as LOCK_NAME
from mark.live.local.service_lock import ServiceLock, lock_holder
from mark.service_spec import ServiceSpec
from mark.store.codec import SPEC

CLIENTS = "clients.json"
DOCUMENT = "service.json"
SPEC_DOCUMENT = "spec.json"
FAILURE = "failure.txt"
"""Failure of a start: a line, and those that explain it."""


class RunFolder:
    """The folder of one service."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: tuple[Path, ...] = ()

    @classmethod
    def of(cls, service: str) -> RunFolder:
        """The folder of the service of that name."""
        return cls(state_dir() / service)

    @property
    def logs(self) -> Path:
        """Folder of the processes' logs, one file each."""
        return self.path / "logs"

    @property
    def versions(self) -> Path:
        """Folder of copies of the models' files: outside its own, so that a model's user comes to its version."""
        return self.path.parent / ".versions" / self.path.name

    def create(self, settings: Settings, spec: ServiceSpec) -> None:
        """Write what its processes start from. Misconfigured where it cannot be written."""
        try:
            self._write("settings.json", settings_anywhere(settings))
            self._write(SPEC_DOCUMENT, SPEC.encode(spec).decode())
            for name in (DOCUMENT, FAILURE):
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def lock(self, service: str, *, also: str = "") -> ServiceLock:
        """Make the folder, private to the user, and lock it. Misconfigured where another process has it.

        also: what else may be done where a service is up, as the end of a sentence.
        """
        running = self.running()
        if running is not None and running.ready:
            raise Misconfigured(
                f"the service {service} is up already: process {running.pid} holds {self.path}; `mark down --name "
                f"{service}` ends it, service.name in the settings names another{also}"
            )
        try:
            while True:
                self._made = tuple(path for path in (self.logs, *self.logs.parents) if not path.exists())
                self.logs.mkdir(parents=True, exist_ok=True)
                self.path.chmod(0o700)
                lock = ServiceLock(self.path, service)
                if lock.is_in(self.path):
                    return lock
                lock.close()  # a start that was refused took the folder with it
        except OSError as error:
            raise self._refused(error) from error

    def unmake(self) -> None:
        """Remove the folders that `lock` made, for whoever holds it: nothing runs, nothing else lies in them."""
        for path in self._made:
            if path == self.path:
                (path / LOCK_NAME).unlink(missing_ok=True)
            with suppress(OSError):
                path.rmdir()

    def starting(self) -> int | None:
        """The process that holds the folder though nothing runs yet: a `mark up` that makes ready."""
        return lock_holder(self.path)

    def fail(self, reason: str, details: Sequence[str]) -> None:
        """Say why the service could not start: one line, and those that explain it. OSError on a full disk."""
        self._write(FAILURE, "\n".join((reason, *details)))

    def failure(self) -> tuple[str, ...]:
        """Those lines; none where it said nothing."""
        try:
            return tuple((self.path / FAILURE).read_text(encoding="utf-8").splitlines())
        except OSError:
            return ()

    def _refused(self, error: OSError) -> Misconfigured:
        return Misconfigured(f"cannot write {self.path}: {error.strerror}; set MARK_STATE to another folder")

    def settings(self) -> Settings:
        """The settings that the service was started with."""
        return Settings.model_validate_json((self.path / "settings.json").read_text(encoding="utf-8"))

    def write(self, running: Running) -> None:
        """Say where it stands; readers never see half of it."""
        self._write(DOCUMENT, json_text(asdict(running)))

    def running(self) -> Running | None:
        """The running service, or None: no document, or its process is gone."""
        try:
            raw = json.loads((self.path / DOCUMENT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        found = replace(Running(name="", pid=0), **{**raw, "models": tuple(raw["models"])})
        return found if is_alive(found.pid) and started_at(found.pid) == found.started else None

    def expected(self) -> Running:
        """The running service, for a process that is part of it. Misconfigured where its service is gone."""
        found = self.running()
        if found is None:
            raise Misconfigured(f"the service of {self.path} is gone")
        return found

    def spec(self) -> ServiceSpec:
        """What the service was started to serve."""
        return SPEC.decode((self.path / SPEC_DOCUMENT).read_bytes())

    def write_gateway(self, start: str) -> None:
        """Write what gateways start from, private as the service's document is. OSError on a full disk."""
        self._write(GATEWAY, start)

    def write_clients(self, directory: bytes) -> None:
        """Keep the clients and their keys' hashes beside the store, which lasts no longer than the service."""
        self._write(CLIENTS, directory.decode())

    def clients(self) -> bytes | None:
        """The clients as they were kept last; None where there never was one."""
        try:
            return (self.path / CLIENTS).read_bytes()
        except FileNotFoundError:
            return None

    def remove_document(self) -> None:
        """Remove the document: it runs no more; logs stay."""
        (self.path / DOCUMENT).unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        draft = self.path / f".{name}.{os.getpid()}"
        try:
            draft.touch(mode=0o600)
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.path / name)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise


def find_running(service: str) -> Running:
    """The service of that name, ready. Misconfigured where none runs or it is not ready yet."""
    running = find_known(service)
    if not running.ready:
        raise Misconfigured(
            f"the service {service} is still starting ({running.step}); wait until `mark up` says that it is ready"
        )
    return running


def find_known(service: str) -> Running:
    """The service of that name, ready or starting. Misconfigured where none runs, or nothing of it yet."""
    folder = RunFolder.of(service)
    running = folder.running()
    if running is not None:
        return running
    pid = folder.starting()
    if pid is not None:
        raise Misconfigured(
            f"the service {service} is still starting (process {pid} checks its settings and models); wait until "
            "`mark up` says that it is ready"
        )
    reason = next(iter(folder.failure()), "")
    failed = f" (the last start failed: {reason})" if reason else ""
    raise not_up(service, "" if _up_here() else "`mark up --detach` starts one", but=failed)


def not_up(service: str, advice: str = "", *, but: str = "") -> Misconfigured:
    """The refusal for a service that is not up here, with the names of those that are, then the advice."""
    up = _up_here()
    others = f"running here: {', '.join(up)} (--name)" if up else ""
    return Misconfigured(
        "; ".join(filter(None, (f"no service named {service} is up on this machine{but}", others, advice)))
    )


def _up_here() -> list[str]:
    return sorted(path.name for path in state_dir().glob("*") if RunFolder(path).running() is not None)


def holder_of(process: str) -> str:
    """The name under which this life of a controller's process holds the lease: its next life has another."""
    return f"{process}.{os.getpid()}"


def process_of(holder: str | None) -> str | None:
    """The process that holds the lease under that name."""
    return None if holder is None else holder.partition(".")[0]


def facts_of(pid: int) -> list[str]:
    """Fields of a process after its name, its state first (proc_pid_stat); empty where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    """True where a process of that number runs (a zombie does not)."""
    return facts_of(pid)[:1] not in ([], ["Z"])


def started_at(pid: int) -> str:
    """Start of the process of that number, as the kernel counts: a number is used again, this with it is not."""
    return "".join(facts_of(pid)[19:20])
