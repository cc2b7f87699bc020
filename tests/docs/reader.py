"""A reader of a page: saves its files, types its commands in one shell, and tidies up."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import yaml
from moto.server import ThreadedMotoServer

from mark.config.settings import load_settings
from scripts.own_venvs import tool
from tests.docs.pages import COMMANDS, HOUSE, Block
from tests.end_to_end.rig import Rig
from tests.examples.shell import free_port

COMMAND_S = 1200.0
PRIVATE = ("AWS_", "MARK_", "XDG_", "PYTHONPATH")
"""Variables that begin so would bring something of this machine along."""
PLACES = {8080: "gateway", 8090: "status_page", 9000: "grpc"}
"""Ports as the pages have them; on this machine other programs may hold them."""
ADDRESS = re.compile(rf"(?:127\.0\.0\.1|localhost):({'|'.join(map(str, PLACES))})\b")
GRPC = re.compile(r"\bgrpc_port: 9000\b")


class Shell:
    """One bash for all of a page's commands: what they set and where they go stays."""

    def __init__(self, folder: Path, home: Path, environment: dict[str, str]) -> None:
        self._script, self._said = home / "command.sh", home / "said.txt"
        self._process = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def type(self, command: str) -> tuple[int, str]:
        """The exit status of a command, and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._script.write_text(f"{command}\n", encoding="utf-8")
        script, said = shlex.quote(str(self._script)), shlex.quote(str(self._said))
        self._process.stdin.write(f"source {script} < /dev/null > {said} 2>&1; echo $? $PWD\n")
        self._process.stdin.flush()
        limit = Timer(COMMAND_S, self.end)
        limit.start()
        try:
            status = self._process.stdout.readline().partition(" ")[0]
        finally:
            limit.cancel()
        return int(status or -signal.SIGKILL), self._said.read_text(encoding="utf-8", errors="replace")

    @property
    def place(self) -> Path:
        """Where a reader stands now."""
        return Path(os.readlink(f"/proc/{self._process.pid}/cwd"))

    def end(self) -> None:
        """End the shell, and what runs in it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


class Reader:
    """Somebody who does in a folder what the page says."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.folder = home / "here"
        for name in ("here", "user", "aside"):
            (home / name).mkdir()
        self._rig = Rig(home, "mark")
        self._grpc = free_port()
        self._words: dict[str, str] = {}
        self._aws: ThreadedMotoServer | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
        programs = (str(Path(sys.executable).parent), str(tool("awscli")), kept["PATH"])
        self._shell = Shell(
            self.folder,
            home / "aside",
            kept
            | {
                "PATH": os.pathsep.join(programs),
                "HOME": str(home / "user"),
                "PYTHONPATH": str(HOUSE),
                "MARK_STATE": str(home / "state"),
                "MARK_CACHE": str(Path(tempfile.gettempdir()) / "mark-test-engine"),
                "AWS_EC2_METADATA_DISABLED": "true",
                "COLUMNS": "120",
            },
        )

    def follow(self, block: Block) -> None:
        """Do what the block says."""
        if block.left_out is not None or (block.language == "text" and block.file is None):
            return
        text = self._here(block.text)
        if block.language == "here":
            word, _, words = block.text.partition("=")
            self._words[word] = words
        elif block.language == "aws":
            self._type(self._account(), block)
        elif block.file is not None:
            self._save(block.file, text)
            if block.language == "yaml":
                load_settings(self._shell.place / block.file, {})
        elif block.language == "yaml":
            self._set(block.comments.get("into"), yaml.safe_load(text))
        elif block.language == "python":
            self._save("snippet.py", text, self._home / "aside")
            self._type(f"python - < {shlex.quote(str(self._home / 'aside' / 'snippet.py'))}", block)
        elif "goes on" in block.comments:
            beside = "\n".join(commands(block))
            self._type(f"{{\n{self._here(beside)}\n}} > /dev/null 2>&1 &", block)
        else:
            for command in commands(block):
                self._type(self._here(command), block)

    def _here(self, text: str) -> str:
        """The text with this run's words for placeholders, and its ports."""
        for word, words in self._words.items():
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w])", lambda _, words=words: words, text)
        running = [json.loads(path.read_text()) for path in (self._home / "state").glob("*/service.json")]
        if running:
            text = ADDRESS.sub(lambda found: _netloc(running[-1][PLACES[int(found[1])]], found[0]), text)
        return GRPC.sub(f"grpc_port: {self._grpc}", text)

    def _account(self) -> str:
        """Start an emulated AWS; the command that makes the shell use it."""
        self._aws = ThreadedMotoServer(port=0, verbose=False)
        self._aws.start()
        host, port = self._aws.get_host_and_port()
        given = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
        given |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return f"export {' '.join(f'{name}={value}' for name, value in given.items())}"

    def _type(self, command: str, block: Block) -> None:
        status, said = self._shell.type(command)
        assert status == 0, f"line {block.line}: {command}\nexit status {status}\n{said[-3000:]}"

    def _save(self, name: str, text: str, folder: Path | None = None) -> None:
        path = (folder or self._shell.place) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _set(self, name: str | None, more: Any) -> None:
        """Add settings to a file, or load them as one. A list is models to serve."""
        tree = {"service": {"serve": more}} if isinstance(more, list) else more
        path = (self._shell.place / name) if name else self._home / "aside" / "mark.yaml"
        before = yaml.safe_load(path.read_text(encoding="utf-8")) if name else {}
        path.write_text(yaml.safe_dump(merged(before, tree), sort_keys=False), encoding="utf-8")
        load_settings(path, {})

    def end(self) -> None:
        """Take down services that the page leaves up, and end everything else by its number."""
        for running in (self._home / "state").glob("*/service.json"):
            self._shell.type(f"mark down --name {running.parent.name}")
        self._shell.end()
        for pid in self._rig.processes():
            os.kill(pid, signal.SIGKILL)
        if self._aws is not None:
            self._aws.stop()


@contextmanager
def reading(home: Path) -> Iterator[Reader]:
    """A reader in an empty folder."""
    reader = Reader(home)
    try:
        yield reader
    finally:
        reader.end()


def commands(block: Block) -> Iterator[str]:
    """The block's commands, each whole: in a console those behind `$ `, without what they print."""
    begun, goes_on = "", False
    for line in block.text.splitlines():
        if block.language == "console":
            if line.startswith("$ "):
                line = line[2:]  # noqa: PLW2901 - the prompt is no part of it
            elif not goes_on:
                continue
        begun = f"{begun}\n{line}" if begun else line
        goes_on = line.endswith("\\") or _is_open(begun)
        if not goes_on:
            if begun.strip() and not begun.lstrip().startswith("#"):
                yield begun
            begun = ""
    if begun:
        raise ValueError(f"line {block.line}: a command does not end: {begun}")


def _is_open(command: str) -> bool:
    """True where a quotation or a compound command goes on in the next line, as bash itself says."""
    done = subprocess.run(  # noqa: S603 - it reads, and runs nothing
        ["/bin/bash", "-n", "-c", command], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    )
    return "unexpected EOF" in done.stderr or "unexpected end of file" in done.stderr


def merged(before: Any, more: Any) -> Any:
    """Settings with more of them: mappings by key, models to serve by name, everything else replaced."""
    if isinstance(before, dict) and isinstance(more, dict):
        return before | {key: merged(before.get(key), value) for key, value in more.items()}
    if (
        isinstance(before, list)
        and isinstance(more, list)
        and all(isinstance(o, dict) and "model" in o for o in more)
    ):
        named = {one["model"]: one for one in before}
        return list((named | {one["model"]: merged(named.get(one["model"]), one) for one in more}).values())
    return more


def _netloc(place: str | None, other: str) -> str:
    return re.sub(r"^\w+://", "", place).rstrip("/") if place else other


__all__ = ["COMMANDS", "Reader", "commands", "merged", "reading"]
