"""The house is in order: import rules and docstrings."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import grimp

HOUSE = Path(__file__).parents[1]
ROOMS = ("mark", "predictors", "models", "lambda_handlers", "infra")
FILES = sorted(path for room in ROOMS for path in (HOUSE / room).rglob("*.py"))
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def name_of(path: Path) -> str:
    return str(path.relative_to(HOUSE))


@functools.cache
def read(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def public(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Public functions and classes of a module, and public methods of those classes."""
    for node in tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if any(ast.unparse(mark) == "overload" for mark in node.decorator_list):
            continue  # a signature of what follows
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Definition) and not inner.name.startswith("_"):
                    yield f"{node.name}.{inner.name}", inner


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports for type checkers count."""
    graph = grimp.build_graph("mark", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    graphlib.TopologicalSorter(imports).prepare()


def undocumented(path: Path) -> Iterator[str]:
    """The module or its public names; a port's methods are its signature, its class says what it is."""
    tree = read(path)
    if not ast.get_docstring(tree):
        yield "the module"
    ports = path.name == "ports.py"
    yield from (name for name, node in public(tree) if not ast.get_docstring(node) and not (ports and "." in name))


def test_what_is_public_is_documented() -> None:
    lacking = [f"{name_of(path)}: {name}" for path in FILES for name in undocumented(path)]
    assert not lacking, "\n".join(lacking)
