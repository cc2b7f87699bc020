"""The function that answers requests, called as Lambda calls it."""

from __future__ import annotations

import base64
import json
import sys
import threading
from unittest.mock import Mock, call

import numpy as np
import pytest

from mark.aws.functions.function_url import HOLDS_ANOTHER
from mark.domain.errors import Misconfigured
from mark.lambda_handlers import infer, served
from mark.models.digits.data import digits
from mark.protocols.oip.bodies import compose_infer, parse_infer_reply
from tests.waiting import PATIENCE_S

OUTPUTS = json.dumps([{"name": "y", "datatype": "FP32", "shape": [-1, 3]}])
EMULATED = {
    "MARK_MODEL": "m",
    "MARK_BACKEND_KIND": "emulated",
    "MARK_BACKEND_TARGET": "",
    "MARK_EMULATED_LATENCY_S": "0.05",
    "MARK_OUTPUTS": OUTPUTS,
}
DIGITS = {
    **EMULATED,
    "MARK_MODEL": "digits",
    "MARK_BACKEND_KIND": "python",
    "MARK_BACKEND_TARGET": "mark.models.digits:Digits",
}


@pytest.fixture
def environment(monkeypatch):
    """An environment of its own, with these variables."""
    monkeypatch.setattr(served, "_served", {})

    def enter(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return enter


class Clock:
    """Time that only sleeping moves."""

    def __init__(self):
        self.slept = []

    def perf_counter(self):
        return sum(self.slept)

    def sleep(self, seconds):
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(infer, "time", made)
    return made


def event(request):
    binary = bool(request.header_length)
    headers = {"Content-Type": request.content_type}
    if binary:
        headers["Inference-Header-Content-Length"] = str(request.header_length)
    body = base64.b64encode(request.body).decode() if binary else request.body.decode()
    return {"version": "2.0", "rawPath": request.path, "headers": headers, "body": body, "isBase64Encoded": binary}


def ask(name="x", array=None, *, binary=False):
    tensor = np.ones((2, 2), np.float32) if array is None else array
    return event(compose_infer({name: tensor}, path="/v2/models/m/infer", binary=binary))


def outputs(reply):
    assert reply["statusCode"] == 200, reply
    body = base64.b64decode(reply["body"]) if reply["isBase64Encoded"] else reply["body"].encode()
    return parse_infer_reply(body, int(reply["headers"].get("inference-header-content-length", 0)))


@pytest.mark.parametrize("binary", [False, True])
def test_emulated_takes_its_time_and_answers_zeros(environment, clock, binary):
    environment(EMULATED)
    reply = infer.handler(ask(binary=binary), None)

    assert clock.slept == [0.05]
    assert reply["isBase64Encoded"] == binary
    np.testing.assert_array_equal(outputs(reply)["y"], np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("binary", [False, True])
def test_digits_are_read(environment, binary):
    environment(DIGITS)
    images, labels = digits(held_out=True)
    found = outputs(infer.handler(ask("image", images[:50], binary=binary), None))
    assert (found["label"] == labels[:50]).mean() > 0.95


def test_sagemaker_s_body_is_understood(environment):
    environment(DIGITS)
    images, _ = digits(held_out=True)
    body = json.dumps({"instances": images[:2].tolist()})
    asked = {
        "rawPath": "/endpoints/digits/invocations",
        "headers": {"content-type": "application/json"},
        "body": body,
    }
    reply = infer.handler(asked, None)
    assert reply["statusCode"] == 200
    labels = served.served_model().predict({"image": images[:2]})["label"]
    assert [row["label"] for row in json.loads(reply["body"])["predictions"]] == list(labels)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"body": "{"}, 400),
        ({"body": None}, 400),
        ({"body": "!", "isBase64Encoded": True}, 400),
        ({"headers": {"inference-header-content-length": "x"}}, 400),
        ({"headers": None, "rawPath": "/invocations", "body": "[]"}, 400),
        ({"headers": {"content-type": "image/png"}, "rawPath": "/invocations"}, 415),
    ],
)
def test_what_cannot_be_read_is_a_4xx_at_once(environment, change, status):
    environment(EMULATED | {"MARK_EMULATED_LATENCY_S": "5"})
    reply = infer.handler(ask() | change, None)
    assert reply["statusCode"] == status
    assert json.loads(reply["body"])["error"]


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        ("ValueError('no luck')", 500, "the model failed: ValueError: no luck"),
        ("BadRequest('too dark')", 400, "too dark"),
        ("BadRequest('too dark', 422)", 422, "too dark"),
        ("BadRequest('too dark', 503)", 500, "the model failed: BadRequest: too dark"),
    ],
)
def test_what_a_model_raises_is_500_but_for_what_it_declares_wrong(environment, tmp_path, raised, status, said):
    (tmp_path / "mine.py").write_text(
        "from mark.domain.errors import BadRequest\n"
        "from mark.domain.tensor import TensorSpec\n"
        "class Mine:\n"
        "    inputs = outputs = (TensorSpec(name='x', datatype='FP32', shape=(-1, 2)),)\n"
        "    def predict(self, inputs):\n"
        f"        raise {raised}\n"
    )
    environment(DIGITS | {"MARK_BACKEND_TARGET": f"{tmp_path}/mine.py:Mine"})
    reply = infer.handler(ask(), None)
    assert reply["statusCode"] == status
    assert json.loads(reply["body"])["error"] == said


def test_a_model_in_a_file_imports_what_lies_beside_it(environment, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_this_model.py").write_text("FACTOR = 2\n")
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from beside_this_model import FACTOR\n"
        "from mark.domain.tensor import TensorSpec\n"
        "@dataclass\n"
        "class Mine:\n"
        "    inputs = outputs = (TensorSpec(name='x', datatype='FP32', shape=(-1, 2)),)\n"
        "    def predict(self, inputs):\n"
        "        from beside_this_model import FACTOR as late\n"
        "        return {'x': FACTOR / late * 2 * inputs['x']}\n"
    )
    environment(DIGITS | {"MARK_BACKEND_TARGET": f"{tmp_path}/mine.py:Mine"})
    np.testing.assert_array_equal(outputs(infer.handler(ask(), None))["x"], np.full((2, 2), 2, np.float32))


def test_a_ping_loads_the_model_and_holds_the_environment(environment, clock):
    environment(EMULATED)
    assert infer.handler({"mark-warm": True, "hold_s": 0.03}, None) == {"mark-warm": True}
    assert infer.handler({"mark-warm": True, "hold_s": 1e9}, None) == {"mark-warm": True}
    assert clock.slept == [0.03, infer.HOLD_AT_MOST_S]
    assert served.served_model().name == "m"


def test_a_ping_has_a_model_answer_zeros_once(environment, clock, tmp_path):
    """The first request after it does not pay for what a model does at its first call."""
    (tmp_path / "mine.py").write_text(
        "from mark.domain.tensor import TensorSpec\n"
        "class Mine:\n"
        "    inputs = outputs = (TensorSpec(name='x', datatype='FP32', shape=(-1, 2)),)\n"
        "    calls = 0\n"
        "    def predict(self, inputs):\n"
        "        self.calls += 1\n"
        "        return {'x': inputs['x'] * 0 + self.calls}\n"
    )
    environment(DIGITS | {"MARK_BACKEND_TARGET": f"{tmp_path}/mine.py:Mine"})
    for _ in range(2):
        infer.handler({"mark-warm": True}, None)
    np.testing.assert_array_equal(outputs(infer.handler(ask(), None))["x"], np.full((2, 2), 2, np.float32))


def test_environments_may_be_threads_of_one_process(environment, clock, monkeypatch):
    environment(EMULATED)
    loads, replies = [], {}
    monkeypatch.setattr(served, "load", lambda version, real=served.load: loads.append(1) or real(version))

    meet = threading.Barrier(20, timeout=PATIENCE_S)  # broken where they come one after the other
    clock.sleep = lambda _seconds: meet.wait()

    def call(rows):
        replies[rows] = infer.handler(ask(array=np.ones((rows, 1), np.float32)), None)

    threads = [threading.Thread(target=call, args=(rows,)) for rows in range(1, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(loads) == 1
    assert {rows: outputs(reply)["y"].shape for rows, reply in replies.items()} == {
        n: (n, 3) for n in range(1, 21)
    }


def test_what_is_wrong_is_counted_and_what_is_answered_costs_no_line(environment, capsys):
    environment(EMULATED)
    infer.handler(ask(), None)
    infer.handler(ask() | {"body": "{"}, None)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["model"], line["Status400"]) for line in lines] == [("m", [1.0])]


def test_a_version_is_fetched_only_where_the_function_s_own_files_are_another(environment, monkeypatch):
    fetched = []

    def fetch(version):
        fetched.append(version)
        return "mark.models.digits:Digits", ""

    monkeypatch.setattr(served, "fetch_version", fetch)
    ping = {"mark-warm": True, "mark-version": "a" * 64}
    environment(DIGITS)
    infer.handler(ping, None)  # a function without versions answers with what it has
    environment({"MARK_VERSIONS_BUCKET": "b", "MARK_BACKEND_VERSION": "b" * 64})
    for version in ("b" * 64, ""):
        infer.handler({**ping, "mark-version": version}, None)
    assert fetched == []


def test_an_environment_that_has_loaded_a_version_answers_as_no_other(environment, monkeypatch):
    monkeypatch.setattr(served, "fetch_version", lambda _: ("mark.models.digits:Digits", ""))
    environment(DIGITS | {"MARK_VERSIONS_BUCKET": "b"})
    ping = {"mark-warm": True, "mark-version": "a" * 64}
    ended = Mock(side_effect=SystemExit)
    monkeypatch.setattr(served.os, "_exit", ended)
    infer.handler(ping, None)
    infer.handler(ping, None)
    for version in ("b" * 64, ""):
        with pytest.raises(SystemExit):
            infer.handler({**ping, "mark-version": version}, None)
    assert ended.call_args_list == [call(HOLDS_ANOTHER)] * 2


def test_code_that_failed_when_it_was_loaded_answers_as_no_other_either(environment, monkeypatch):
    monkeypatch.setattr(served, "fetch_version", lambda _: ("mark.models.digits:Nobody", ""))
    environment(DIGITS | {"MARK_VERSIONS_BUCKET": "b"})
    monkeypatch.setattr(served.os, "_exit", Mock(side_effect=SystemExit))
    for version, error in (("a" * 64, Misconfigured), ("a" * 64, Misconfigured), ("b" * 64, SystemExit)):
        with pytest.raises(error):
            infer.handler({"mark-warm": True, "mark-version": version}, None)


@pytest.mark.parametrize("version", ["../../x", "a" * 65, "A" * 64])
def test_what_is_no_version_is_looked_for_nowhere(environment, version):
    environment(DIGITS | {"MARK_VERSIONS_BUCKET": "b"})
    with pytest.raises(Misconfigured, match="is no version"):
        infer.handler({"mark-warm": True, "mark-version": version}, None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"MARK_BACKEND_KIND": "oip"}, "not oip"),
        ({"MARK_BACKEND_KIND": ""}, "lacks MARK_BACKEND_KIND"),
        (
            {"MARK_BACKEND_KIND": "python", "MARK_BACKEND_TARGET": "mark.models.digits:Nobody"},
            "mark.models.digits:Nobody",
        ),
        ({"MARK_BACKEND_KIND": "python", "MARK_BACKEND_TARGET": "nowhere/mine.py:Mine"}, "nowhere/mine.py"),
    ],
)
def test_a_model_that_is_not_there_is_named(environment, change, says):
    environment(EMULATED | change)
    with pytest.raises(Misconfigured, match=says):
        infer.handler(ask(), None)
