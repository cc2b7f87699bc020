"""What `mark synth` writes, for the AWS CLI and for CDK's command line."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.deployment import templates
from mark.deployment.synth import Synthesis
from tests.infra.conftest import ACCOUNT, REGION, settings


@pytest.fixture
def written(synthesis: Synthesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(templates, "synthesise", lambda asked: synthesis)
    folder = tmp_path / "stacks"
    templates.write_templates(settings(tmp_path), folder)
    return folder


def _stacks(folder: Path) -> dict[str, Any]:
    assembly: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return dict(assembly["artifacts"])


def test_the_folder_is_a_cloud_assembly(written: Path, synthesis: Synthesis) -> None:
    assert json.loads((written / "cdk.json").read_text()) == {"app": "."}
    stacks = _stacks(written)
    found = {s["properties"]["stackName"]: written / s["properties"]["templateFile"] for s in stacks.values()}
    assert {name: json.loads(path.read_text()) for name, path in found.items()} == dict(synthesis.templates)
    assert sorted(found.values()) == sorted(written.glob("*.template.json"))


def test_cdk_deploys_in_order_and_removes_all_but_the_archive_with_its_neighbour(written: Path) -> None:
    stacks = _stacks(written)
    before: str | None = None
    for name, stack in stacks.items():
        assert stack.get("dependencies", []) == ([before] if before else [])
        before = name
    assert list(stacks)[:2] == ["archive", "network"]


def test_cdk_needs_no_bootstrap(written: Path) -> None:
    for stack in _stacks(written).values():
        assert stack["environment"] == f"aws://unknown-account/{REGION}"
        assert not {"assumeRoleArn", "cloudFormationExecutionRoleArn", "stackTemplateAssetObjectUrl"} & set(
            stack["properties"]
        )
        assert stack["properties"]["tags"] == {
            "cost-centre": "research",
            "mark:owner": "team@example.com",
            "mark:service": "shop",
        }


def test_scripts_can_be_run(written: Path, synthesis: Synthesis) -> None:
    for name in ("deploy.sh", "bundles.sh"):
        assert (written / name).stat().st_mode & 0o100
        subprocess.run(["bash", "-n", str(written / name)], check=True)  # noqa: S603, S607
    told = (written / "deploy.sh").read_text()
    assert [name for name in synthesis.templates if f"--stack-name {name} " not in told] == []
    assert told.index("mark-shop-archive") < told.index("./bundles.sh") < told.index("mark-shop-network")
    for line in told.splitlines():
        if file := re.search(r"--template-file (\S+)", line):
            is_long = (written / file[1]).stat().st_size > 51_200  # what the AWS CLI takes without a bucket
            assert (' --s3-bucket "$bucket" --s3-prefix templates' in line) == is_long, line
    assert told.index("list-exports") < told.index("--s3-bucket")
    uploads = (written / "bundles.sh").read_text()
    for bundle in synthesis.bundles:
        assert f"aws s3 cp {bundle.key} " in uploads
        assert (written / bundle.key).read_bytes() == bundle.path.read_bytes()
    for version in synthesis.versions.values():
        assert f"aws s3 cp {version.key} " in uploads
        assert (written / version.key).is_file()


def test_what_an_earlier_run_wrote_is_replaced(
    synthesis: Synthesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = tmp_path / "99-mark-shop-gone.template.json"
    stale.write_text("{}")
    monkeypatch.setattr(templates, "synthesise", lambda asked: synthesis)
    templates.write_templates(Settings(), tmp_path)
    assert not stale.exists()
    assert ACCOUNT not in (tmp_path / "deploy.sh").read_text()
