"""The notebooks of examples/notebooks: as they are kept, and run from their first cell to their last."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import mark
from mark.extras import pip_install
from tests.examples.shell import EXAMPLES

NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
WITHIN_S = 600
"""A cell of a notebook that is not done within this hangs, even on a busy machine."""
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return [one for one in found if one["cell_type"] == kind]


def test_the_readme_names_each() -> None:
    readme = (EXAMPLES / "notebooks" / "README.md").read_text()
    assert NOTEBOOKS
    assert all(f"({path.name})" in readme for path in NOTEBOOKS)


@each
def test_it_is_kept_without_outputs_and_begins_with_what_to_install(path: Path) -> None:
    first, *_ = json.loads(path.read_text())["cells"]
    assert first["cell_type"] == "markdown"
    text = "".join(first["source"])
    assert text.count("pip install") == text.count(pip_install("notebook")) == 1
    for cell in cells(path, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        lines = "".join(cell["source"]).splitlines()
        tree = ast.parse("\n".join(line for line in lines if not line.startswith("%%")))
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        assert all(hasattr(mark, one.attr) for one in used if ast.unparse(one.value) == "mark")


@each
@pytest.mark.slow
def test_it_runs_and_shows_a_verdict_and_pictures(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # only this needs a kernel
    import nbformat  # noqa: PLC0415
    from nbclient import NotebookClient  # noqa: PLC0415

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    read: Any = nbformat.read
    notebook = read(path, as_version=4)
    client = NotebookClient(notebook, timeout=WITHIN_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = "".join(one["data"].get("text/html", "") for one in outputs if "data" in one)
    assert "a month" in shown
    assert shown.count("<svg") >= 3
    assert "slo.attained" in shown
