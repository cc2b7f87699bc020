"""Commands of a page: a rehearsal runs the lines that a reader copies, so that the two cannot drift apart."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

HOUSE = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def console_lines(page: str, section: str = "") -> tuple[str, ...]:
    """The commands of a page's console blocks, or of one section's, in their order and without comments."""
    text = (HOUSE / page).read_text(encoding="utf-8")
    if section:
        _, _, text = text.partition(f"\n## {section}\n")
        text, _, _ = text.partition("\n## ")
    return tuple(
        re.sub(r"\s+#.*", "", line.removeprefix("$ "))
        for block in BLOCK.findall(text)
        for line in block.splitlines()
        if line.startswith("$ ")
    )


def words_of(line: str) -> tuple[str, ...]:
    """The words of a command of `mark`, without its name."""
    first, *rest = shlex.split(line)
    assert first == "mark", line
    return tuple(rest)
