"""Every command of `mark` and every setting that a page shows exists: README, docs and the examples' READMEs.

docs/cli.md, docs/settings.md and tables of docs/json.md are generated. Other pages are written by hand, and this
reads them: command lines in blocks are parsed by the command line itself, commands within sentences need a command
and flags that exist, blocks of YAML are settings unless they are another program's, and a setting's name leads to
one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from mark.catalog.commitment_file import CommitmentFile
from mark.catalog.pairs import PairFile
from mark.catalog.schema import ModelFile, ProfileFile, parse_file
from mark.cli.main import app
from mark.config.settings import Settings, load_settings, types_of
from mark.domain.errors import Misconfigured
from scripts.json_page import BLOCK as DOCUMENT_KEYS

HOUSE = Path(__file__).parents[2]
PAGES = [
    HOUSE / "README.md",
    HOUSE / "SECURITY.md",
    *sorted((HOUSE / "docs").glob("*.md")),
    *sorted((HOUSE / "examples").rglob("README.md")),
]
ROOT: Any = typer.main.get_command(app)
USAGE_ERROR: Any = typer.BadParameter.__base__
"""The class of all that a command line refuses; typer exports it under no name."""
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
SETTING = re.compile(r"([a-z_]+(?:(?:\[\])?\.[a-z_]+)+)(?:\[\])?(?::.*)?", re.DOTALL)
SHELLS = {"sh", "bash", "console"}
SEPARATORS = {"|", "||", "&", "&&", ";", "(", ")"}
FOREIGN = {"scrape_configs", "jobs", "apiVersion"}
"""Keys of Prometheus' settings, GitHub's workflows and Kubernetes' manifests: their blocks are not MArk's."""
FILES: dict[str, Any] = {"mark-models/1": ModelFile, "mark-pairs/1": PairFile, "mark-profiles/1": ProfileFile}
NO_SETTINGS = (".json", ".py", ".yaml", "service.instance.id", "service.namespace")
"""Ends of names that begin as a setting does: files, and attributes of OpenTelemetry's."""


def blocks(text: str, *kinds: str) -> Iterator[str]:
    yield from (block["text"] for block in BLOCK.finditer(text) if block["kind"] in kinds)


def command_lines(text: str) -> Iterator[list[str]]:
    """The words of every `mark` in the page's blocks of commands, wherever in its line it stands."""
    for block in BLOCK.finditer(text):
        if block["kind"] not in SHELLS:
            continue
        lines = block["text"].replace("\\\n", " ").splitlines()
        if block["kind"] == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        begun = ""
        for line in lines:
            begun += line
            try:
                yield from simple_commands(begun)
            except ValueError:  # a quotation goes on in the next line
                begun += "\n"
            else:
                begun = ""
        if begun:
            raise ValueError(f"a quotation does not end: {begun}")


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each `mark` of a line, without what is redirected."""
    words: list[str] = []
    redirected = False
    for token in [*shell_words(line), ";"]:
        if token in SEPARATORS:
            if words[:1] == ["mark"]:
                yield words[1:]
            words = []
        elif set(token) <= set("<>&"):
            redirected = True
            if words[-1:] in (["1"], ["2"]):
                words.pop()
        elif redirected:
            redirected = False
        else:
            words.append(token)


def shell_words(line: str) -> list[str]:
    """Words and operators, without comments. ValueError where a quotation does not end."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    return list(lexer)


def spoken_of(text: str) -> Iterator[list[str]]:
    """The words of each command that a sentence names; `mark rollout promote|abort` names two."""
    for code in INLINE.findall(BLOCK.sub("", text)):
        if re.match(r"mark [a-z-]", code):  # `mark COMMAND` stands for any
            words = [word for word in code.split()[1:] if word != "..."]
            yield from map(list, product(*(word.split("|") for word in words)))


def found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words begin with, and the words that are its own. ValueError where there is none."""
    command, rest = ROOT, list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name, *rest = rest
        if name not in command.commands:
            raise ValueError(f"no command {name}")
        command = command.commands[name]
    return command, rest


def parse(words: list[str]) -> None:
    """Have the command line take the words, and run nothing. Errors: ValueError, USAGE_ERROR."""
    command, rest = found(words)
    try:
        command.make_context("mark", rest)
    except typer.Exit:
        return  # --help


def wrong_flags(words: list[str]) -> list[str]:
    command, rest = found(words)
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    used = [word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    return [flag for flag in used if flag not in known | {"-h", "--help"}]


def complaints(text: str) -> list[str]:
    """What is wrong with the commands of a page."""
    wrong = []
    for words in command_lines(text):
        try:
            parse(words)
        except (ValueError, USAGE_ERROR) as error:
            wrong.append(f"mark {shlex.join(words)}: {error}")
    for words in spoken_of(text):
        try:
            wrong += [f"mark {' '.join(words)}: no flag {flag}" for flag in wrong_flags(words)]
        except ValueError as error:
            wrong.append(f"mark {' '.join(words)}: {error}")
    return wrong


def unknown_settings(text: str) -> list[str]:
    """Settings that a sentence names and that are none."""
    matches = (SETTING.fullmatch(code) for code in INLINE.findall(BLOCK.sub("", text)))
    names = [match[1] for match in matches if match and not match[1].endswith(NO_SETTINGS)]
    ours = [name for name in names if name.split(".")[0].removesuffix("[]") in Settings.model_fields]
    return [name for name in ours if not is_setting(name.replace("[]", "").split("."))]


def is_setting(keys: list[str]) -> bool:
    here: list[type[BaseModel]] = [Settings]
    for key in keys:
        fields = [model.model_fields[key] for model in here if key in model.model_fields]
        if not fields:
            return False
        kinds = [kind for field in fields for kind in types_of(field.annotation)]
        here = [kind for kind in kinds if issubclass(kind, BaseModel)]
    return True


def refusals(text: str, folder: Path) -> list[str]:
    """Why blocks of settings are refused. A list is the models that a service serves."""
    refused = []
    for tree in (tree for block in blocks(text, "yaml") for tree in yaml.safe_load_all(block)):
        if isinstance(tree, dict) and FOREIGN & tree.keys():
            continue
        whole = {"service": {"serve": tree}} if isinstance(tree, list) else tree
        (folder / "mark.yaml").write_text(yaml.safe_dump(whole))
        try:
            load_settings(folder / "mark.yaml", {})
        except Misconfigured as error:
            refused.append(str(error))
    return refused


def ids(path: Path) -> str:
    return str(path.relative_to(HOUSE))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_and_setting_of_the_page_is_one(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert complaints(text) == []
    assert refusals(text, tmp_path) == []
    assert unknown_settings(DOCUMENT_KEYS.sub("", text)) == []


def test_files_that_a_page_shows_are_read() -> None:
    shown = [block for page in PAGES for block in blocks(page.read_text(encoding="utf-8"), "json")]
    ours = [block for block in shown if re.search(r'"format": "mark-', block)]

    assert len(ours) > 2
    for block in ours:
        kind = re.search(r'"format": "([^"]+)"', block)
        assert kind is not None
        parse_file(block, FILES.get(kind[1], CommitmentFile), "the page's")


def test_the_pages_have_what_is_looked_for() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]

    assert sum(len(list(command_lines(text))) for text in texts) > 200
    assert sum(len(list(spoken_of(text))) for text in texts) > 200
    assert sum(len(list(blocks(text, "yaml"))) for text in texts) > 20
