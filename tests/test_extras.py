"""The extras that commands name are those that pyproject.toml has, with the modules that these install."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from mark.cli import commands, main
from mark.cli.commands import ROWS, Group, Row
from mark.domain.errors import Misconfigured
from mark.extras import EXTRAS, WITH_REPLAY, missing_extra, require_extra

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

WITHOUT_EXTRAS = """
import importlib, json, sys
lacking = {}
class WithoutExtras:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in extras:
            raise ModuleNotFoundError(name, name=name)
extras, modules = map(json.loads, sys.argv[1:])
sys.meta_path.insert(0, WithoutExtras())
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        lacking[module] = error.name.partition(".")[0]
print(json.dumps(lacking))
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=;~ ]", name)[0]).lower()


def test_each_module_is_of_a_package_that_its_extra_installs():
    distributions = packages_distributions()
    base = {normal(one) for one in PROJECT["dependencies"]}
    for extra, modules in EXTRAS.items():
        installed = {normal(one) for one in PROJECT["optional-dependencies"][extra]}
        assert not installed & base
        for module in modules:
            if module in distributions:  # ray is in no environment of ours
                assert {normal(one) for one in distributions[module]} & installed, (extra, module)


def test_extras_that_replay_come_with_it():
    having = {name for name, needs in PROJECT["optional-dependencies"].items() if "mark-serving[replay]" in needs}
    assert having == set(WITH_REPLAY)


def test_each_command_names_an_extra_that_there_is():
    assert {row.extra for row in ROWS} - {""} <= set(EXTRAS)


def modules_of(row: Row | Group) -> Iterator[str]:
    """The modules that a command imports once it is used, and its own."""
    targets = {row.name: row.target} if isinstance(row, Row) else row.targets
    for name, target in targets.items():
        module, _, function = target.partition(":")
        yield f"mark.cli.{module}"
        room = import_module(f"mark.cli.{module}")
        yield from imports_of(ast.parse(inspect.getsource(getattr(room, function or name))))


def imports_of(node: ast.AST) -> Iterator[str]:
    """Modules that are imported there, but for those under a condition that asks for an extra."""
    if isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
    guarded = isinstance(node, ast.If) and "has_extra(" in ast.unparse(node.test)
    for child in node.orelse if guarded else ast.iter_child_nodes(node):
        yield from imports_of(child)


def test_a_command_names_an_extra_where_it_needs_one_and_only_there():
    wanted = {row.name: sorted({*modules_of(row)}) for row in ROWS}
    extras = [module for modules in EXTRAS.values() for module in modules]
    every = sorted({module for modules in wanted.values() for module in modules})
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", WITHOUT_EXTRAS, json.dumps(extras), json.dumps(every)],
        capture_output=True,
        text=True,
        check=True,
    )
    lacking = json.loads(done.stdout)
    needing = {name for name, modules in wanted.items() if any(module in lacking for module in modules)}
    assert {row.name for row in ROWS if row.extra} == needing, lacking


def test_a_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(EXTRAS, "local", ("no_such_module",))
    assert main.run(["up"]) == 2
    assert capsys.readouterr().err == "mark: mark up needs the extra local: pip install 'mark-serving[local]'\n"
    with pytest.raises(Misconfigured, match=r"mark-serving\[local\]"):
        require_extra("local", "mark demo")
    require_extra("replay", "mark simulate")


def test_a_module_that_is_missing_names_its_extra(monkeypatch, capsys):
    def lacking(_name):
        raise ModuleNotFoundError("No module named 'moto'", name="moto.core")

    monkeypatch.setattr(commands, "import_module", lacking)
    assert main.run(["down"]) == 2
    assert capsys.readouterr().err == "mark: mark down needs moto: pip install 'mark-serving[local]'\n"
    assert missing_extra("mark down", ModuleNotFoundError(name="json2")) is None
