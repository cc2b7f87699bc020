"""Outputs shown in README are those of its commands: `python -m scripts.docs --printed` runs them.

A block that is printed follows the commands that print it, behind a comment with a digest of both. The digest
tells whether somebody changed a command, or the text, by hand.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PATTERN = re.compile(
    r"```console\n(?P<commands>(?:\$ [^\n]*\n)+)```\n\n"
    r"<!-- Printed by the commands above: `make docs`\. (?P<digest>[0-9a-f]{16}|none) -->\n"
    r"```text\n(?P<text>.*?)```",
    re.DOTALL,
)
SHOWN = "simulate"
"""Of the commands above a block it is this one's output; those before it make what it reads."""
RUN = "import sys; from mark.cli.main import main; main(sys.argv[1:])"


def commands_of(block: str) -> list[list[str]]:
    """The commands of a console block, without their comments, up to the one whose output is shown."""
    lines = [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]
    last = next(number for number, line in enumerate(lines) if line[:2] == ["mark", SHOWN])
    return lines[: last + 1]


def printed_by(commands: Sequence[Sequence[str]]) -> str:
    """Output of the last of these commands, run one after another in an empty folder."""
    output = ""
    with tempfile.TemporaryDirectory(prefix="mark-printed-") as folder:
        for command in commands:
            assert command[0] == "mark", command
            done = subprocess.run(  # noqa: S603 - our own command
                [sys.executable, "-P", "-c", RUN, *command[1:]],
                cwd=folder,
                env={**os.environ, "COLUMNS": "100"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            output = done.stdout
    return "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())


def digest_of(commands: Sequence[Sequence[str]], text: str) -> str:
    """Of commands and of what they printed."""
    return hashlib.sha256(f"{[list(command) for command in commands]}\n{text}".encode()).hexdigest()[:16]


def with_printed(page: str) -> str:
    """The page, each of its printed blocks made anew."""

    def anew(found: re.Match[str]) -> str:
        commands = commands_of(found["commands"])
        text = printed_by(commands)
        return (
            f"```console\n{found['commands']}```\n\n"
            f"<!-- Printed by the commands above: `make docs`. {digest_of(commands, text)} -->\n"
            f"```text\n{text}```"
        )

    return PATTERN.sub(anew, page)


def rewrite(path: Path) -> None:
    """Rewrite a page's printed blocks."""
    path.write_text(with_printed(path.read_text(encoding="utf-8")), encoding="utf-8")
