"""Writes the pages of settings, commands, hardware and Python's names from their sources: `make docs`.

docs/studies.md is written from the list of published figures and from docs/studies.csv. Tables of docs/json.md are
written from the types of documents, that of docs/traces.md from the tests' files.

With `--printed` it also runs the commands whose output README shows, a minute or two, and writes what they print.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from mark.cli.layout import examples_of
from mark.cli.main import app
from mark.config.settings import Settings, types_of
from scripts.acceptance import studies
from scripts.hardware_page import hardware_page
from scripts.json_page import with_tables
from scripts.printed import rewrite
from scripts.python_page import python_page
from scripts.trace_formats import with_formats

FOLDER = Path(__file__).parents[1] / "docs"
README = FOLDER.parent / "README.md"
WIDTH = 100
NOTICE = "<!-- Written by `make docs`; edit the sources, not this page. -->\n"

SETTINGS_INTRO = """
For you if you write a `mark.yaml`: every key with its default.

Pass the file to any command with `--config FILE`. Flags override the file, and the file overrides
the defaults. An unknown key is refused, with the nearest known one. Paths in the file count from
the file's folder, paths in flags from the working directory. If a key has no default, its
description says what happens without it.

Compiled code and trained weights are kept in `$MARK_CACHE`, else in `$XDG_CACHE_HOME/mark`, else in
`~/.cache/mark`.

```yaml
model: inception-v3
objective:
  latency_ms: 600
  target: 0.98
market: spot
offerings:
  types: [c5.large, c5.xlarge]
  standby_share: 0.5
policies: [hedged, mark, sagemaker]
policy:
  lead_min: 4
  monitor: {requests: 500}
trace:
  file: load.csv.gz
  start_s: 300
faults:
  interrupts:
    - {at_min: 7, share: 0.4}
seed: 1
```
"""

CLI_INTRO = """
For you if you need a command or a flag. `mark COMMAND -h` prints the same.

Tables and documents go to stdout; progress, notes and errors go to stderr. `--json` prints one
document and nothing else on stdout; [json.md](json.md) has its fields.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | done, with a finding: replays of a sweep failed, `mark doctor` found what you must fix, `mark diff` found a \
difference, `mark predict` found outputs that the model does not declare, no controller \
confirmed `mark pause`, `mark load` or `mark try` got no answer |
| 2 | the input is wrong, one line says what; in `mark forecast backtest` also: a forecaster failed |
| 130 | after Ctrl-C; what is finished is printed |
"""


def settings_page() -> str:
    """The page of all settings."""
    return "\n".join([NOTICE, "# Settings", SETTINGS_INTRO, *_part_lines(Settings, ""), ""])


def cli_page() -> str:
    """The page of all commands. It is made from their parameters, not from the help's layout, which is typer's."""
    parts = [NOTICE, "# Command line", CLI_INTRO]
    for name, command in commands():
        paragraphs = [_wrapped(text) for text in (command.help or "").split("\n\n")]
        examples = "\n".join(example_lines(command))
        options = "\n".join(_parameter_line(parameter) for parameter in command.params)
        parts.append(f"## {name}\n\n" + "\n\n".join(paragraphs) + f"\n\n| | |\n|---|---|\n{options}\n")
        parts.append(f"```sh\n{examples}\n```\n")
    return "\n".join(parts)


def commands() -> list[tuple[str, Any]]:
    """Every command with its full name, groups left out."""
    return _below(typer.main.get_command(app), "mark")


def example_lines(command: Any) -> list[str]:
    """The example command lines that a command's help ends with."""
    return examples_of(command.epilog or "")


def _default_item(value: Any) -> str:
    """An item of a list as YAML; of a part what is not empty."""
    if not isinstance(value, BaseModel):
        return str(value)
    return (
        f"{{{', '.join(f'{key}: {item}' for key, item in value.model_dump().items() if item not in (None, ''))}}}"
    )


def _wrapped(text: str) -> str:
    return fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _below(command: Any, name: str) -> list[tuple[str, Any]]:
    if hasattr(command, "commands"):
        return [found for key, child in command.commands.items() for found in _below(child, f"{name} {key}")]
    return [(name, command)]


def _parameter_line(parameter: Any) -> str:
    is_option = parameter.opts[0].startswith("-")
    words = [parameter.opts[0] if is_option else "", (parameter.metavar or "").replace("|", "\\|")]
    default = parameter.default if getattr(parameter, "show_default", False) else None
    shown = "" if default in (None, False, (), "") or callable(default) else f" Default `{default}`."
    return f"| `{' '.join(part for part in words if part)}` | {parameter.help}{shown} |"


def _part_lines(part: type[BaseModel], prefix: str) -> list[str]:
    """One table for a part and its plain keys, then the parts below it."""
    about = _wrapped((part.__doc__ or "").strip().splitlines()[0])
    lines = [
        f"## {prefix.rstrip('.') or 'Top level'}",
        "",
        about,
        "",
        "| key | type | default | |",
        "|---|---|---|---|",
    ]
    below: list[str] = []
    for name, field in part.model_fields.items():
        inner = next((kind for kind in types_of(field.annotation) if issubclass(kind, BaseModel)), None)
        is_list = "tuple" in str(field.annotation)
        key = f"{prefix}{name}"
        if inner is not None:
            below += ["", *_part_lines(inner, f"{key}[]." if is_list else f"{key}.")]
        if inner is None or is_list:
            words = "list of objects, see below" if inner else _type_words(field.annotation, is_list=is_list)
            words = "texts by key" if get_origin(field.annotation) is dict else words
            default = field.get_default(call_default_factory=True)
            lines.append(f"| `{key}` | {words} | {_default_words(default)} | {field.description} |")
    return lines + below


def _type_words(annotation: Any, *, is_list: bool) -> str:
    names = {float: "number", int: "integer", str: "text", bool: "true or false", Path: "path"}
    found = []
    for kind in types_of(annotation):
        if issubclass(kind, Enum):
            found.append(", ".join(f"`{member.value}`" for member in kind))
        elif kind in names:
            found.append(names[kind])
    if literals := [f"`{value}`" for value in _literals(annotation) if value != ""]:
        found.append(", ".join(literals))
    words = " or ".join(dict.fromkeys(found))
    return f"list of {words}" if is_list else words


def _literals(annotation: Any) -> list[Any]:
    """Values of every `Literal` within an annotation."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _literals(part)]


def _default_words(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value in (None, "", (), {}):
        return ""
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(_default_item, value))}]`"
    return f"`{value}`"


def main(arguments: Sequence[str]) -> None:
    """Write the pages, and with --printed README's printed output."""
    (FOLDER / "settings.md").write_text(settings_page(), encoding="utf-8")
    (FOLDER / "cli.md").write_text(cli_page(), encoding="utf-8")
    (FOLDER / "hardware.md").write_text(f"{NOTICE}\n{hardware_page()}", encoding="utf-8")
    (FOLDER / "python-reference.md").write_text(f"{NOTICE}\n{python_page()}", encoding="utf-8")
    studies.PAGE.write_text(studies.page(studies.measured()), encoding="utf-8")
    for name, made in (("json.md", with_tables), ("traces.md", with_formats)):
        page = FOLDER / name
        page.write_text(made(page.read_text(encoding="utf-8")), encoding="utf-8")
    if "--printed" in arguments:
        rewrite(README)


if __name__ == "__main__":
    main(sys.argv[1:])
