"""Packages of a model's own: in its process alone, nothing else beside them; a clear word where there are none."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Parallelism
from mark.plugins.load import make_model
from mark.plugins.packages import install, is_installed, kind_here, place_of
from mark.serving.backends.replicas import ReplicatedBackend
from tests.serving.backends.asks import ask, outputs
from tests.waiting import PATIENCE_S
from tests.wheels import make_wheel, with_requirements

CODE = """
from importlib.util import find_spec

import numpy as np
import shade
from mark.domain.tensor import TensorSpec


class Model:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 1)),)

    def predict(self, tensors):
        others = [name for name in ("pydantic", "pytest") if find_spec(name)]
        return {"y": tensors["x"][:, :1] * (shade.FACTOR + 1000 * len(others))}
"""


@pytest.fixture(autouse=True)
def _no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def model_in(folder: Path, version: str) -> Path:
    with_requirements(folder, version, f"FACTOR = {version}")
    (folder / "model.py").write_text(CODE)
    return folder / "requirements.txt"


def backend_in(folder: Path, into: Path) -> ReplicatedBackend:
    packages = install("m", folder / "requirements.txt", into) / kind_here()
    make = partial(make_model, f"{folder}/model.py:Model", None)
    return ReplicatedBackend(make, Parallelism(), name="m", packages=packages)


@pytest.mark.slow
def test_two_versions_of_a_library_serve_side_by_side_and_nothing_else_is_there(tmp_path: Path) -> None:
    for version in ("2.0", "3.0"):
        model_in(tmp_path / version, version)
    backends = [backend_in(tmp_path / version, tmp_path / "packages") for version in ("2.0", "3.0")]

    async def answers() -> list[float]:
        try:
            found = []
            for backend in backends:
                await backend.start()
                (reply,) = await backend.infer([ask([5, 0])])
                found.append(float(outputs(reply)[0][0]))
            return found
        finally:
            for backend in backends:
                await backend.close()

    assert asyncio.run(asyncio.wait_for(answers(), PATIENCE_S)) == [10.0, 15.0]


def test_the_same_requirements_are_installed_once(tmp_path: Path) -> None:
    requirements, into = model_in(tmp_path / "one", "2.0"), tmp_path / "packages"
    assert not is_installed(requirements, into)
    place = install("one", requirements, into)
    (place / kind_here() / "shade.py").write_text("FACTOR = 7")
    (tmp_path / "two").mkdir()
    for file in requirements.parent.iterdir():
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())
    assert install("two", tmp_path / "two" / "requirements.txt", into) == place
    assert (place / kind_here() / "shade.py").read_text() == "FACTOR = 7"


def test_another_wheel_under_the_same_name_is_another_folder(tmp_path: Path) -> None:
    requirements = model_in(tmp_path, "2.0")
    before = place_of(requirements, tmp_path)
    make_wheel(tmp_path, "shade", "2.0", "FACTOR = 9")
    assert place_of(requirements, tmp_path) != before


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("no-such-thing==9", "no-such-thing==9"),
        ("-r missing.txt", "missing.txt"),
    ],
)
def test_what_does_not_resolve_is_one_line_with_model_and_requirement(
    tmp_path: Path, line: str, named: str
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"{line}\n")
    with pytest.raises(Misconfigured) as refused:
        install("shop", requirements, tmp_path / "packages")
    said = str(refused.value)
    assert "\n" not in said
    assert said.startswith(f"shop: {requirements} cannot be installed: ")
    assert named in said.partition("installed: ")[2]
    assert not is_installed(requirements, tmp_path / "packages")
    assert not [*tmp_path.glob("packages/*/*")]


def test_packages_for_instances_are_those_of_their_machines(tmp_path: Path) -> None:
    requirements, into = model_in(tmp_path / "m", "2.0"), tmp_path / "packages"
    place = install("m", requirements, into, kinds=("amd64", "arm64"), on_instances=True)
    assert [one.name for one in sorted(place.iterdir())] == ["amd64", "arm64"]
    assert place != place_of(requirements, into)
    assert (place / "arm64" / "shade.py").is_file()
