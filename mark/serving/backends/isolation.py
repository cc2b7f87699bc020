"""What keeps models that share an instance apart: environment, memory, scratch folder, user of their processes.

Memory is judged by what the kernel cannot take back: anonymous and shared pages, not pages of mapped files, and
not addresses. A limit on addresses (RLIMIT_AS, RLIMIT_DATA) would refuse what torch and CUDA reserve and never
touch, and weights that a model maps; and a refusal in the middle of a call is an answer of 500 without an end. The
kernel, where memory runs out first, is told to end a model's process before the agent.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import re
import stat
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mark.domain.errors import Misconfigured

USERS = range(20_000, 21_000)
"""User ids of models: above those that systems give to people and services. The firewall of instances in AWS names
the range (infra/user_data.py)."""
MODEL_USER = "MARK_MODEL_USER"
"""The user that an agent which root starts becomes where the model runs in its own process. On a shared instance,
where it stays what it is, no model runs as root then."""
VERSIONS_USERS, INSTALLED_USERS = USERS[:500], USERS[500:]
"""Of models whose files are copied by version, and of those that are installed beside MArk."""
VERSIONS = (".versions", "versions")
"""Names of the folder that holds those of all versions of a machine: of a live service here, and in AWS."""
HEADROOM, HEADROOM_GIB = 1.25, 0.125
"""A model may take a quarter more than it was planned with, and 128 MiB at least: allocators hold on to what was
freed. One model's excess stays within what plans leave free (`sharing.RESERVED_GIB`) up to 4 GiB of memory."""
MEMORY_LOOK_S, CHILDREN_LOOK_S = 0.25, 1.0
ENDED_FIRST = 1000
"""`oom_score_adj` of what the kernel ends before anything else."""
_SECRET = re.compile(
    r"^(AWS|MARK)_|SECRET|TOKEN|PASSW|CREDENTIAL|PRIVATE|(^|_)(API|ACCESS)_?KEY|^(SSH|GPG|DBUS|XDG_RUNTIME)_",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"://[^/\s]*:[^/\s]*@")
_KIB_PER_GIB = 1024.0 * 1024.0


class Isolation(NamedTuple):
    """What one model's processes may be and take."""

    #: Of each process; None where memory is counted on an accelerator.
    memory_gib: float | None = None
    #: The user that they run as, and its only group; None for the agent's.
    user: int | None = None


def memory_limit_gib(planned_gib: float) -> float:
    """Memory beyond which a model's process is ended."""
    return max(HEADROOM * planned_gib, planned_gib + HEADROOM_GIB)


def held_gib(processes: Iterable[int]) -> float:
    """Memory of processes that the kernel cannot take back; what they share counts for each of them."""
    return sum(_sum_gib(f"/proc/{one}/status", ("RssAnon:", "RssShmem:", "VmSwap:")) for one in processes)


def held_together_gib(processes: Iterable[int]) -> float:
    """The same, and what they share since a fork counts once: slower, and only where the kernel lets us look."""
    found = [_sum_gib(f"/proc/{one}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")) for one in processes]
    return sum(found) if all(found) else held_gib(processes)


def _sum_gib(file: str, names: tuple[str, ...]) -> float:
    with suppress(OSError):
        lines = Path(file).read_text(encoding="ascii", errors="replace").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(names)) / _KIB_PER_GIB
    return 0.0


class Sessions:
    """Processes by their session: what a model's process starts is in its own. One look counts for all models."""

    def __init__(self) -> None:
        self._looked_at = -math.inf
        self._members: dict[int, list[int]] = {}

    def of(self, leader: int, now: float) -> tuple[int, ...]:
        """The leader, and the processes that it started, as of a second ago at most."""
        if now - self._looked_at >= CHILDREN_LOOK_S:
            self._looked_at, self._members = now, _by_session()
        return (leader, *(one for one in self._members.get(leader, ()) if one != leader))


def _by_session() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            session = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[3])
            found.setdefault(session, []).append(int(folder.name))
    return found


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without credentials: those of the service and of AWS, and what looks like any other."""
    return {
        name: value
        for name, value in environment.items()
        if not _SECRET.search(name) and not _PASSWORD_IN_URL.search(value)
    }


def end_first(process: int) -> None:
    """Have the kernel end this process before the agent where memory runs out."""
    with suppress(OSError):
        Path(f"/proc/{process}/oom_score_adj").write_text(f"{ENDED_FIRST}\n", encoding="ascii")


def become(user: int) -> None:
    """Be this user from now on, in no group but its own: root's capabilities are gone with it."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def user_of(folder: Path) -> int:
    """The user of a version's folder, which nobody else reads but its owner, root. Errors: Misconfigured.

    It is the folder's group, so that all agents of a machine, and one that is started again, find the same. A
    folder without one gets the first that no other version has.
    """
    root = next((parent for parent in folder.parents if parent.name in VERSIONS), folder.parent)
    try:
        lock = os.open(root, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            user = folder.stat().st_gid
            if user not in VERSIONS_USERS:
                taken = {one.lstat().st_gid for depth in ("*", "*/*", "*/*/*") for one in root.glob(depth)}
                user = min(set(VERSIONS_USERS) - taken, default=0)
                if not user:
                    raise Misconfigured(f"{root} holds too many versions for each to have a user of its own")
                os.chown(folder, -1, user)
            folder.chmod(0o750)
            return user
        finally:
            os.close(lock)
    except OSError as error:
        raise Misconfigured(f"cannot keep {folder} from other models: {error.strerror or error}") from error


def user_of_installed(name: str, others: Collection[int]) -> int:
    """The user of a model without a folder of its own, by its name; others: those of its neighbours."""
    begin = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % len(INSTALLED_USERS)
    turned: tuple[int, ...] = (*INSTALLED_USERS[begin:], *INSTALLED_USERS[:begin])
    return next((one for one in turned if one not in others), turned[0])


def unreadable_by_others(folders: Iterable[Path]) -> Path | None:
    """The first of these that a user without rights of its own cannot read or come to; None where all can be."""
    for folder in folders:
        real = folder.resolve()
        if real.exists() and not all(
            path.stat().st_mode & bits == bits
            for path, bits in [
                (real, stat.S_IROTH | (stat.S_IXOTH if real.is_dir() else 0)),
                *((parent, stat.S_IXOTH) for parent in real.parents),
            ]
        ):
            return folder
    return None


def needed_folders(code: Iterable[Path]) -> tuple[Path, ...]:
    """What a model's process reads: its code, and what Python imports from."""
    found = [Path.cwd(), *code, *(Path(path) for path in sys.path if path), Path(sys.executable)]
    return tuple(dict.fromkeys(found))
