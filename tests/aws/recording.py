"""Which AWS calls are made, by whom and of what: held against what is listed, and against what is permitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from moto.awslambda.exceptions import UnknownFunctionException
from moto.awslambda_simple.models import lambda_simple_backends
from moto.ec2.exceptions import InvalidInstanceIdError

from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.evaluation import Access
from mark.aws.permissions.policies import Names
from mark.emulator.authorization.accesses import Account, accesses
from mark.emulator.authorization.inventory import EmulatedInventory
from mark.emulator.moto_parts import backend_of
from tests.aws.iam import NAMES, NEVER_ASKED, decided

Call = tuple[str, str]


class MotosInventory(EmulatedInventory):
    """What stands in moto, where functions may be none that run."""

    def __init__(self) -> None:
        super().__init__(instance_tags)

    def function_tags(self, name: str) -> dict[str, str] | None:
        with suppress(UnknownFunctionException):
            return dict(functions().get_function(name).tags)
        found = super().function_tags(name)
        return None if found is None else dict(found)

    def function_of_mapping(self, mapping: str) -> str | None:
        found = functions().get_event_source_mapping(mapping)
        return str(found.function_arn) if found else None


def functions() -> Any:
    return lambda_simple_backends[NAMES.account][NAMES.region]


def instance_tags(name: str) -> dict[str, str] | None:
    with suppress(InvalidInstanceIdError):
        return {tag["key"]: tag["value"] for tag in backend_of("ec2").get_instance(name).get_tags()}
    return None


ACCOUNT = Account(id=NAMES.account, region=NAMES.region, inventory=MotosInventory())


class Recorder:
    """Every call that any boto3 client of this process makes, by who makes it, and what IAM is asked for it."""

    def __init__(self) -> None:
        self._asked: defaultdict[str, dict[Call, list[Access]]] = defaultdict(dict)
        self._role = ""

    def __call__(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        call = (model.service_model.service_name, model.name)
        found = accesses(ACCOUNT, *call, params)
        self._asked[self._role].setdefault(call, []).extend(found or ())

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        before, self._role = self._role, role
        yield
        self._role = before

    def assert_permitted(
        self,
        role: str,
        names: Names = NAMES,
        *,
        by: str | None = None,
        but: frozenset[Call] = frozenset(),
        unseen: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        """The role called what is listed for it and no more, its policy allows that, and no grant is unused.

        `by` is who acted, where that is not the role's name; `but` is what the test itself called; `unseen` are
        grants for what stands elsewhere than in moto.
        """
        calls = {call: asked for call, asked in self._asked[role if by is None else by].items() if call not in but}
        assert set(calls) == {(call.service, call.action) for call in ROLES[role]}, role
        refused, unused = decided(role, (access for asked in calls.values() for access in asked), names)
        assert not refused, refused
        never = unused - unseen - set(NEVER_ASKED)
        assert not never, never
