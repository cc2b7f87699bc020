"""Passwords of the store: no deploy takes away those that processes have read."""

from __future__ import annotations

from typing import Any

import pytest

from mark.deployment.deployment_plan import _refuse_skipped
from mark.domain.errors import Misconfigured


def template(number: int) -> dict[str, Any]:
    newest = f"mark-shop-password-agent-{number}" if number > 1 else "mark-shop-password-agent"
    names = ("mark-shop-token", newest, *(["mark-shop-password-agent"] if number == 2 else []))
    made = {f"Secret{place}": {"Properties": {"Name": name}} for place, name in enumerate(names)}
    return {"Resources": made | {"Waits": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}}


@pytest.mark.parametrize("had", range(1, 5))
@pytest.mark.parametrize("gets", range(1, 5))
def test_a_deploy_keeps_the_passwords_that_processes_have_read(had: int, gets: int) -> None:
    if gets in (had, had + 1):
        _refuse_skipped(template(had), template(gets))
    else:
        says = rf"at number {had}, and would be at {gets}: .*store.passwords: {had}, or {had + 1} to"
        with pytest.raises(Misconfigured, match=says):
            _refuse_skipped(template(had), template(gets))


def test_stacks_without_such_passwords_are_none_of_its_business() -> None:
    _refuse_skipped({"Resources": {}}, template(3))
    _refuse_skipped({}, {})
