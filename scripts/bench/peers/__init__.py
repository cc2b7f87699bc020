"""Other model servers, to compare with: in an environment of their own, which is made where it is missing.

They never enter the project's own environment. The folder is handed in, `--peers DIR`; installing takes a minute
or two and 1.5 GB, and is given up with a reason after `INSTALL_WITHIN_S`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ("torch", "mlserver==1.7.1", "litserve==0.2.19")
INSTALL_WITHIN_S = 300.0
DONE = "installed"
MAX_BATCH, MAX_WAIT_S = 32, 0.002
MLSERVER, LITSERVE = "mlserver", "litserve"


class NoPeers(Exception):
    """They cannot be installed here; the text says why."""


def peers_python(folder: Path) -> Path:
    """The interpreter of the peers' environment, installed first if need be. Errors: NoPeers."""
    home = folder.absolute()
    python = home / "bin" / "python"
    done = home / DONE
    if done.is_file() and done.read_text() == "\n".join(REQUIREMENTS):
        return python
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *REQUIREMENTS]
    try:
        for command in ([sys.executable, "-m", "venv", str(home)], install):
            subprocess.run(  # noqa: S603 - our own interpreter
                command, check=True, capture_output=True, text=True, timeout=INSTALL_WITHIN_S
            )
    except subprocess.TimeoutExpired as error:
        raise NoPeers(f"installing took more than {INSTALL_WITHIN_S:g} s") from error
    except (OSError, subprocess.CalledProcessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise NoPeers(f"not installable: {lines[-1]:.200}") from error
    done.write_text("\n".join(REQUIREMENTS))
    return python


def start_peer(
    python: Path, peer: str, port: int, *, prefix: tuple[str, ...] = (), **popen: Any
) -> subprocess.Popen[bytes]:
    """A peer that serves the digits network on `port` of the loopback. prefix: `taskset` and the like."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | popen
    return subprocess.Popen(  # noqa: S603
        [*prefix, str(python), "-m", f"scripts.bench.peers.{peer}_digits", str(port)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
        **quiet,
    )
