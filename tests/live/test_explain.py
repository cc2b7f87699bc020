"""`mark explain` of a service that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.settings import Settings
from mark.live.commands import explain_live
from mark.live.local.run_dir import RunFolder
from mark.service_spec import ServiceSpec


@pytest.fixture
def explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that are explained, of an ended service with journals of two."""
    monkeypatch.setenv("MARK_STATE", str(tmp_path))
    folder = RunFolder.of("shop")
    folder.lock("shop").close()
    served = [{"model": "resnet-50"}, {"model": "inception-v3"}]
    folder.create(
        Settings.model_validate({"service": {"name": "shop", "serve": served}}),
        ServiceSpec(name="shop", models=()),
    )
    for one in served:
        (folder.path / one["model"]).mkdir()
        (folder.path / one["model"] / "journal.jsonl").touch()
    found: list[str] = []
    monkeypatch.setattr(explain_live, "_explain", lambda model, *_, **__: found.append(model))
    return found


def test_the_first_model_of_the_settings_is_explained_unless_another_is_named(explained: list[str]) -> None:
    for model in (None, "inception-v3"):
        explain_live.explain_live("shop", model=model, minute=None, as_json=False)
    assert explained == ["resnet-50", "inception-v3"]


def test_a_folder_with_settings_of_another_version_is_explained_all_the_same(explained: list[str]) -> None:
    (RunFolder.of("shop").path / "settings.json").write_text('{"of the next version": 1}')
    explain_live.explain_live("shop", model=None, minute=None, as_json=False)
    assert explained == ["inception-v3"]
