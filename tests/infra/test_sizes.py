"""Sizes of what is synthesised, against what AWS takes of it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from infra.app import what_is_missing
from mark.config.settings import Settings
from mark.deployment.doctor import check_sizes
from mark.deployment.synth import Synthesis, synthesise
from mark.domain.errors import Misconfigured
from tests.infra.conftest import LEAN, settings


def _with_profiles(folder: Path, bytes_: int) -> Settings:
    """A lean service whose profiles take so many bytes that cannot be packed."""
    whole = settings(folder, **LEAN, machines=None)
    profile = folder / "mine.json"
    noise = "".join(sha256(b"%d" % number).hexdigest() for number in range(bytes_ // 32))
    shipped = Path("mark/catalog/data/profiles")
    document = json.loads(next(iter(sorted(shipped.glob("*.json")))).read_text(encoding="utf-8"))
    document["profiles"][0]["source"] = noise
    profile.write_text(json.dumps(document), encoding="utf-8")
    return whole.model_copy(update={"profiles": (*whole.profiles, str(profile))})


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "-")
def test_files_that_ec2_would_not_take_are_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    too_much = _with_profiles(tmp_path, 12_000)
    [wrong] = [found for found in check_sizes(too_much) if found.state != "ok"]
    assert (wrong.state, wrong.message.split(" has ")[0]) == ("error", "the start script of mark-shop-node")
    assert "name fewer or smaller files" in wrong.remedy
    with pytest.raises(Misconfigured, match=r"mark-shop-node has up to .* bytes, of 16,384 .*; name fewer"):
        synthesise(too_much)


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "-")
def test_recipients_that_lambda_would_not_take_are_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    many = [f"{'a' * 50}.{number}@example.org" for number in range(70)]
    too_many = settings(tmp_path, **LEAN, report={"sender": "mark@example.com", "to": many})
    with pytest.raises(
        Misconfigured, match=r"mark-shop-report has up to .* bytes, of 4,096 .*; write one address"
    ):
        synthesise(too_many)


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
