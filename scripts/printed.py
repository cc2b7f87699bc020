"""Outputs shown in README are those of its commands: `python -m scripts.docs --printed` runs them.

A block that is printed follows the commands that print it, behind a comment with a digest of both. The digest
tells whether somebody changed a command, or the text, by hand. The picture of the report that these commands write
has the same digest behind it.
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

from PIL import Image

PATTERN = re.compile(
    r"```console\n(?P<commands>(?:\$ [^\n]*\n)+)```\n\n"
    r"<!-- Printed by the commands above: `make docs`\. (?P<digest>[0-9a-f]{16}|none) -->\n"
    r"```text\n(?P<text>.*?)```",
    re.DOTALL,
)
PICTURE = re.compile(r"(?P<image>!\[[^]]*\]\((?P<path>[^)]*)\))<!-- of (?P<digest>[0-9a-f]{16}|none) -->")
"""A picture of the report of the block with this digest."""
REPORT = Path("run", "report.html")
"""The report of a shown command, in its folder."""
SHOWN = "simulate"
"""Of the commands above a block it is this one's output; those before it make what it reads."""
RUN = "import sys; from mark.cli.main import main; main(sys.argv[1:])"


def commands_of(block: str) -> list[list[str]]:
    """The commands of a console block, without their comments, up to the one whose output is shown."""
    lines = [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]
    last = next(number for number, line in enumerate(lines) if line[:2] == ["mark", SHOWN])
    return lines[: last + 1]


def printed_by(commands: Sequence[Sequence[str]], picture: Path | None = None) -> str:
    """Output of the last of these commands, run one after another in an empty folder.

    picture: where the top of its report is drawn.
    """
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
        if picture is not None:
            _draw(Path(folder) / REPORT, picture)
    return "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())


def digest_of(commands: Sequence[Sequence[str]], text: str) -> str:
    """Of commands and of what they printed."""
    return hashlib.sha256(f"{[list(command) for command in commands]}\n{text}".encode()).hexdigest()[:16]


def with_printed(page: str, folder: Path) -> str:
    """The page, each of its printed blocks made anew, and the picture of the first one, in this folder."""
    drawn = PICTURE.search(page)
    left = [folder / drawn["path"]] if drawn else []
    made = []

    def anew(found: re.Match[str]) -> str:
        commands = commands_of(found["commands"])
        text = printed_by(commands, left.pop() if left else None)
        made.append(digest_of(commands, text))
        return (
            f"```console\n{found['commands']}```\n\n"
            f"<!-- Printed by the commands above: `make docs`. {made[-1]} -->\n"
            f"```text\n{text}```"
        )

    printed = PATTERN.sub(anew, page)
    return PICTURE.sub(lambda found: f"{found['image']}<!-- of {made[0]} -->", printed)


def rewrite(path: Path) -> None:
    """Rewrite a page's printed blocks and its picture."""
    path.write_text(with_printed(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")


def _draw(page: Path, picture: Path) -> None:
    """The top of a page as a browser shows it; few colours keep the file small."""
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1200,860")
    subprocess.run(  # noqa: S603 - the browser of the tests
        ["chromium", *options, f"--screenshot={picture}", page.as_uri()],  # noqa: S607
        check=True,
        capture_output=True,
    )
    with Image.open(picture) as full:
        full.convert("RGB").quantize(64).save(picture, optimize=True)
