"""The distribution says under which licence it may be used, and holds the licence's text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from email.parser import Parser
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
PAPER = "https://www.usenix.org/conference/atc19/presentation/zhang-chengliang"
BUILD = "import sys; from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel('.'))"


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's metadata, built by the backend that pyproject.toml names, without the packages."""
    folder = tmp_path_factory.mktemp("distribution")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOUSE / name, folder)
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.dist-info"))


def test_the_wheel_names_its_licence_and_the_paper(metadata: Path) -> None:
    fields = Parser().parsestr((metadata / "METADATA").read_text())

    assert fields["License-Expression"] == "Apache-2.0"
    assert fields.get_all("License-File") == ["LICENSE"]
    assert fields.get_all("Project-URL") == [f"Paper, {PAPER}"]


def test_the_wheel_holds_the_whole_licence(metadata: Path) -> None:
    text = (metadata / "licenses" / "LICENSE").read_text()

    assert text == (HOUSE / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_readme_links_licence_paper_and_how_to_help() -> None:
    text = (HOUSE / "README.md").read_text()

    assert PAPER in text
    assert all(
        f"({name})" in text and (HOUSE / name).is_file() for name in ("LICENSE", "CONTRIBUTING.md", "SECURITY.md")
    )


WHEEL = "import sys; from setuptools import build_meta; print(build_meta.build_wheel('.'))"
OWN = """
import numpy as np
from mark.domain.tensor import TensorSpec
from models.util import FACTOR

class Hand:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 4)),)

    def predict(self, tensors):
        return {"y": np.asarray(tensors["x"]) * FACTOR}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, as an installation lays them out."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOUSE / name, source)
    for name in ("mark", "models", "predictors", "lambda_handlers", "infra"):
        shutil.copytree(HOUSE / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", WHEEL], cwd=source, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    shutil.unpack_archive(next(source.glob("*.whl")), target, "zip")
    return target


@pytest.mark.slow
def test_an_installation_serves_a_user_s_own_package_called_models(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "hand.py").write_text(OWN)
    (tmp_path / "models" / "util.py").write_text("FACTOR = 2\n")
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def mark(*arguments: str) -> str:
        code = "import mark, sys; from mark.cli.main import main; print(mark.__file__, file=sys.stderr); main()"
        done = subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-P", "-c", code, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert str(installed) in done.stderr
        return done.stdout

    for target, name in (("models.hand:Hand", "hand"), ("models.digits:Digits", "digits")):
        said = mark("profile", "--target", target, "--model", name, "--seconds", "0.1", "--batches", "1", "--json")
        assert json.loads(said)["points"]
    assert "digits" in mark("models")
