"""A version is the hash of a model's files, and what is served is a copy that no edit reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.live import model_files
from mark.live.model_files import changed_files, keep_version, remove_versions, version_of
from mark.plugins.load import load_model
from mark.service_spec import BackendSpec

CODE = """
from helping import OFFSET
from pathlib import Path

class Shop:
    offset = OFFSET
    weights = (Path(__file__).parent / "weights.txt").read_text()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a model, code that it imports, and data that it reads."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "model.py").write_text(CODE)
    (folder / "helping.py").write_text("OFFSET = 1")
    (folder / "weights.txt").write_text("old")
    return folder


def by_file(shop: Path) -> BackendSpec:
    return BackendSpec(kind="python", target=f"{shop}/model.py:Shop")


def by_module(shop: Path) -> BackendSpec:
    return BackendSpec(kind="python", target="model:Shop", folder=str(shop))


@pytest.mark.parametrize("backend", [by_file, by_module])
@pytest.mark.parametrize("name", ["model.py", "helping.py", "weights.txt", "more.bin"])
def test_each_file_of_the_model_makes_another_version(shop: Path, name: str, backend: object) -> None:
    assert callable(backend)
    before = version_of(backend(shop))
    assert version_of(backend(shop)) == before
    with (shop / name).open("a") as file:
        file.write("\n# edited")
    assert version_of(backend(shop)) != before


def test_what_changed_is_named_from_the_models_own_folder(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "unrelated.py").write_text("1")
    backend = BackendSpec(kind="python", target=f"{shop}/model.py:Shop", folder=str(tmp_path))
    _, kept = keep_version(backend, tmp_path.parent / f"{tmp_path.name}-copies")
    assert changed_files(kept, backend) == ()
    (tmp_path / "unrelated.py").write_text("2")
    (shop / "weights.txt").write_text("new")
    (shop / "helping.py").unlink()
    (shop / "more.bin").write_text("more")
    found = changed_files(kept, backend)
    assert set(found) == {"helping.py (gone)", "more.bin (new)", "weights.txt", "../unrelated.py"}
    remove_versions(tmp_path.parent / f"{tmp_path.name}-copies", [Path(kept.folder).name])
    assert changed_files(kept, backend) == (), "of another machine"


def test_what_is_no_part_of_it_makes_none(shop: Path) -> None:
    before = version_of(by_file(shop))
    for folder in ("__pycache__", ".git", "env"):
        (shop / folder).mkdir()
        (shop / folder / "x.py").write_text("x")
    (shop / "env" / "pyvenv.cfg").write_text("home")
    assert version_of(by_file(shop)) == before


def test_the_same_files_elsewhere_are_the_same_version(shop: Path, tmp_path: Path) -> None:
    moved = shop.rename(tmp_path / "moved")
    first = version_of(by_file(moved))
    moved.rename(shop)
    assert version_of(by_file(shop)) == first


@pytest.mark.parametrize("backend", [by_file, by_module])
def test_an_edited_file_never_mixes_into_a_kept_version(shop: Path, tmp_path: Path, backend: object) -> None:
    assert callable(backend)
    version, kept = keep_version(backend(shop), tmp_path / "kept")
    (shop / "helping.py").write_text("OFFSET = 2")
    (shop / "weights.txt").write_text("new")
    later, changed = keep_version(backend(shop), tmp_path / "kept")
    assert later != version

    def loaded(spec: BackendSpec) -> tuple[int, str]:
        found = load_model(spec.target, Path(spec.folder))
        return found.offset, found.weights  # type: ignore[attr-defined]

    assert loaded(kept) == (1, "old")
    assert loaded(changed) == (2, "new")
    assert keep_version(backend(shop), tmp_path / "kept") == (later, changed)
    assert version_of(kept) == version


def test_a_copy_that_somebody_edited_is_made_again(shop: Path, tmp_path: Path) -> None:
    version, kept = keep_version(by_file(shop), tmp_path / "kept")
    (tmp_path / "kept" / version / "helping.py").write_text("OFFSET = 3")
    assert keep_version(by_file(shop), tmp_path / "kept") == (version, kept)
    assert (tmp_path / "kept" / version / "helping.py").read_text() == "OFFSET = 1"


def test_copies_of_versions_are_removed_by_name(shop: Path, tmp_path: Path) -> None:
    version, kept = keep_version(by_file(shop), tmp_path / "kept")
    (shop / "model.py").write_text(CODE + "# edited")
    later, served = keep_version(by_file(shop), tmp_path / "kept")
    remove_versions(tmp_path / "kept", (version, "ffffffffffff"))
    assert not Path(kept.folder).exists()
    assert version_of(served) == later


def test_data_behind_a_link_is_part_of_the_model(shop: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (shop / "weights.txt").rename(elsewhere / "weights.txt")
    (shop / "data").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(shop)  # a circle ends
    (shop / "model.py").write_text(CODE.replace('"weights.txt"', '"data" / "weights.txt"'))
    version, kept = keep_version(by_file(shop), tmp_path / "kept")
    assert load_model(kept.target, Path(kept.folder)).weights == "old"  # type: ignore[attr-defined]
    (elsewhere / "weights.txt").write_text("new")
    assert version_of(by_file(shop)) != version


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that refuses to be read")
def test_a_file_that_cannot_be_read_is_one_line(shop: Path, tmp_path: Path) -> None:
    (shop / "memory").symlink_to("/proc/self/mem")
    with pytest.raises(Misconfigured, match="cannot read a file of the model"):
        keep_version(by_file(shop), tmp_path / "kept")


def test_a_folder_of_everything_is_no_model(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "MOST_FILES", 2)
    with pytest.raises(Misconfigured, match="folder of its own"):
        version_of(by_file(shop))


@given(kind=st.sampled_from(["emulated", "oip"]), one=st.text(max_size=5), other=st.text(max_size=5))
def test_other_backends_differ_by_their_target(kind: object, one: str, other: str) -> None:
    first, second = (BackendSpec(kind=kind, target=text) for text in (one, other))  # type: ignore[arg-type]
    assert (version_of(first) == version_of(second)) == (one == other)


def test_what_is_installed_is_known_by_its_module(tmp_path: Path) -> None:
    backend = BackendSpec(kind="python", target="mark.domain.errors:MarkError")
    assert keep_version(backend, tmp_path) == (version_of(backend), backend)
