"""What the import rules cannot see: attributes of packages that are allowed, and built-ins."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
CORES = ("controller", "dispatch", "domain", "planner")
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_cores_draw_nothing_and_open_nothing(path: Path) -> None:
    assert not list(breaches(ast.parse(path.read_text())))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import numpy as np\nnp.random.default_rng()", ["numpy.random"]),
        ("from numpy import random", ["numpy.random"]),
        ("from numpy.random import Generator", ["numpy.random.Generator"]),
        ("import numpy.random", ["numpy.random"]),
        ("open('x')", ["open"]),
        ("import numpy as np\nnp.zeros(3)", []),
    ],
)
def test_the_rule_sees_a_breach(code: str, found: list[str]) -> None:
    assert list(breaches(ast.parse(code))) == found
