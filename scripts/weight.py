"""Code lines and statements of the working tree, by package.

A code line holds a token that is neither a comment nor part of a docstring. A call spread over five lines counts
five, so the table also counts statements: when code lines fall and statements do not, lines were only squeezed.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = ROOT / "mark"
ROOMS = sorted(path for path in MARK.iterdir() if (path / "__init__.py").exists())
OTHERS = ("scripts", "examples", "tests")
SILENT = frozenset(
    {
        tokenize.ENCODING,
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of some files."""

    files: int = 0
    code: int = 0
    stmts: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.files + other.files, self.code + other.code, self.stmts + other.stmts)


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Lines of strings that stand alone as a statement: docstrings, and notes below a constant or field."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def weight_of(source: str) -> Weight:
    """The weight of one file's text."""
    tree = ast.parse(source)
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in SILENT
        for line in range(token.start[0], token.end[0] + 1)
    }
    code = lines.difference(_docstring_lines(tree))
    return Weight(1, len(code), sum(isinstance(node, ast.stmt) for node in ast.walk(tree)))


def weight_under(*paths: Path) -> Weight:
    """The weight of Python files, and of those below folders."""
    files = (file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py"))))
    return sum((weight_of(file.read_text(encoding="utf-8")) for file in files), Weight())


def packages() -> Iterator[tuple[str, Weight]]:
    """Rooms of mark by name, its own modules as one row, then the other packages."""
    for room in ROOMS:
        yield f"mark/{room.name}", weight_under(room)
    yield "mark/*.py", weight_under(*MARK.glob("*.py"))
    for name in OTHERS:
        yield name, weight_under(ROOT / name)


def _row(name: str, weight: Weight) -> str:
    return f"{name:<20}{weight.files:>7,}{weight.code:>9,}{weight.stmts:>9,}"


def main() -> None:
    """Print a row for each package, then the sum of those that users install."""
    print(f"{'package':<20}{'files':>7}{'code':>9}{'stmts':>9}")
    for name, weight in packages():
        print(_row(name, weight))
    print(_row("product", weight_under(*ROOMS, *MARK.glob("*.py"))))


if __name__ == "__main__":
    main()
