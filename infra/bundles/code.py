"""Files that a function needs: all of this project that its handler imports, also within functions, and so on.

A user's own model is looked for in the working directory; what lies in its package comes with it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mark
from mark.domain.errors import Misconfigured

HOUSE = Path(mark.__file__).parents[1]
DATA = {
    "mark.catalog.load": ("mark/catalog/data",),
    "mark.report.mail.message": ("mark/report/templates/mail.html.j2",),
}
"""What modules read beside them, files or folders."""
EXAMPLE = "name one as mark.models.digits"


@dataclass(frozen=True, slots=True)
class Code:
    """Files by their names in the bundle, and the top-level names of the libraries that they import."""

    files: Mapping[str, Path]
    libraries: frozenset[str]


def code_of(*roots: str, models: Sequence[str] = ()) -> Code:
    """The code of these modules, and of models with all that lies in their folders."""
    modules: dict[str, Path] = {}
    libraries: set[str] = set()
    waiting = [*roots, *models]
    ours = {mark.__name__, *(name.partition(".")[0] for name in models)}
    for name in waiting:
        if _path(name) is None:
            raise Misconfigured(f"there is no module {name} in {Path.cwd()}, nor is it one of ours: {EXAMPLE}")
    while waiting:
        name = waiting.pop()
        for module in _with_parents(name):
            if module not in modules and (path := _path(module)) is not None:
                modules[module] = path
                found = list(_imports(ast.parse(path.read_text(encoding="utf-8"))))
                waiting += [other for other in found if other.partition(".")[0] in ours]
                libraries |= {other.partition(".")[0] for other in found}
    files = {_name(path): path for path in modules.values()}
    for module, places in DATA.items():
        if module in modules:
            files |= {_name(path): path for place in places for path in _below(HOUSE / place)}
    for model in models:
        folder = modules[model].parent
        if folder != Path.cwd():  # a module of no package is its file alone
            files |= {_name(path): path for path in _below(folder) if path.suffix != ".pyc"}
    return Code(files, frozenset(libraries) - ours - sys.stdlib_module_names)


def _imports(tree: ast.AST) -> Iterator[str]:
    """Names that may be modules; what only type checkers import is none of them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "this project has no relative imports"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _path(module: str) -> Path | None:
    places = [root.joinpath(*module.split(".")) for root in (HOUSE, Path.cwd())]
    found = (path for place in places for path in (place / "__init__.py", place.with_suffix(".py")))
    return next((path for path in found if path.is_file()), None)


def _below(place: Path) -> Iterator[Path]:
    return (path for path in ([place] if place.is_file() else place.rglob("*")) if path.is_file())


def _name(path: Path) -> str:
    return path.relative_to(HOUSE if path.is_relative_to(HOUSE) else Path.cwd()).as_posix()
