"""A rollout's steps, times and bounds: flags over the settings."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mark.config.service import RolloutsSettings
from mark.domain.errors import Misconfigured
from mark.domain.models.versions import CanaryPolicy, ModelVersions
from mark.live.commands.rollout import StartOptions, check_may_start
from mark.service_spec import BackendKind, BackendSpec
from tests.serving.harness import LAMBDA, served

USUAL = RolloutsSettings()


def test_settings_that_say_nothing_are_the_policy_s_own() -> None:
    assert USUAL.policy == StartOptions(model="m").policy(USUAL) == CanaryPolicy()


def test_flags_go_before_settings_and_percents_become_shares() -> None:
    usual = RolloutsSettings(canary=(50.0, 100.0), dwell_s=10.0, shadow=20.0, most_differing=5.0)
    flags = {"shadow": 10.0, "tolerance": 0.5, "dwell_s": None, "shadow_dwell_s": 60.0}
    found = StartOptions(model="m", canary=("1%", "100"), flags=flags).policy(usual)
    assert found == CanaryPolicy(
        steps=(0.01, 1.0), dwell_s=10.0, shadow=0.1, shadow_dwell_s=60.0, most_differing=0.05, tolerance=0.5
    )
    assert StartOptions(model="m", canary=("none",)).policy(usual).steps == ()


@pytest.mark.parametrize(
    ("canary", "flags", "says"),
    [
        (("five",), {}, "5,25,100, or none"),
        (("none",), {}, "--shadow 10"),
        (("50",), {}, "5,25,100"),
        ((), {"tolerance": float("nan")}, "--tolerance"),
    ],
)
def test_what_is_no_rollout_is_said(canary: tuple[str, ...], flags: dict[str, float | None], says: str) -> None:
    with pytest.raises(Misconfigured, match=says):
        StartOptions(model="m", canary=canary, flags=flags).policy(USUAL)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("emulated", "its backend is emulated, and only Python code is brought into a function"),
        ("oip", "its backend is oip"),
        ("python", "its files take more than 480 MiB, or rollout.functions.provisioned"),
    ],
)
def test_a_model_whose_functions_cannot_answer_as_a_new_version_says_why(kind: BackendKind, says: str) -> None:
    model = replace(served(overflow=LAMBDA), backend=BackendSpec(kind=kind, target="there"))
    versions = ModelVersions(model="echo", stable="old")
    with pytest.raises(Misconfigured, match=re.escape(says)):
        check_may_start(model, versions, CanaryPolicy())
    check_may_start(replace(model, function_versions=True), versions, CanaryPolicy())
