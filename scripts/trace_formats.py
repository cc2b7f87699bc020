"""The table of docs/traces.md that follows from the tests' file of each format: `make docs` writes it anew."""

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
    RowKind.REQUEST: "times of requests",
    RowKind.COUNT: "requests of each bin",
    RowKind.RATE: "requests/s of each bin",
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
    """The page with the table of formats made anew."""
    rows = ["", "| format | read as | flags |", "|---|---|---|", *map(_row, formats()), ""]
    return BLOCK.sub(lambda block: block[1] + "\n".join([*rows, block[2]]), page)


def _row(entry: dict[str, Any]) -> str:
    (source,) = find_sources(str(FILES / entry["file"]), None)
    settings = Settings.model_validate({"trace": entry.get("trace", {})})
    kind = read_rows(source, TraceReading.of(settings).options).kind
    words = " ".join(flags(entry))
    return f"| {entry['name']} | {READ_AS[kind]} | {f'`{words}`' if words else ''} |"
