"""The Dockerfiles name what there is; building them takes a registry and minutes, so nothing is built here."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from mark.aws.resources import RUNTIME, handler_of
from mark.live.processes import cloud
from mark.rollout.images import FOLDER, FOR_FUNCTIONS, FOR_PROCESSES, LAMBDA_TAKES

DOCS = FOLDER.parents[1] / "docs"
BUILD_ARG = re.compile(r"--build-arg (\w+)=")


def told(dockerfile: str, word: str) -> list[str]:
    """What stands behind an instruction."""
    text = (FOLDER / dockerfile).read_text(encoding="utf-8")
    return re.findall(rf"^{word} (.*)$", text, flags=re.MULTILINE)


def test_functions_have_the_handler_and_the_python_of_the_zips() -> None:
    assert json.loads(told(FOR_FUNCTIONS, "CMD")[0]) == [handler_of("infer")]
    module, _, function = handler_of("infer").rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
    assert told(FOR_FUNCTIONS, "FROM")[0].rpartition(":")[2] == RUNTIME.removeprefix("python")


def test_processes_are_started_as_the_stacks_do() -> None:
    assert json.loads(told(FOR_PROCESSES, "CMD")[0])[:3] == ["python", "-m", cloud.__name__]


@pytest.mark.parametrize("dockerfile", [FOR_PROCESSES, FOR_FUNCTIONS])
def test_torch_comes_without_cuda_unless_another_index_is_named(dockerfile: str) -> None:
    arguments = dict(line.partition("=")[::2] for line in told(dockerfile, "ARG"))
    assert arguments["MARK"] == ""
    assert arguments["TORCH_INDEX"].endswith("/cpu")
    [install] = re.findall(r"pip install (.*)", (FOLDER / dockerfile).read_text(encoding="utf-8"))
    assert '--extra-index-url "$TORCH_INDEX"' in install


@pytest.mark.parametrize("page", ["rollout.md", "handlers.md"])
def test_pages_name_arguments_and_files_that_there_are(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    known = {line.partition("=")[0] for line in told(FOR_PROCESSES, "ARG")}
    assert set(BUILD_ARG.findall(text)) <= known
    files = re.findall(r"docker (?:buildx )?build -f CLONE/(\S+)(.*)", text)
    assert files
    for file, flags in files:
        assert (FOLDER.parents[1] / file).is_file()
        assert all(flag in flags for flag in LAMBDA_TAKES) == (Path(file).name == FOR_FUNCTIONS)
