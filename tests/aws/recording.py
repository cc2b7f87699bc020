"""Which AWS calls are made, by whom and of what: held against what is listed, and against what is permitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.policies import Names
from tests.aws.iam import NAMES, refusals

Call = tuple[str, str]


class Recorder:
    """Every call that any boto3 client of this process makes, by who makes it."""

    def __init__(self) -> None:
        self._asked: defaultdict[str, defaultdict[Call, list[Mapping[str, Any]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._role = ""

    def __call__(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        self._asked[self._role][model.service_model.service_name, model.name].append(params)

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        before, self._role = self._role, role
        yield
        self._role = before

    def assert_permitted(
        self, role: str, names: Names = NAMES, *, by: str | None = None, but: frozenset[Call] = frozenset()
    ) -> None:
        """The role called what is listed for it and no more, and its policy allows that on those resources.

        `by` is who acted, where that is not the role's name; `but` is what the test itself called.
        """
        calls = {call: asked for call, asked in self._asked[role if by is None else by].items() if call not in but}
        assert set(calls) == {(call.service, call.action) for call in ROLES[role]}, role
        found = refusals(role, calls, names)
        assert not found, found
