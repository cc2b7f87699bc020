"""Tools that must not share our environment, each in a venv of its own below out/tools (ignored)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[1] / "out" / "tools"
WANTED = {
    "ministack": "ministack==1.5.33",  # pins an older botocore than ours
    "checkov": "checkov==3.3.30",  # hundreds of packages
}


def tool(name: str) -> Path:
    """The folder of a tool's commands; installed when it is first asked for, which takes half a minute."""
    venv = TOOLS / name
    if not (venv / ".ready").is_file():
        print(f"installing {WANTED[name]} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)  # noqa: S603 - our own interpreter
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, WANTED[name]], check=True)  # noqa: S603 - as above
        (venv / ".ready").touch()
    return venv / "bin"
