"""Blocks of the docs' pages, and the comments that say how a test runs them. Readers do not see these comments.

A comment stands directly before its block, one for each word:

    <!-- not run: REASON -->     the block needs what no test has: an AWS account, a GPU, an hour
    <!-- file: NAME -->          the block is this file; code may name it in its first line instead: `# NAME`
    <!-- into: NAME -->          settings that a reader adds to this file
    <!-- goes on -->             the commands run beside the rest of the page

Three more stand anywhere:

    <!-- run: COMMANDS -->       what the page takes for granted: a trace, a log, a service that is up
    <!-- here: WORD=WORDS -->    what a placeholder stands for in the rest of the page
    <!-- aws -->                 from here on commands meet an AWS account, which is empty and emulated
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

HOUSE = Path(__file__).parents[2]
COMMANDS = {"console", "sh", "bash"}
FILES = {"json", "csv", "toml"}
"""They are files: without a name there is nothing to do with them."""
SHOWN = "text"
"""What a command prints, or a drawing: a reader does nothing with it, unless it is a named file."""
LANGUAGES = {*COMMANDS, *FILES, "python", "yaml", SHOWN}
OF_A_BLOCK, ANYWHERE = {"not run", "file", "into", "goes on"}, {"run", "here", "aws"}
COMMENT = re.compile(r"<!-- (?P<word>not run|file|into|goes on|run|here|aws)\b:?\s*(?P<said>.*?)\s*-->", re.DOTALL)
NAMED = re.compile(r"# (?P<name>[\w./-]+\.py)\b.*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a page, or commands of a comment (`language` is "run"), or words for placeholders ("here")."""

    line: int
    language: str
    text: str
    comments: dict[str, str]

    @property
    def file(self) -> str | None:
        """The file that the block is, if it is one."""
        named = NAMED.match(self.text) if self.language == "python" else None
        return named["name"] if named else self.comments.get("file")

    @property
    def left_out(self) -> str | None:
        """Why the block is not run, if it is not."""
        return self.comments.get("not run")

    @property
    def is_of_a_reader(self) -> bool:
        """True for a block that readers see and use."""
        return self.language not in ANYWHERE and (self.language != SHOWN or self.file is not None)

    @property
    def complaint(self) -> str | None:
        """Why a test could neither run the block nor leave it out."""
        if self.left_out is not None:
            return None if self.left_out else "no reason why it is not run"
        if self.language not in LANGUAGES | ANYWHERE:
            return f"no language that a test knows: {self.language!r}"
        if self.language in FILES and self.file is None:
            return "neither named as a file nor marked as not run"
        return None


def blocks(page: Path) -> list[Block]:
    """The page's blocks and comments in their order."""
    return list(_blocks(page.read_text(encoding="utf-8")))


def _blocks(text: str) -> Iterator[Block]:
    waiting: dict[str, str] = {}
    for token in MarkdownIt("commonmark").parse(text):
        line = (token.map or (0, 0))[0] + 1
        if token.type == "html_block":
            for found in COMMENT.finditer(token.content):
                if found["word"] in ANYWHERE:
                    yield Block(line=line, language=found["word"], text=found["said"], comments={})
                else:
                    waiting[found["word"]] = found["said"]
        elif token.type in {"fence", "code_block"}:
            yield Block(line=line, language=token.info.strip(), text=token.content, comments=waiting)
            waiting = {}
        elif token.type == "inline" and waiting:
            raise ValueError(f"line {line}: {sorted(waiting)} stands before no block")
