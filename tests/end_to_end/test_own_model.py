"""docs/own-model.md from its first line to its last request: three models of one's own in one service."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.rig import Rig, fetch, rig

PAGE = (Path(__file__).parents[2] / "docs" / "own-model.md").read_text()
PYTHON = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
SHELL = [
    shlex.split(line) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
(MORE,) = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "forest_joblib.py" in block]
LIVE = ("up", "down")
PREPARING = [line for line in SHELL if line[1] in {"init", "predict", "profile"} or line[0] == "python"]
UP, DOWN = (next(line for line in SHELL if line[1] == word) for word in LIVE)
CURL = next(line for line in SHELL if line[0] == "curl")
ROW = {"shape": [1, 4], "data": [5.1, 3.5, 1.4, 0.2]}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The page's files, written by its own commands; one service holds its three models."""
    with rig(tmp_path_factory.mktemp("own"), "doubler") as made:
        for name, code in PYTHON:
            path = made.home / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(code)
        for line in PREPARING:
            _run(made, line)
        config = made.home / "doubler" / "mark.yaml"
        text = config.read_text().replace("# port: 8080", "port: 0\n  status_port: 0")
        config.write_text(text.replace("\n# A trace", f"{MORE}\n# A trace", 1))
        assert made.mark(*UP[1:], timeout_s=200.0).status == 0
        yield made


def _run(live: Rig, line: list[str]) -> None:
    """A line of the page, but that what it measures need not be good."""
    if line[0] == "python":
        done = subprocess.run(  # noqa: S603 - the page's own code
            [sys.executable, *line[1:]], cwd=live.home, capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, done.stderr
        return
    quick = ("--seconds", "0.5") if line[1] in {"init", "profile"} else ()
    said = live.mark(*line[1:], *quick)
    assert said.status == 0, f"{line}: {said.err}"


def answered(live: Rig, model: str, body: object) -> dict[str, Any]:
    """The outputs by name."""
    status, reply, _ = fetch(f"{live.running['gateway']}/v2/models/{model}/infer", body)
    assert status == 200, reply
    return {output["name"]: output["data"] for output in json.loads(reply)["outputs"]}


def test_the_page_s_own_request_is_answered(own: Rig) -> None:
    url, _, body = CURL[2:]

    assert url.endswith("/v2/models/doubler/infer")
    assert answered(own, "doubler", json.loads(body)) == {"y": [2.0, 4.0, 6.0, 8.0]}


def test_a_scikit_learn_model_answers(own: Rig) -> None:
    outputs = answered(own, "forest", {"inputs": [{"name": "features", "datatype": "FP64", **ROW}]})

    assert outputs["label"] == [0]
    assert sum(outputs["probabilities"]) == pytest.approx(1.0)


def test_an_onnx_model_answers(own: Rig) -> None:
    flower = {"inputs": [{"name": "flower", "datatype": "FP32", **ROW}]}
    (probabilities,) = answered(own, "iris", flower).values()

    assert max(probabilities) == probabilities[0] > 0.9


def test_the_page_s_last_command_ends_it(own: Rig) -> None:
    own.seen |= own.processes()

    assert own.mark(*DOWN[1:]).status == 0
    own.assert_gone()
