"""Versions with which a rollout begins: what they need has to be there, and to fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.config.settings import Settings, packages_dir
from mark.deployment.model_versions import first_bundles
from mark.live.models import LiveModel, make_live_models
from mark.plugins.packages import place_of
from mark.service_spec import BackendSpec
from tests.wheels import with_requirements

SETTINGS = Settings.model_validate(
    {
        "service": {
            "serve": [{"model": "resnet-50", "backend": {"kind": "emulated"}, "profiles": ["assumed-current"]}]
        }
    }
)


def model_in(folder: Path) -> LiveModel:
    (model,) = make_live_models(SETTINGS)
    (folder / "model.py").write_text("")
    requirements = folder / "requirements.txt"
    packages = str(place_of(requirements, packages_dir())) if requirements.exists() else ""
    spec = BackendSpec(kind="python", target=f"{folder}/model.py:Model", packages=packages)
    return replace(model, served=replace(model.served, backend=spec))


def test_packages_come_for_the_machines_that_the_model_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    (tmp_path / "model").mkdir()
    with_requirements(tmp_path / "model", "2.0", "FACTOR = 2")
    model = model_in(tmp_path / "model")
    bundle = first_bundles(SETTINGS, [model])["resnet-50"]
    packages = bundle.packages()
    assert packages is not None
    assert sorted(one.name for one in packages.iterdir()) == sorted(model.served.model.architectures)
    assert bundle.instance_bytes > bundle.unpacked_bytes
    assert bundle.backend.packages == f"/versions/{bundle.version}/.packages"
