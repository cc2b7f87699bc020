"""Filters of what a trace counts: `path=/v2/*`, `status!=5*`, `target-group=api`."""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True, kw_only=True)
class Labels:
    """What a key says of each row of a file, in their order. A row of which it says nothing is not taken."""

    key: str
    #: Group 1 is the label.
    pattern: re.Pattern[str]
    taken: list[str] = field(default_factory=list)
    #: Rows without a label.
    unlabelled: int = 0

    def takes(self, value: str) -> bool:
        """Note the label of a row; True where it has one."""
        found = self.pattern.search(value)
        if found is None or not found[1]:
            self.unlabelled += 1
            return False
        self.taken.append(sys.intern(found[1]))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """All filters. What is taken fits one pattern of each key, and none of a negated one.

    labels: notes what is taken, in the order of the rows; None where nobody asks.
    """

    clauses: tuple[Clause, ...] = ()
    labels: Labels | None = None

    def __bool__(self) -> bool:
        return bool(self.clauses) or self.labels is not None

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
        if self.labels is not None and self.labels.key not in known:
            raise unknown(f"key of --model-from in {format_name}", self.labels.key, known)

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
        labels = self.labels
        if labels is None:
            return lambda one: all((found.match(value(one)) is not None) is fits for value, found, fits in tests)
        label_of = values[labels.key]
        return lambda one: (
            all((found.match(value(one)) is not None) is fits for value, found, fits in tests)
            and labels.takes(label_of(one))
        )


def parse_where(texts: Iterable[str]) -> Where:
    """Filters as they are written, one `KEY=PATTERN` or `KEY!=PATTERN` each."""
    clauses = []
    for text in texts:
        parts = CLAUSE.fullmatch(text)
        if parts is None or not parts[3]:
            raise Misconfigured(f"--where {text!r} must read KEY=PATTERN or KEY!=PATTERN, such as path=/v2/*")
        clauses.append(Clause(key=parts[1], pattern=parts[3], negated=parts[2] == "!="))
    return Where(clauses=tuple(clauses))
