"""MArk's own wheel, as an installation packs it again; a whole one is compared in tests/test_packaging.py."""

from __future__ import annotations

import base64
import csv
import hashlib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.infra import wheel
from mark.infra.wheel import main, with_record

METADATA = "mark_serving-0.1.0.dist-info"
NAMES = st.text("abc,_ /.", min_size=1).map(lambda name: f"mark/{name}.py")


@given(files=st.dictionaries(NAMES, st.binary(max_size=50), max_size=5))
def test_the_record_has_each_file_once_with_what_it_holds(files: dict[str, bytes]) -> None:
    packed = with_record(files, METADATA)
    record = f"{METADATA}/RECORD"
    rows = {name: (digest, size) for name, digest, size in csv.reader(packed[record].decode().splitlines())}

    assert packed.keys() == rows.keys() == {*files, record}
    assert rows[record] == ("", "")
    for name, data in files.items():
        kind, _, digest = rows[name][0].partition("=")
        assert (kind, rows[name][1]) == ("sha256", str(len(data)))
        assert base64.urlsafe_b64decode(f"{digest}=") == hashlib.sha256(data).digest()


def test_sources_that_are_neither_a_clone_nor_installed_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(wheel, "HOUSE", tmp_path)
    monkeypatch.setattr(wheel, "distribution", absent)

    assert main(["--to", str(tmp_path / "to")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mark.infra.wheel: mark-serving is not installed")
    assert said.err.count("\n") == 1
