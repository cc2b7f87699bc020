"""What keeps models that share an instance apart: environment, memory, scratch folder, user of their processes.

Memory is judged by what the kernel cannot take back: anonymous and shared pages, not pages of mapped files, and
not addresses. A limit on addresses (RLIMIT_AS, RLIMIT_DATA) would refuse what torch and CUDA reserve and never
touch, and weights that a model maps; and a refusal in the middle of a call is an answer of 500 without an end. The
kernel, where memory runs out first, is told to end a model's process before the agent.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FIRST_USER = 20_000
"""User ids of models count from here: above those that systems give to people and services."""
HEADROOM, HEADROOM_GIB = 1.25, 0.125
"""A model may take a quarter more than it was planned with, and 128 MiB at least: allocators hold on to what was
freed. One model's excess stays within what plans leave free (`sharing.RESERVED_GIB`) up to 4 GiB of memory."""
MEMORY_LOOK_S = 0.25
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
    #: The user that they run as; None for the agent's.
    user: int | None = None


def memory_limit_gib(planned_gib: float) -> float:
    """Memory beyond which a model's process is ended."""
    return max(HEADROOM * planned_gib, planned_gib + HEADROOM_GIB)


def held_gib(process: int) -> float:
    """Memory of a process that the kernel cannot take back; 0 for one that is gone, or where it is not told."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
        told = [line.split() for line in lines if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:"))]
        return sum(int(fields[1]) for fields in told) / _KIB_PER_GIB
    return 0.0


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
    """Be this user from now on, in no group but its own."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


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
