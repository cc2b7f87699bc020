"""Tools that must not share our environment, each in a folder of its own below out/tools (ignored)."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TOOLS = Path(__file__).parents[1] / "out" / "tools"
WANTED = {
    "cosmic-ray": ("cosmic-ray==8.7.0",),  # SQLAlchemy, aiohttp and others
    "ministack": ("ministack==1.5.33", "boto3==1.43.106"),  # another botocore than ours; Lambda has boto3
    "checkov": ("checkov==3.3.30",),  # hundreds of packages
    "awscli": ("awscli==1.46.3",),  # another botocore
}
NODE_WANTED = {"cdk": "aws-cdk@2.1148.1"}
"""npm's `latest` of aws-cdk is an old build that cannot read what the CDK library of today writes."""


def tool(name: str) -> Path:
    """The folder of a Python tool's commands; installed when it is first asked for, which takes half a minute."""
    venv, wanted = TOOLS / name, WANTED[name]
    with _alone(name):
        if not _is_ready(venv, wanted):
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)  # noqa: S603 - our interpreter
            pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, *wanted], check=True)  # noqa: S603 - as above
            _now_ready(venv, wanted)
    return venv / "bin"


def node_tool(name: str) -> Path:
    """The folder of a Node.js tool's commands; installed when it is first asked for."""
    folder, wanted = TOOLS / name, NODE_WANTED[name]
    with _alone(name):
        if not _is_ready(folder, (wanted,)):
            folder.mkdir(parents=True, exist_ok=True)
            npm = [shutil.which("npm") or "npm", "install", "--silent", "--no-audit", "--no-fund"]
            subprocess.run([*npm, "--prefix", str(folder), wanted], check=True)  # noqa: S603 - one pinned package
            _now_ready(folder, (wanted,))
    return folder / "node_modules" / ".bin"


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process at a time: tests that run beside each other ask for the same tool."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_ready(folder: Path, wanted: Sequence[str]) -> bool:
    """True where exactly this was installed there; prints a line where it was not."""
    marker = folder / ".ready"
    if marker.is_file() and marker.read_text(encoding="utf-8") == " ".join(wanted):
        return True
    print(f"installing {' '.join(wanted)} into {folder}", file=sys.stderr)
    return False


def _now_ready(folder: Path, wanted: Sequence[str]) -> None:
    (folder / ".ready").write_text(" ".join(wanted), encoding="utf-8")
