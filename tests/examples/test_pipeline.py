"""Workflows of the example: they are GitHub's in form, and their `mark` lines are such as MArk takes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.cli.test_doc_commands import parse, simple_commands
from tests.examples.shell import EXAMPLES, commands

PIPELINE = EXAMPLES / "pipeline"
WORKFLOWS = {"diff.yml": ("plan", ["diff"]), "deploy.yml": ("production", ["doctor", "deploy"])}
"""The environment that GitHub protects, and what `mark` is asked to do there."""


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_commands_that_there_are(name: str) -> None:
    environment, asked = WORKFLOWS[name]
    (job,) = yaml.safe_load((PIPELINE / name).read_text(encoding="utf-8"))["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    lines = [line for step in steps for line in step.get("run", "").splitlines() if line.startswith("mark ")]
    said = [words for line in lines for words in simple_commands(line)]

    assert job["environment"] == environment
    assert all(("run" in step) != ("uses" in step) for step in steps)
    assert [words[0] for words in said] == asked
    for words in said:
        parse(words)


def test_the_role_admits_the_environments_of_the_workflows() -> None:
    (statement,) = json.loads((PIPELINE / "trust.json").read_text(encoding="utf-8"))["Statement"]
    admitted = str(statement["Condition"]["StringEquals"])

    assert set(re.findall(r"environment:(\w+)", admitted)) == {name for name, _ in WORKFLOWS.values()}
    assert any(line.endswith("file://trust.json") for line in commands("pipeline"))
