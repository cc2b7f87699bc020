"""The distribution says under which licence it may be used, and holds the licence's text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

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
        [sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of what git would hold."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOUSE / name, source)
    for name in ("mark", "docs"):
        shutil.copytree(HOUSE / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", WHEEL], cwd=source, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return next(source.glob("*.whl"))


ALONE = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def install(python: Path, wheel: Path) -> None:
    """Put the wheel into an environment, in the place of one that is there."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    done = subprocess.run(  # noqa: S603 - our own wheel
        [*pip, "--force-reinstall", str(wheel)],
        env=ALONE,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and nothing of the sources; its libraries are those of this one.

    A path in a `.pth` file comes after the environment's own packages and brings no editable installation along.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install(python, wheel)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder


def test_an_installation_packs_the_wheel_that_it_came_from(wheel: Path, environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    command = [str(python), "-P", "-m", "mark.infra.wheel", "--to", str(tmp_path)]
    done = subprocess.run(  # noqa: S603 - our own code
        command, cwd=tmp_path, env=ALONE, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    (again,) = tmp_path.glob("*.whl")

    def members(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}

    first, second = members(wheel), members(again)
    documents = {name for name in first if ".data/" in name}
    tops = {name.partition("/")[0] for name in first.keys() - documents}
    assert [top for top in tops if not top.endswith(".dist-info")] == ["mark"]
    assert {name: first[name] for name in first.keys() - documents} == second
    assert any(name.endswith("docs/deploy.md") for name in documents)
    install(python, again)


def test_an_installation_serves_a_user_s_own_package_called_models(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "hand.py").write_text(OWN)
    (tmp_path / "models" / "util.py").write_text("FACTOR = 2\n")

    def mark(*arguments: str) -> str:
        code = "import mark, sys; from mark.cli.main import main; print(mark.__file__, file=sys.stderr); main()"
        done = subprocess.run(  # noqa: S603 - our own code
            [str(environment / "bin" / "python"), "-P", "-c", code, *arguments],
            cwd=tmp_path,
            env=ALONE,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        assert str(environment) in done.stderr
        return done.stdout

    for target, name in (
        *(("models.hand:Hand", "hand"), ("models/hand.py:Hand", "hand")),
        ("mark.models.digits:Digits", "digits"),
    ):
        said = mark("profile", "--target", target, "--model", name, "--seconds", "0.1", "--batches", "1", "--json")
        assert json.loads(said)["points"]
    assert "digits" in mark("models")
