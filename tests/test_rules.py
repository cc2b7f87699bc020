"""What the import rules cannot see: attributes of packages that are allowed, and built-ins."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

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
    found = [f"{name}:{line}" for name, path in names.items() for line in writes_json(ast.parse(path.read_text()))]
    assert LOG_LINES in names
    assert [place for place in found if not place.startswith(f"{LOG_LINES}:")] == []


def test_the_rule_on_documents_sees_a_breach() -> None:
    code = "import json, orjson\nfrom json import dumps\njson.dumps(1)\norjson.dumps(1)\njson.loads('1')"
    assert sorted(writes_json(ast.parse(code))) == [2, 3, 4]


def test_names_of_tests_that_may_differ_from_run_to_run_are_not_collected(tmp_path: Path) -> None:
    values = {"bytes": "bytes([31, 139])", "accent": "chr(233)", "address": "str(object())", "plain": "'plain'"}
    for name, value in values.items():
        text = f"import pytest\n@pytest.mark.parametrize('x', [{value}])\ndef test_x(x): pass\n"
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--rootdir",
        str(tmp_path),
        "-p",
        "tests.same_ids",
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
    done = subprocess.run(  # noqa: S603 - our own code
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    refused = set(re.findall(r"ERROR test_(\w+)\.py", done.stdout))
    assert refused == {"bytes", "accent", "address"}, done.stdout
    assert done.stdout.count("may differ from run to run; give it an id") >= len(refused)
    assert all(part in done.stdout for part in ("x1f", "xe9", "object at"))
