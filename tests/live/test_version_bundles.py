"""A version's bundle holds the model's files, and is the same wherever it is packed."""

from __future__ import annotations

import json
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from mark.domain.errors import Misconfigured
from mark.live.model_files import version_of
from mark.live.version_bundles import MOST_IN_FUNCTION_MIB, VersionBundle, bundle_of, runs_in_function
from mark.plugins.load import load_model
from mark.plugins.version_hash import BACKEND_FILE, check_unpacked
from mark.service_spec import BackendSpec

CODE = """
from helping import OFFSET
from pathlib import Path

class Shop:
    offset = OFFSET
    weights = (Path(__file__).parent / "weights.txt").read_text()
"""


@pytest.fixture
def backend(tmp_path: Path) -> BackendSpec:
    home = tmp_path / "home"
    home.mkdir()
    (home / "model.py").write_text(CODE)
    (home / "helping.py").write_text("OFFSET = 1")
    (home / "weights.txt").write_text("old")
    return BackendSpec(kind="python", target=f"{home}/model.py:Shop")


def test_an_instance_serves_the_version_that_was_packed(backend: BackendSpec, tmp_path: Path) -> None:
    bundle = bundle_of(backend)
    assert bundle.key == f"artifacts/versions/{bundle.version}.tar.gz"
    assert bundle.backend.folder == f"/versions/{bundle.version}"
    bundle.write(tmp_path / "b.tar.gz")
    there = tmp_path / "versions" / bundle.version
    there.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", str(tmp_path / "b.tar.gz"), "-C", str(there)], check=True)  # noqa: S603, S607
    assert check_unpacked(there, bundle.version).target == "model.py:Shop"
    target = bundle.backend.target.replace("/versions", str(there.parent))
    model = load_model(target, there)
    assert (model.offset, model.weights) == (1, "old")  # type: ignore[attr-defined]
    assert version_of(BackendSpec(kind="python", target=target, folder=str(there))) == bundle.version


def test_the_same_files_give_the_same_bytes(
    backend: BackendSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_of(backend)
    bundle.write(tmp_path / "one")
    (tmp_path / "home" / "model.py").touch(mode=0o600)
    later = time.time() + 1e6
    monkeypatch.setattr(time, "time", lambda: later)
    bundle.write(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_that_was_edited_meanwhile_is_in_no_bundle(backend: BackendSpec, tmp_path: Path) -> None:
    bundle = bundle_of(backend)
    (tmp_path / "home" / "weights.txt").write_text("new")
    with pytest.raises(Misconfigured, match="edited meanwhile"):
        bundle.write(tmp_path / "b.tar.gz")
    assert not (tmp_path / "b.tar.gz").exists()
    with pytest.raises(Misconfigured, match="edited meanwhile"):
        bundle.keep(tmp_path / "kept")  # a copy of other files under this version's name


def test_the_bundle_tells_functions_how_to_load_it(backend: BackendSpec, tmp_path: Path) -> None:
    bundle = bundle_of(backend)
    bundle.write(tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as packed:
        told = packed.extractfile(BACKEND_FILE)
        assert told is not None
        assert json.load(told) == {"kind": "python", "target": "model.py:Shop", "installed": None}
    assert bundle.unpacked_bytes == len(CODE) + len("OFFSET = 1") + len("old")
    assert runs_in_function(bundle)


def test_what_has_no_room_in_a_function_fits_none(backend: BackendSpec, tmp_path: Path) -> None:
    with (tmp_path / "home" / "weights.txt").open("r+b") as weights:
        weights.truncate((MOST_IN_FUNCTION_MIB + 1) * 1024**2)
    assert not runs_in_function(VersionBundle(source=backend, version="a" * 12))


def test_what_is_installed_has_none_of_its_files_in_its_bundle(tmp_path: Path) -> None:
    bundle = bundle_of(BackendSpec(kind="oip", target="http://127.0.0.1:8500"))
    bundle.write(tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as packed:
        assert packed.getnames() == [BACKEND_FILE]
    assert bundle.backend.folder == ""


CHANGES = {
    "a file was edited": lambda there: (there / "helping.py").write_text("OFFSET = 2"),
    "a file was added": lambda there: (there / "numpy.py").write_text(""),
    "compiled code was added": lambda there: (
        (there / "__pycache__").mkdir() or (there / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"")
    ),
    "a file is missing": lambda there: (there / "weights.txt").unlink(),
    "a file leads elsewhere": lambda there: (there / "more.py").symlink_to("/etc/hostname"),
    "another model is loaded": lambda there: (there / BACKEND_FILE).write_text(
        '{"kind": "python", "target": "x:y"}'
    ),
    "it does not tell how": lambda there: (there / BACKEND_FILE).unlink(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_bundle_that_is_not_what_its_name_stands_for_is_not_run(
    backend: BackendSpec, tmp_path: Path, what: str
) -> None:
    bundle = bundle_of(backend)
    bundle.write(tmp_path / "b.tar.gz")
    there = tmp_path / "there"
    with tarfile.open(tmp_path / "b.tar.gz") as packed:
        packed.extractall(there, filter="data")
    check_unpacked(there, bundle.version)
    CHANGES[what](there)
    with pytest.raises(Misconfigured, match="other files than its name stands for"):
        check_unpacked(there, bundle.version)
