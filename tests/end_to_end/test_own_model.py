"""Models of docs/own-model.md and the one of docs/protocols.md that streams, from `mark init` to their answers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.end_to_end.rig import UP_S, Rig, fetch, rig
from tests.waiting import PATIENCE_S

PAGE = (Path(__file__).parents[2] / "docs" / "own-model.md").read_text()
PYTHON = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
SHELL = [
    shlex.split(line) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
(MORE,) = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "forest_joblib.py" in block]
LIVE = ("up", "down")
SERVED = ("doubler/", "forest/", "iris/")
PREPARING = [line for line in SHELL if line[0] == "python" or (line[1] == "init" and line[2].startswith(SERVED))]
UP, DOWN = (next(line for line in SHELL if line[1] == word) for word in LIVE)
CURL = next(line for line in SHELL if line[0] == "curl")
STREAMED = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
(WORDS,) = re.findall(r"```python\n# words/words.py\n(.*?)```", STREAMED, re.DOTALL)
INIT_WORDS, *_ = [shlex.split(line) for line in STREAMED.splitlines() if line.startswith("mark init words/")]
GATED = WORDS.replace("            yield", "            wait_for(word)\n            yield")
"""The page's model, but that a part comes once a file of its name is there."""
WAIT = """
import time
from pathlib import Path


def wait_for(word):
    while not Path(PLACE, word.decode()).exists():
        time.sleep(0.01)
"""
ROW = {"shape": [1, 4], "data": [5.1, 3.5, 1.4, 0.2]}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The pages' files, written by their own commands; one service holds the four models."""
    with rig(tmp_path_factory.mktemp("own"), "doubler") as made:
        for name, code in PYTHON:
            path = made.home / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(code)
        for line in PREPARING:
            _run(made, line)
        (made.home / "words").mkdir()
        (made.home / "words" / "words.py").write_text(WORDS)
        _run(made, INIT_WORDS)
        (made.home / "words" / "words.py").write_text(f"{GATED}\n{WAIT}\nPLACE = {str(made.home)!r}\n")
        streaming = yaml.safe_load((made.home / "words" / "mark.yaml").read_text())["service"]["serve"]
        streaming[0]["backend"]["target"] = "../words/words.py:Words"
        config = made.home / "doubler" / "mark.yaml"
        text = config.read_text().replace("# port: 8080", "port: 0\n  status_port: 0")
        more = f"{MORE}    - {json.dumps(streaming[0])}\n"
        config.write_text(text.replace("\n# A trace", f"{more}\n# A trace", 1))
        assert made.mark(*UP[1:], timeout_s=UP_S).status == 0
        yield made


def _run(live: Rig, line: list[str]) -> None:
    """A line of the page; what `mark init` measures need not be good."""
    if line[0] == "python":
        subprocess.run([sys.executable, *line[1:]], cwd=live.home, check=True, timeout=PATIENCE_S)  # noqa: S603 - the page's
        return
    said = live.mark(*line[1:], "--seconds", "0.5")
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


def test_a_stream_is_read_part_by_part(own: Rig) -> None:
    """The next part is let go only once the one before has been read."""
    url = f"{own.running['gateway']}/v2/models/words/generate_stream"
    words = ["Once", "upon", "a", "time"]
    (own.home / words[0]).touch()
    asked = Request(url, json.dumps({"text_input": " ".join(words)}).encode())  # noqa: S310 - our own service
    with urlopen(asked, timeout=PATIENCE_S) as reply:  # noqa: S310
        for word, following in zip(words, [*words[1:], "end"], strict=True):
            part = json.loads(reply.readline().removeprefix(b"data: "))
            assert part["text_output"] == word
            assert reply.readline() == b"\n"
            (own.home / following).touch()
        assert reply.read() == b""


def test_the_page_s_last_command_ends_it(own: Rig) -> None:
    own.seen |= own.processes()

    assert own.mark(*DOWN[1:]).status == 0
    own.assert_gone()
