"""The mark.yaml that `mark init` writes is one that can be used, and so is what it only hints at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mark.catalog.type_sets import is_retired
from mark.config.settings import Settings, load_settings
from mark.live.models import make_live_models
from mark.offline.own_model.init import CONFIG


@pytest.fixture
def filled() -> str:
    """With the marks taken off what a rollout needs, as docs/deploy.md says."""
    text = re.sub(r"^# (rollout:)$", r"\1", CONFIG, flags=re.MULTILINE)
    text = re.sub(r"^#   (\w+: )", r"  \1", text, flags=re.MULTILINE)
    return text.replace("# offerings:", "offerings:")


def test_what_is_written_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "mark.yaml"
    path.write_text(CONFIG)
    assert isinstance(load_settings(path, {}), Settings)


def test_what_a_rollout_needs_is_there_to_be_filled_in(filled: str, tmp_path: Path) -> None:
    path = tmp_path / "mark.yaml"
    path.write_text(filled)
    settings = load_settings(path, {})
    assert settings.rollout.image is not None
    assert settings.rollout.node.name is not None
    assert settings.rollout.node.certificate is not None
    assert settings.rollout.report.to == ("team@example.com",)
    [_, digits] = settings.service.serve
    assert digits.offerings is not None
    assert not digits.offerings.overflow


def test_graviton_is_among_the_types_that_a_newcomer_may_rent_and_nothing_retired_is(tmp_path: Path) -> None:
    path = tmp_path / "mark.yaml"
    path.write_text(CONFIG)
    models = make_live_models(load_settings(path, {}))
    types = [item.instance_type for model in models for item in model.served.offerings]
    assert {"amd64", "arm64"} == {kind.machine for kind in types}
    assert not [kind.name for kind in types if is_retired(kind)]


@pytest.mark.parametrize("flag", ["--out", "--to"])
def test_the_file_is_named_by_out_or_to(mark, flag: str) -> None:
    assert mark("init", flag, "service/own.yaml").status == 0
    assert Path("service/own.yaml").read_text() == CONFIG
    assert "--out names another" in mark("init", flag, "service/own.yaml").err


def test_a_folder_is_named_as_with_a_model(mark) -> None:
    assert mark("init", "--out", "service.d").status == 0
    assert Path("service.d/mark.yaml").read_text() == CONFIG
