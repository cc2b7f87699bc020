"""Which AWS calls are made, and by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Recorded = set[tuple[str, str]]


class Recorder:
    """Every call that any boto3 client of this process makes, by who makes it."""

    def __init__(self) -> None:
        self.by_role: defaultdict[str, Recorded] = defaultdict(set)
        self._role = ""

    def __call__(self, model: Any, **_: Any) -> None:
        self.by_role[self._role].add((model.service_model.service_name, model.name))

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        before, self._role = self._role, role
        yield
        self._role = before
