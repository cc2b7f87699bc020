"""The running service divides its cap as a replay does."""

from __future__ import annotations

from mark.config.settings import Settings
from mark.live.control.drivers.shared_cap import shared_cap
from tests.controller.limits.test_service_cap import asked, counts, plan


def test_models_plan_under_the_cap_and_the_weights_of_the_settings() -> None:
    serve = [{"model": "a", "weight": 50.0}, {"model": "b"}]
    cap = shared_cap(Settings.model_validate({"service": {"aws": {"max_vcpus": 12}, "serve": serve}}))
    assert cap is not None
    divided = [counts(cap.divide(name)(asked(), plan(4))) for name in "abab"]
    assert divided[2:] == [4, 2]


def test_without_limits_there_is_no_cap() -> None:
    assert shared_cap(Settings()) is None
