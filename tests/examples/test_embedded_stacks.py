"""The examples that put the service's stacks into Terraform or a CDK app, against what `mark synth` writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mark.deployment import templates
from mark.deployment.synth import Synthesis
from tests.examples.shell import EXAMPLES
from tests.infra.conftest import lean_synthesis, settings, synthesis

__all__ = ["lean_synthesis", "synthesis"]

TERRAFORM = shutil.which("terraform")
MODULE = re.compile(r'^module "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
needs_terraform = pytest.mark.skipif(TERRAFORM is None, reason="there is no terraform to read the files with")


@pytest.fixture(scope="module", params=["synthesis", "lean_synthesis"], ids=["ha", "lean"])
def shape(request: pytest.FixtureRequest) -> Synthesis:
    return request.getfixturevalue(request.param)


@pytest.fixture
def folder(shape: Synthesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a team's, with `stacks` in it."""
    monkeypatch.setattr(templates, "synthesise", lambda asked: shape)
    templates.write_templates(settings(tmp_path), tmp_path / "stacks")
    return tmp_path


@pytest.mark.parametrize("shape", ["lean_synthesis"], ids=["lean"], indirect=True)
def test_an_app_of_ones_own_gives_the_same_stacks(shape: Synthesis, folder: Path) -> None:
    shutil.copyfile(EXAMPLES / "cdk-app" / "app.py", folder / "app.py")
    subprocess.run(
        [sys.executable, "app.py"],
        cwd=folder,
        env={
            **os.environ,
            "CDK_OUTDIR": str(folder / "cdk.out"),
            "CDK_VALIDATION": "false",  # it only warns, as infra/app.py says
            "PYTHONPATH": str(EXAMPLES.parent),
        },
        check=True,
        timeout=300,
    )
    manifest = json.loads((folder / "cdk.out" / "manifest.json").read_text())
    made = {
        one["properties"].get("stackName", name): one["properties"]["templateFile"]
        for name, one in manifest["artifacts"].items()
        if one["type"] == "aws:cloudformation:stack"
    }
    read = {name: json.loads((folder / "cdk.out" / file).read_text()) for name, file in made.items()}
    team = read.pop("shop-team")
    assert read == dict(shape.templates)
    (parameter,) = [one for one in team["Resources"].values() if one["Type"] == "AWS::SSM::Parameter"]
    assert parameter["Properties"]["Value"] == {"Fn::ImportValue": "mark-shop-bucket"}


def _terraform(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(  # noqa: S603 - a tool on this machine
        [str(TERRAFORM), *arguments],
        cwd=cwd,
        env={**os.environ, "CHECKPOINT_DISABLE": "1", "TF_DATA_DIR": str(cwd / ".terraform")},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


@needs_terraform
def test_terraform_s_files_have_its_format() -> None:
    assert _terraform("fmt", "-check", "-recursive", ".", cwd=EXAMPLES / "terraform") == ""


@needs_terraform
def test_terraform_reads_each_stack_and_each_upload_once(shape: Synthesis, folder: Path) -> None:
    """The part without a provider, planned for real."""
    shutil.copyfile(EXAMPLES / "terraform" / "files.tf", folder / "files.tf")
    outputs = "\n".join(f'output "{name}" {{\n  value = local.{name}\n}}' for name in ("stacks", "uploads"))
    (folder / "outputs.tf").write_text(outputs)
    _terraform("init", "-no-color", cwd=folder)
    _terraform("plan", "-no-color", "-out", "made.plan", cwd=folder)
    planned = json.loads(_terraform("show", "-json", "made.plan", cwd=folder))["planned_values"]["outputs"]
    stacks = planned["stacks"]["value"]
    assert {one["name"] for one in stacks.values()} == set(shape.templates)
    read = {one["name"]: json.loads((folder / one["template"]).read_text()) for one in stacks.values()}
    assert read == dict(shape.templates)
    assert {one["tags"]["mark:service"] for one in stacks.values()} == {"shop"}
    keys = {one.key for one in shape.bundles} | {one.key for one in shape.versions.values()}
    assert set(planned["uploads"]["value"]) == keys


@needs_terraform
def test_terraform_uploads_what_is_new_and_removes_nothing(folder: Path) -> None:
    """The version that serves may be one that a fresh folder has not."""
    for name in ("files.tf", "uploads.tf"):
        shutil.copyfile(EXAMPLES / "terraform" / name, folder / name)
    (folder / "archive").mkdir()
    (folder / "archive" / "main.tf").write_text('output "told" {\n  value = { ToldBucket = "b" }\n}\n')
    (folder / "main.tf").write_text('module "archive" {\n  source = "./archive"\n}\n')
    bundles, uploaded = folder / "stacks" / "bundles.sh", folder / "uploaded"
    bundles.write_text(f"#!/bin/sh\necho x >> {uploaded}\n")
    _terraform("init", "-no-color", cwd=folder)
    new = folder / "stacks" / "artifacts" / "versions" / "0123456789ab.tar.gz"
    for runs in (1, 1, 2):
        if runs == 2:
            shutil.rmtree(new.parent, ignore_errors=True)
            new.parent.mkdir(parents=True)
            new.touch()
        _terraform("apply", "-auto-approve", "-no-color", cwd=folder)
        assert uploaded.read_text().split() == ["x"] * runs
    text = "".join(path.read_text() for path in (EXAMPLES / "terraform").glob("*.tf"))
    assert re.findall(r"local\.uploads", text) == ["local.uploads"], "no resource is an upload, to be destroyed"


def test_terraform_makes_every_stack_in_its_order(shape: Synthesis) -> None:
    text = (EXAMPLES / "terraform" / "main.tf").read_text()
    modules = dict(MODULE.findall(text))
    parts = [name.removeprefix("mark-shop-") for name in shape.templates]
    assert all(re.search(rf'part += "{part}"', modules[part]) for part in parts)
    order = list(modules)
    assert [part for part in order if part in parts] == parts
    waits = {part: re.findall(r"depends_on = \[(\S+)\]", body) for part, body in modules.items()}
    assert waits[order[1]] == ["terraform_data.upload"]
    assert [waits[part] for part in order[2:]] == [[f"module.{before}"] for before in order[1:-1]]
