"""`mark alerts test` posts from where alarms are posted, and says why where it could not."""

from __future__ import annotations

from typing import Any

import pytest

from mark.aws.functions.webhook import post_test
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.commands.alerts import try_webhook
from tests.aws.builders import aws
from tests.live.test_try_service import Functions


def through(answer: Any, monkeypatch: pytest.MonkeyPatch, *, failed: bool = False) -> Functions:
    """Post by a function that answers so."""
    functions, there = Functions(answer, failed=failed), aws()
    monkeypatch.setattr(type(there), "lambda_", functions)
    try:
        post_test(there, "shop")
    finally:
        there.close()
    return functions


def test_the_function_posts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert through({"posted": 1}, monkeypatch).asked == [("mark-shop-webhook", {"mark-test": True})]


def test_its_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misconfigured, match="posted nothing: the webhook answers with status 404"):
        through({"posted": 0, "why": "the webhook answers with status 404"}, monkeypatch)
    with pytest.raises(Misconfigured, match=r"mark-shop-webhook failed: .*Unable to import"):
        through({"errorMessage": "Unable to import"}, monkeypatch, failed=True)


def test_without_a_webhook_the_setting_is_named() -> None:
    with pytest.raises(Misconfigured, match=r"set rollout\.alarms\.webhook"):
        try_webhook(Settings.model_validate({"service": {"name": "shop"}}), as_json=False)
