"""What the import rules cannot see: attributes of packages that are allowed, and built-ins."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).parents[1]
CORES = ("accounting", "cloudmodel", "controller", "dispatch", "domain", "planner", "policies")
FILES = sorted(path for room in CORES for path in (HOUSE / "mark" / room).rglob("*.py"))
BUILT_IN = {"breakpoint", "exec", "eval", "input", "open", "print"}


def breaches(tree: ast.AST) -> Iterator[str]:
    """Uses of numpy.random, however it is imported, and of built-ins that read or write."""
    numpy = {"numpy"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            numpy |= {alias.asname for alias in node.names if alias.name == "numpy" and alias.asname}
            yield from (alias.name for alias in node.names if alias.name.startswith("numpy.random"))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if name.startswith("numpy.random"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr == "random" and node.value.id in numpy:
                yield "numpy.random"
        elif isinstance(node, ast.Name) and node.id in BUILT_IN:
            yield node.id


def test_cores_draw_nothing_and_open_nothing() -> None:
    found = [
        f"{path.relative_to(HOUSE)}: {name}" for path in FILES for name in breaches(ast.parse(path.read_text()))
    ]
    assert len(FILES) > 20
    assert not found, "\n".join(found)


DOCUMENT_ROOMS = (
    "accounting",
    "cli",
    "controller",
    "live",
    "deployment",
    "offline",
    "report",
    "store",
    "telemetry",
)
LOG_LINES = "mark/telemetry/structured_logs.py"
"""It has a form of its own for whatever is logged."""


def writes_json(tree: ast.AST) -> Iterator[int]:
    """Lines that make JSON by another way than `mark.domain.documents`."""
    libraries, ways = ("json", "orjson"), {"dump", "dumps"}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=way) if name in libraries and way in ways:
                yield node.lineno
            case ast.ImportFrom(module=name) if name in libraries and ways & {alias.name for alias in node.names}:
                yield node.lineno


def test_documents_become_json_in_one_place() -> None:
    paths = [path for room in DOCUMENT_ROOMS for path in sorted((HOUSE / "mark" / room).rglob("*.py"))]
    names = {str(path.relative_to(HOUSE)): path for path in paths}
    texts = {name: path.read_text() for name, path in names.items()}
    parsed = {name: ast.parse(text) for name, text in texts.items() if "json" in text and "dump" in text}
    found = [f"{name}:{line}" for name, tree in parsed.items() for line in writes_json(tree)]
    assert LOG_LINES in names
    assert [place for place in found if not place.startswith(f"{LOG_LINES}:")] == []
