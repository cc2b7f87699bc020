"""Commands of an installation, run in a folder of their own as somebody who has nothing but the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 300.0
MARK = ("-P", "-c", "from mark.cli.main import main; main()")
"""`mark` without its script: `-P` keeps the working directory off the path."""
OTHERS = ("PYTHON", "MARK_", "AWS_", "XDG_")
"""Variables that begin so would bring something of this machine along."""


class Broken(Exception):
    """A command failed, or did not do what it is for."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A Python with MArk installed, and an empty folder, which is the home directory as well."""

    python: str
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of its commands: no credentials, no caches, the environment's scripts first."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(OTHERS)}
        path = f"{Path(self.python).parent}{os.pathsep}{kept['PATH']}"
        ours = {"PATH": path, "HOME": str(self.folder / "home"), "MARK_STATE": str(self.folder / "state")}
        return kept | ours | {"AWS_EC2_METADATA_DISABLED": "true"}

    def mark(self, *words: str, refused: str = "") -> str:
        """Output of a command of `mark`. `refused`: what it has to say on stderr, with exit status 2."""
        done = self.run([self.python, *MARK, *words])
        expected = 2 if refused else 0
        if done.returncode != expected or refused not in done.stderr:
            raise Broken(f"mark {' '.join(words)}: {_ended(done)}")
        if "--json" in words:
            json.loads(done.stdout)
        return done.stdout

    def call(self, *words: str) -> str:
        """Output of a command of the environment's Python."""
        done = self.run([self.python, *words])
        if done.returncode:
            shown = " ".join("..." if "\n" in word else word for word in words)
            raise Broken(f"python {shown}: {_ended(done)}")
        return done.stdout

    def shell(self, line: str) -> str:
        """Output of a line as a reader types it."""
        done = self.run(["/bin/bash", "-c", line])
        if done.returncode:
            raise Broken(f"{line}: {_ended(done)}")
        return done.stdout

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """A command that ran, well or not."""
        return subprocess.run(  # noqa: S603 - our own code
            command,
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )

    def gateway(self) -> str:
        """Address of the gateway of the service that is up."""
        (running,) = (self.folder / "state").glob("*/service.json")
        return str(json.loads(running.read_text(encoding="utf-8"))["gateway"])

    def end_services(self) -> None:
        """Take down what a command that broke has left up."""
        for running in (self.folder / "state").glob("*/service.json"):
            self.run([self.python, *MARK, "down", "--name", running.parent.name])


@contextmanager
def installed_here() -> Iterator[Installation]:
    """The installation of the running Python in a folder that is empty, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mark-wheel-") as folder:
        (Path(folder) / "home").mkdir()
        installation = Installation(sys.executable, Path(folder))
        try:
            yield installation
        finally:
            installation.end_services()


def _ended(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
