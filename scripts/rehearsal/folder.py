"""Rehearsal of a rollout: a folder with settings, an emulated AWS, and the commands that are run there."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import yaml

LIMIT_S = 300
MARK = "from mark.cli.main import main; main()"


class Failed(Exception):
    """A step did not end as it should."""


class RehearsalFolder:
    """A folder with `mark.yaml`, and an AWS. `config`, where given, is written to the file before each command."""

    def __init__(
        self, folder: Path, aws: Mapping[str, str], *, service: str, config: dict[str, Any] | None = None
    ) -> None:
        self.folder, self.service, self.config = folder, service, config
        self.aws = aws
        folder.mkdir(parents=True, exist_ok=True)
        # a service of that name may be up on this machine
        self.environment = {**os.environ, **aws, "MARK_STATE": str(folder / "state")}

    def client(self, service: str) -> Any:
        """A boto3 client of that AWS."""
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.aws["AWS_ENDPOINT_URL"],
            region_name=self.aws["AWS_REGION"],
            aws_access_key_id=self.aws["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.aws["AWS_SECRET_ACCESS_KEY"],
        )

    def start(self, *words: str, stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        """Start a command of `mark` with the settings as they are now; its notes among what it prints, or not."""
        if self.config is not None:
            (self.folder / "mark.yaml").write_text(yaml.safe_dump(self.config), encoding="utf-8")
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-c", MARK, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def run(self, *words: str, expect: int = 0) -> str:
        """Run a command of `mark` with this folder's settings; what it said. Failed where it ends otherwise."""
        return self.bare(*words, "--config", "mark.yaml", expect=expect)

    def bare(self, *words: str, expect: int = 0) -> str:
        """The same for a command that takes no settings."""
        return self._ended(self.start(*words), words, expect)

    def document(self, *words: str, expect: int = 0) -> Any:
        """Run a command that prints JSON; its notes (of progress, on a busy machine) are no part of it."""
        return json.loads(self._ended(self.start(*words, "--json", stderr=subprocess.PIPE), words, expect))

    def _ended(self, process: subprocess.Popen[str], words: Sequence[str], expect: int) -> str:
        said, notes = process.communicate(timeout=LIMIT_S)
        if process.returncode != expect:
            raise Failed(
                f"mark {' '.join(words)} ended with {process.returncode}, not {expect}:\n{said}{notes or ''}"
            )
        return said

    def call(self, *words: str, folder: Path | None = None, expect: int = 0, **more: str) -> str:
        """Run any other command; what it said. `more`: variables."""
        done = subprocess.run(  # noqa: S603 - tools of own_venvs and our own modules
            words,
            cwd=folder or self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != expect:
            raise Failed(f"{' '.join(words)} ended with {done.returncode}, not {expect}:\n{done.stdout[-4000:]}")
        return done.stdout

    def stacks(self) -> dict[str, str]:
        """The service's stacks that are there, with their status."""
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        return {
            s["StackName"]: s["StackStatus"]
            for s in found
            if s["StackName"].startswith(f"mark-{self.service}-") and s["StackStatus"] != "DELETE_COMPLETE"
        }

    def template(self, stack: str) -> Any:
        """The template that a stack was last made from."""
        return self.client("cloudformation").get_template(StackName=stack)["TemplateBody"]

    def node_script(self, stack: str) -> str:
        """The script of a node's first boot, without what CloudFormation fills in."""
        template = self.template(stack)
        text = template if isinstance(template, str) else json.dumps(template)
        packed = re.search(r"<<< (\S+) \| gunzip", text)
        check(packed is not None, f"{stack} has a start script")
        assert packed is not None
        return gzip.decompress(base64.b64decode(packed[1])).decode()


def read_until(process: subprocess.Popen[str], pattern: str) -> None:
    """Read what it says until a line begins so."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if re.search(pattern, line):
            return
    raise Failed(f"it ended before {pattern}:\n{''.join(said)}")


def check(holds: bool, what: str) -> None:
    """Failed where it does not hold."""
    if not holds:
        raise Failed(f"expected: {what}")
