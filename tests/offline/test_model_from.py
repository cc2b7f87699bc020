"""`mark simulate --model-from`: one log, or a folder of logs, as the traffic of a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Mark

SERVICE = """
forecaster: last-value
policies: [lambda-only]
service:
  serve:
    - {model: inception-v3}
    - {model: digits, backend: {kind: python, target: "mark.models.digits:Digits"}}
"""
IMAGES, DIGITS = "/v2/models/inception-v3/infer", "/v1/models/digits/versions/2:predict"
PATHS = [IMAGES, IMAGES, DIGITS, "/v2/models/other/infer", "/v2/models/digits/ready", "/favicon.ico"]
MINUTES = 3


def lines(paths: list[str], second: int = 0) -> str:
    """A request for each path in each minute, from this second on."""
    return "".join(
        f'1.2.3.4 - - [01/May/2024:10:{minute:02}:{second + n:02} +0000] "POST {path} HTTP/1.1" 200 5 "-" "-"\n'
        for minute in range(MINUTES)
        for n, path in enumerate(paths)
    )


@pytest.fixture(autouse=True)
def _service(mark: Mark) -> None:
    Path("service.yaml").write_text(SERVICE)
    Path("access.log").write_text(lines(PATHS))


def simulate(mark: Mark, trace: str, model_from: str) -> tuple[dict[str, int], str]:
    """Requests of each model, and what was said beside."""
    arguments = ("--trace", trace, "--model-from", model_from, "--config", "service.yaml", "--json")
    answer = mark("simulate", *arguments, "--policy", "lambda-only")
    assert answer.status == 0, answer.err
    (run,) = json.loads(answer.out)["runs"]
    models: list[dict[str, Any]] = run["models"]
    return {model["model"]: model["requests"] for model in models}, answer.err


@pytest.mark.parametrize("model_from", ["path", r"/models/([^/:]+)(?:/infer|/versions.*:predict)$"])
def test_each_request_is_counted_for_the_model_in_its_path(mark: Mark, model_from: str) -> None:
    found, said = simulate(mark, "access.log", model_from)
    assert found == {"inception-v3": 2 * MINUTES, "digits": MINUTES}
    assert "also names other (3 requests), which the settings do not serve" in said


def test_a_folder_has_a_log_for_each_model_and_all_have_one_clock(mark: Mark) -> None:
    folder = Path("logs/digits")
    folder.mkdir(parents=True)
    (folder / "a.log").write_text(lines(["/"], second=30))
    Path("logs/inception-v3.log").write_text(lines(["/", "/"]))
    assert simulate(mark, "logs", "file")[0] == {"inception-v3": 2 * MINUTES, "digits": MINUTES}


def test_a_model_without_a_request_is_named_and_replayed(mark: Mark) -> None:
    Path("access.log").write_text(lines([IMAGES]))
    found, said = simulate(mark, "access.log", "path")
    assert found == {"inception-v3": MINUTES, "digits": 0}
    assert "has no request for digits" in said


def test_a_plan_and_the_floor_take_their_loads_from_the_log(mark: Mark) -> None:
    """The plan looks at the minutes before the log's last."""
    given = ("--trace", "access.log", "--model-from", "path", "--config", "service.yaml", "--json")
    answer = mark("bound", *given)
    assert answer.status == 0, answer.err
    assert {model["model"]: model["requests"] for model in json.loads(answer.out)["models"]} == {
        "inception-v3": 2 * MINUTES,
        "digits": MINUTES,
    }
    answer = mark("plan", *given)
    assert answer.status == 0, answer.err
    rates = {model["model"]: model["mean_rps"] for model in json.loads(answer.out)["models"]}
    assert rates["inception-v3"] == pytest.approx(2 * rates["digits"])
    assert rates["digits"] > 0.0
    answer = mark("plan", "--trace", "load.csv.gz", "--model", "inception-v3", "--rate", "3")
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "--trace is of a service" in answer.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model-from", "path"], "access.log names inception-v3 (6 requests), digits (3), other (3)"),
        (["--model-from", "path=/models/", "--config", "service.yaml"], "with one group for the model's name"),
        (["--model-from", "path=(", "--config", "service.yaml"], "is not a regular expression"),
        (["--model-from", "path=/score/(x)", "--config", "service.yaml"], "none of its 18 requests names a model"),
        (["--model-from", "pth=(x)", "--config", "service.yaml"], "'path'"),
        (["--model-from", "file", "--config", "service.yaml"], "needs a folder"),
        (["--model-from", "path", "--model", "digits"], "leave --model out"),
    ],
)
def test_what_cannot_be_split_says_why_in_one_line(mark: Mark, arguments: list[str], says: str) -> None:
    answer = mark("simulate", "--trace", "access.log", *arguments)
    assert answer.status == 2, answer.out
    assert says in answer.err.splitlines()[-1]
