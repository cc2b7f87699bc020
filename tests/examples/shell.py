"""The commands of an example's README, run as its reader would, in a copy of the folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.waiting import PATIENCE_S

HOUSE = Path(__file__).parents[2]
EXAMPLES = HOUSE / "examples"
GATEWAY, SERVER_PORT = "http://127.0.0.1:8080", "8000"
"""As the READMEs have them; other programs may hold these ports while a test runs."""
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(example: str) -> tuple[str, ...]:
    """The commands of an example's README, in their order."""
    text = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    return tuple(line for block in BLOCK.findall(text) for line in block.splitlines())


class Reader:
    """Somebody who copied the examples, and types what an example's README says."""

    def __init__(self, home: Path, example: str) -> None:
        shutil.copytree(EXAMPLES, home / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        self._example = example
        self.folder = home / "examples" / example
        self._state = home / "state"
        self._port = str(free_port())
        for path in self.folder.iterdir():
            if path.suffix == ".yaml":
                path.write_text(path.read_text().replace(f":{SERVER_PORT}", f":{self._port}"))
        (home / "bin").mkdir()
        for name, words in (("python", ""), ("mark", " -P -c 'from mark.cli.main import main; main()'")):
            script = home / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
            script.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "MARK_STATE": str(self._state),
            "MARK_CACHE": str(Path(tempfile.gettempdir()) / "mark-test-engine"),
        }

    def follow(self, *, until: str | None = None) -> dict[str, str]:
        """Run every command of the README; what each printed on stdout. Ends what was started, come what may.

        until: how the first command begins that is not run.
        """
        said = {}
        try:
            for line in commands(self._example):
                if until is not None and line.startswith(until):
                    break
                said[line] = self.run(line)
        finally:
            self._tidy()
        return said

    def run(self, line: str) -> str:
        """Run a command; what it printed on stdout."""
        done = subprocess.run(  # noqa: S603 - our own README
            ["/bin/bash", "-c", self._here(line)],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
        return done.stdout

    def _here(self, line: str) -> str:
        """The command with the ports of this run."""
        running = next(self._services(), None)
        if running is not None:
            gateway = re.search(r'"gateway": "([^"]+)"', running.read_text())
            assert gateway is not None
            line = line.replace(GATEWAY, gateway[1])
        return line.replace(f":{SERVER_PORT}", f":{self._port}").replace(f" {SERVER_PORT} ", f" {self._port} ")

    def _services(self) -> Iterator[Path]:
        return self._state.glob("*/service.json")

    def _tidy(self) -> None:
        if next(self._services(), None) is not None and (self.folder / "mark.yaml").is_file():
            self.run("mark down --config mark.yaml")
        if (self.folder / "server.pid").is_file():
            self.run("kill $(cat server.pid) 2> /dev/null || true")


def free_port() -> int:
    """A port that nobody listens on."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
