"""docs/architecture.md names files and functions that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]
PAGE = HOUSE / "docs" / "architecture.md"
ROOM = re.compile(r"\*\*`(\w+)`\*\*")
CODE = re.compile(r"`([^`]+)`")
PATH = re.compile(r"[\w./]+(\.py|/)")
FUNCTION_OF = re.compile(r"`([\w./]+\.py)`, `(\w+)`")


def blocks() -> Iterator[tuple[str, str | None]]:
    """Each list item, row or paragraph on one line, and the room whose list it is in."""
    room = None
    text = re.sub(r"```.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for block in re.split(r"\n(?=\s*(?:[-|#]|\d+\. |\n))", text):
        if block.startswith("## "):
            room = None
        elif heading := ROOM.match(block.strip()):
            room = heading[1]
        yield " ".join(block.split()), room


def found(name: str, room: str | None, near: list[Path]) -> Path | None:
    """The file or folder of that name: from the root, in mark/, in the room, or beside what was named before."""
    folders = [HOUSE, HOUSE / "mark", *([HOUSE / "mark" / room] if room else []), *near]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def test_paths_and_functions_of_the_page_exist() -> None:
    missing = []
    checked = 0
    for block, room in blocks():
        near: list[Path] = []
        paths = {}
        for name in CODE.findall(block):
            if not PATH.fullmatch(name):
                continue
            checked += 1
            path = paths[name] = found(name, room, near)
            if path is None:
                missing.append(f"{name}: {block[:60]}")
            else:
                folder = path if path.is_dir() else path.parent
                near[:0] = [folder, folder.parent]
        for name, function in FUNCTION_OF.findall(block):
            path = paths.get(name)
            if path is not None and not re.search(rf"\b{function}\b", path.read_text(encoding="utf-8")):
                missing.append(f"{function} in {name}")

    assert missing == []
    assert checked > 200
