"""The list of docs/traces.md that follows from the tests' file of each format: `make docs` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from mark.config.settings import Settings
from mark.offline.trace_source import TraceReading
from mark.simulator.traces.formats.detect import read_rows
from mark.simulator.traces.formats.rows import RowKind
from mark.simulator.traces.formats.sources import find_sources

FILES = Path(__file__).parents[1] / "tests" / "simulator" / "trace_files"
BLOCK = re.compile(r"(<!-- formats -->\n).*?(<!-- end -->)", re.DOTALL)
READ_AS = {
    RowKind.REQUEST: "Times of requests",
    RowKind.COUNT: "Requests of each bin",
    RowKind.RATE: "Requests/s of each bin",
}


def formats() -> list[dict[str, Any]]:
    """Name, file and settings of each format, as the tests' list has them."""
    found: list[dict[str, Any]] = yaml.safe_load((FILES / "formats.yaml").read_text(encoding="utf-8"))
    return found


def flags(entry: dict[str, Any]) -> list[str]:
    """The flags that read the file."""
    given = [(name, value) for name, value in entry.get("trace", {}).items() if name != "where"]
    given += [("where", value) for value in entry.get("trace", {}).get("where", ())]
    return [word for name, value in given for word in (f"--{name}", value)]


def with_formats(page: str) -> str:
    """The page with the list of formats made anew: by what a line or row of them is, in the order of the files."""
    named: dict[RowKind, list[str]] = {kind: [] for kind in READ_AS}
    for entry in formats():
        named[_kind(entry)].append(_item(entry))
    lines = [line for kind, names in named.items() for line in ("", f"{READ_AS[kind]}:", "", *names)]
    return BLOCK.sub(lambda block: block[1] + "\n".join([*lines, "", block[2]]), page)


def _kind(entry: dict[str, Any]) -> RowKind:
    (source,) = find_sources(str(FILES / entry["file"]), None)
    settings = Settings.model_validate({"trace": entry.get("trace", {})})
    return read_rows(source, TraceReading.of(settings).options).kind


def _item(entry: dict[str, Any]) -> str:
    words = " ".join(flags(entry))
    return f"- {entry['name']} (`{words}`)" if words else f"- {entry['name']}"
