"""The distribution says under which licence it may be used, and holds the licence's text."""

from __future__ import annotations

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
