"""Sizes of what is synthesised, against what AWS takes of it."""

from __future__ import annotations

import pytest

from mark.config.settings import Settings
from mark.deployment import synth
from mark.deployment.checks import doctor
from mark.deployment.checks.doctor import check_sizes
from mark.deployment.synth import Synthesis, synthesise
from mark.deployment.template_sizes import require_room
from mark.domain.errors import Misconfigured


def test_what_aws_would_not_take_is_refused_before_anything_is_deployed(
    too_large: tuple[Settings, Synthesis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that EC2 would not take and recipients that Lambda would not, in one synthesis."""
    asked_for, made = too_large
    for asked in (synth, doctor):
        monkeypatch.setattr(asked, "draft", lambda _: made)
    said = {
        "mark-shop-node": r"has up to .* bytes, of 16,384 .*; name fewer",
        "mark-shop-report": r"has up to .* bytes, of 4,096 .*; write one address",
    }
    refused = {one.name: one for one in made.sizes if not one.fits}
    assert set(refused) == set(said)
    for name, one in refused.items():
        with pytest.raises(Misconfigured, match=f"{name} {said[name]}"):
            require_room((one,))
    with pytest.raises(Misconfigured, match="|".join(said)):
        synthesise(asked_for)
    wrong = [found for found in check_sizes(asked_for) if found.state != "ok"]
    assert {found.state for found in wrong} == {"error"}
    remedies = {found.message.split(" has ")[0]: found.remedy for found in wrong}
    assert len(remedies) == 2
    assert "name fewer or smaller files" in remedies["the start script of mark-shop-node"]


def test_a_service_without_an_image_has_no_templates_yet() -> None:
    [found] = check_sizes(Settings.model_validate({"service": {"name": "shop"}}))
    assert (found.state, found.message.split(": ")[1]) == ("skipped", "rollout.image is missing")


def test_what_is_synthesised_fits(
    synthesis: Synthesis, lean_synthesis: Synthesis, trial_synthesis: Synthesis
) -> None:
    kinds = {"environment", "start script"}
    for made, expected in (
        (synthesis, kinds | {"task definition"}),
        (lean_synthesis, kinds),
        (trial_synthesis, kinds),
    ):
        assert {one.kind for one in made.sizes if one.fits} == expected
