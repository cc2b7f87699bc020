"""Examples that serve, each followed by its README from the first command to the last."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.shell import Reader

pytestmark = pytest.mark.slow


def answer(said: dict[str, str]) -> str:
    """What the client printed."""
    (found,) = [text for line, text in said.items() if "client.py" in line]
    return found


def are_in_and_out(probabilities: str) -> None:
    """Of two points one lies in the circle."""
    inside, outside = re.findall(r"\d\.[\de+-]+", probabilities)
    assert float(inside) > 0.9
    assert float(outside) < 0.1


def test_a_model_in_torch(tmp_path: Path) -> None:
    are_in_and_out(answer(Reader(tmp_path, "torch-model").follow()).partition("'data'")[2])


def test_a_model_in_scikit_learn(tmp_path: Path) -> None:
    said = Reader(tmp_path, "scikit-learn-model").follow()

    assert re.search(r"'name': 'label'.*'data': \[0\]", answer(said))


def test_a_model_behind_its_own_server(tmp_path: Path) -> None:
    said = Reader(tmp_path, "oip-server").follow()

    assert "'data': [2.5, 6.5]" in answer(said)
    assert answer(said).startswith(("instance ", "standby "))
