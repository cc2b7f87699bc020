"""Filters of what a trace counts: `path=/v2/*`, `status!=5*`, `target-group=api`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mark.domain.errors import Misconfigured, unknown

CLAUSE = re.compile(r"([^=!\s][^=!]*?)\s*(!?=)\s*(.*)", re.DOTALL)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One filter: a key, a pattern with `*`, `?` and `[...]`, and whether what fits is left out."""

    key: str
    pattern: str
    negated: bool

    def __str__(self) -> str:
        return f"{self.key}{'!=' if self.negated else '='}{self.pattern}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """All filters. What is taken fits one pattern of each key, and none of a negated one."""

    clauses: tuple[Clause, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.clauses)

    def __str__(self) -> str:
        return " ".join(str(clause) for clause in self.clauses)

    def check(self, format_name: str, keys: Iterable[str]) -> None:
        """Refuse a key that the format does not have."""
        known = tuple(keys)
        for clause in self.clauses:
            if not known:
                raise Misconfigured(f"--where {clause}: {format_name} holds nothing to choose by; leave it out")
            if clause.key not in known:
                raise unknown(f"key of --where in {format_name}", clause.key, known)

    def on(self, values: Mapping[str, Callable[[T], str]]) -> Callable[[T], bool]:
        """The test of one request or series, given how each key's value is read from it."""
        tests: list[tuple[Callable[[T], str], re.Pattern[str], bool]] = []
        wanted: dict[str, list[str]] = {}
        for clause in self.clauses:
            pattern = fnmatch.translate(clause.pattern)
            if clause.negated:
                tests.append((values[clause.key], re.compile(pattern), False))
            else:
                wanted.setdefault(clause.key, []).append(pattern)
        tests += [(values[key], re.compile("|".join(patterns)), True) for key, patterns in wanted.items()]
        return lambda one: all((found.match(value(one)) is not None) is fits for value, found, fits in tests)


def parse_where(texts: Iterable[str]) -> Where:
    """Filters as they are written, one `KEY=PATTERN` or `KEY!=PATTERN` each."""
    clauses = []
    for text in texts:
        parts = CLAUSE.fullmatch(text)
        if parts is None or not parts[3]:
            raise Misconfigured(f"--where {text!r} must read KEY=PATTERN or KEY!=PATTERN, such as path=/v2/*")
        clauses.append(Clause(key=parts[1], pattern=parts[3], negated=parts[2] == "!="))
    return Where(clauses=tuple(clauses))
