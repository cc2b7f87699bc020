"""Links that fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mark.domain.errors import RetryLater
from mark.store.connect import Link
from mark.store.scripts import Script


class ForgetfulLink(Link):
    """A link that runs a script and loses its answer, once, or that is down, as it is told."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.loses_answer_of: Script | None = None
        self.is_down = False

    def call(self, *words: str | bytes | float) -> Any:
        return self._link.call(*words)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | float] = ()) -> Any:
        if self.is_down:
            raise RetryLater("down")
        answer = self._link.run(script, keys, args)
        if script is self.loses_answer_of:
            self.loses_answer_of = None
            raise RetryLater("the answer was lost")
        return answer
