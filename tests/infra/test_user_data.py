"""Start scripts of what is synthesised, against the user data that EC2 takes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from infra.app import what_is_missing
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.rollout.doctor import check_user_data
from mark.rollout.synth import Synthesis, synthesise
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
    found = check_user_data(too_much)
    assert (found.state, found.message.split(" has ")[0]) == ("error", "the start script of mark-shop-node")
    assert "name fewer or smaller files" in found.remedy
    with pytest.raises(Misconfigured, match=r"mark-shop-node has up to .* bytes, of 16,384 .*; name fewer"):
        synthesise(too_much)


def test_a_service_without_an_image_has_no_start_scripts_yet() -> None:
    found = check_user_data(Settings.model_validate({"service": {"name": "shop"}}))
    assert (found.state, found.message.split(": ")[1]) == ("skipped", "rollout.image is missing")


def test_scripts_of_what_is_synthesised_fit(lean_synthesis: Synthesis, trial_synthesis: Synthesis) -> None:
    assert lean_synthesis.user_data.fits
    assert trial_synthesis.user_data.fits
    assert trial_synthesis.user_data.files_bytes > 0
