"""Examples, each followed by its README from the first command to the last; those that serve: tests/end_to_end."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.examples.shell import EXAMPLES, HOUSE, Reader, commands

SERVING = HOUSE / "tests" / "end_to_end" / "test_examples.py"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_every_folder_is_in_the_list_and_has_commands() -> None:
    text = (EXAMPLES / "README.md").read_text()
    folders = {path.parent.name for path in EXAMPLES.glob("*/README.md")}

    assert folders == {path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert all(f"[{name}]({name})" in text for name in folders)
    assert all(commands(name) for name in folders)
    tests = "".join(path.read_text() for path in (*Path(__file__).parent.glob("test_*.py"), SERVING))
    assert all(f'"{name}"' in tests for name in folders)


@pytest.mark.parametrize(
    ("page", "files"),
    [
        ("own-model.md", {"scikit-learn-model/train.py"}),
        ("forecasters.md", {"own-forecaster/last_hour.py"}),
    ],
)
def test_the_docs_show_the_code_of_the_example(page: str, files: set[str]) -> None:
    blocks = PYTHON.findall((HOUSE / "docs" / page).read_text())
    shown = [re.sub(r"^# \S+/\S+\.py\n", "", block) for block in blocks]

    assert all((EXAMPLES / file).read_text() in shown for file in files)


def test_the_client_has_ten_lines() -> None:
    body = ast.parse((EXAMPLES / "client.py").read_text()).body[1:]

    assert sum(1 if not isinstance(node, ast.With) else 1 + len(node.body) for node in body) <= 10


@pytest.mark.slow
def test_traffic_of_a_load_balancer_s_log(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "own-traffic")
    said = reader.follow()

    (replay,) = [text for line, text in said.items() if "simulate" in line]
    assert all(name in replay for name in ("hedged", "reactive", "static-peak"))
    assert (reader.folder / "run" / "report.html").is_file()


def test_a_forecaster_of_one_s_own(tmp_path: Path) -> None:
    said = Reader(tmp_path, "own-forecaster").follow()

    (scores,) = [text for line, text in said.items() if "backtest" in line]
    assert "LastHour" in scores
    assert "last-value" in scores


@pytest.mark.slow
def test_the_action_replays_and_comments(tmp_path: Path) -> None:
    """Its own steps, with a `gh` that writes down what it is asked; the profile is taken as it is."""
    reader = Reader(tmp_path, "cost-comment")
    action = yaml.safe_load((reader.folder / "action.yml").read_text())
    for line in (*commands("cost-comment")[:3], "touch summary.md", "cp -r ../scikit-learn-model base"):
        reader.run(line)
    gh = tmp_path / "bin" / "gh"
    gh.write_text('#!/bin/sh\necho "$@" > gh.txt\n')
    gh.chmod(0o755)
    given = {
        "CONFIG": "../scikit-learn-model/mark.yaml",
        "BASE": "base/mark.yaml",
        "TRACE": "load.csv.gz",
        "POLICY": "hedged",
        "PROFILE": "",
        "SECONDS_OF_MEASURING": "1",
        "GITHUB_ACTION_PATH": str(reader.folder),
        "GITHUB_STEP_SUMMARY": "summary.md",
        "NUMBER": "7",
    }
    install, *steps = action["runs"]["steps"]
    exported = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in given.items())
    for step in steps:
        reader.run(f"set -e\n{exported}\n{step['run']}")

    expressions = re.findall(r"inputs\.(\w+)", str(action["runs"]))
    assert set(expressions) == set(action["inputs"])
    assert all(name in {*given, "GH_TOKEN", "GH_REPO"} for step in steps for name in step["env"])
    assert install["run"] == 'pip install "$MARK_PACKAGE"'
    said = (reader.folder / "summary.md").read_text()
    assert re.search(r"^\| hedged \| [\d.]+ \| [\d.]+ \| \+0\.0% \|", said, re.MULTILINE)
    assert "Stand-in profile: forest on c5.large" in said
    assert (reader.folder / "gh.txt").read_text().startswith("pr comment 7 --body-file cost.md")


@pytest.mark.slow
def test_a_cost_comment_without_github(tmp_path: Path) -> None:
    said = Reader(tmp_path, "cost-comment").follow()

    assert "What serving `forest` would cost" in said["cat cost.md"]
