"""Models in the agent's own process."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from mark.domain.errors import BadRequest, Misconfigured
from mark.domain.tensor import TensorSpec
from mark.models.digits import Digits
from mark.models.digits.data import digits
from mark.models.transformer import Polarity
from mark.offline.own_model import profile
from mark.offline.own_model.profile import ProfileOptions
from mark.protocols.oip.bodies import compose_infer
from mark.service_spec import BackendSpec
from mark.serving.backends.factory import make_backend
from mark.serving.backends.python import PythonBackend
from tests.serving.backends.asks import INPUTS, OUTPUTS, ask, error, invocation, outputs, run, tensor, wrong
from tests.serving.harness import served
from tests.waiting import PATIENCE_S


class Sum:
    """Adds the two numbers of each row; does not like 13."""

    inputs, outputs = INPUTS, OUTPUTS

    def __init__(self):
        self.calls = []
        self.threads = set()

    def predict(self, inputs):
        self.calls.append(len(inputs["x"]))
        self.threads.add(threading.current_thread())
        if (inputs["x"] == 13).any():
            raise ValueError("thirteen")
        return {"y": inputs["x"].sum(axis=1, keepdims=True)}


def of(model):
    return PythonBackend(lambda: model, name="m")


def test_a_batch_is_one_call_whatever_its_requests_speak():
    model = Sum()
    batch = [ask([1, 2]), ask([3, 4], [5, 6], binary=True), invocation([7, 8]), ask([9, 10])]

    (replies,) = run(of(model), batch)

    assert model.calls == [1, 4 + 1]  # zeros to warm up, then the batch
    assert outputs(replies[0]) == [[3]]
    assert outputs(replies[1]) == [[7], [11]]
    assert replies[1].header_length > 0
    assert replies[1].content_type == "application/octet-stream"
    assert b"15" in replies[2].body
    assert b"predictions" in replies[2].body
    assert outputs(replies[3]) == [[19]]
    assert model.threads != {threading.main_thread()}
    assert len(model.threads) == 1


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (wrong(), "not JSON"),
        (wrong(b'{"inputs":[{"name":"z","datatype":"FP32","shape":[1],"data":[1]}]}'), "unknown input 'z'"),
        (wrong(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}'), "shape"),
        (wrong(b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1,2],"data":[1,2]}]}'), "INT8"),
        (wrong(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[0,2],"data":[]}]}'), "first dimension"),
    ],
)
def test_a_wrong_request_gets_its_own_400_and_harms_no_other(bad, said):
    model = Sum()
    (replies,) = run(of(model), [ask([1, 1]), bad, ask([2, 2])])

    assert [reply.status for reply in replies] == [200, 400, 200]
    assert said in error(replies[1])
    assert outputs(replies[2]) == [[4]]
    assert model.calls[1:] == [2]


def test_only_the_culprit_fails_when_the_model_raises(caplog):
    model = Sum()
    (replies, after) = run(of(model), [ask([1, 1]), ask([13, 0]), ask([2, 2])], [ask([3, 3])])

    assert [reply.status for reply in replies] == [200, 500, 200]
    assert error(replies[1]) == "the model failed: ValueError: thirteen"
    assert model.calls[1:] == [3, 1, 2, 1, 1, 1]
    assert outputs(after[0]) == [[6]]
    assert "thirteen" in caplog.text


def test_a_request_that_the_model_declares_wrong_is_the_clients_mistake(caplog):
    class Strict(Sum):
        def predict(self, inputs):
            if (inputs["x"] == 13).any():
                raise BadRequest("thirteen is not allowed")
            if (inputs["x"] == 14).any():
                raise BadRequest("send less", 413)
            if (inputs["x"] == 15).any():
                raise BadRequest("no status for a client", 503)
            return super().predict(inputs)

    model = Strict()
    numbers = [*range(13), 13, 14, 15]
    batch = [(invocation if n == 13 else ask)([n, 0]) for n in numbers]
    (replies,) = run(of(model), batch)

    assert [reply.status for reply in replies] == [200] * 13 + [400, 413, 500]
    assert error(replies[13]) == "thirteen is not allowed"
    assert error(replies[14]) == "send less"
    assert [outputs(reply) for reply in replies[:13]] == [[[n]] for n in range(13)]
    assert [record.message for record in caplog.records] == ["m failed: BadRequest: no status for a client"]
    assert model.calls == [1, 8, 4, 1], "zeros to warm up, then the others in halves of the batch"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda y: y[:-1],
        lambda y: np.concatenate([y, y]),
        lambda y: y.astype(np.float64),
        lambda y: y.astype(np.longdouble),
        lambda y: [*y.tolist(), None],
    ],
    ids=["a row too few", "too many", "another type", "no type of JSON's", "none"],
)
@pytest.mark.parametrize("declared", [OUTPUTS, ()], ids=["declared", "undeclared"])
def test_only_the_culprit_fails_when_outputs_do_not_fit_the_requests(spoil, declared, request):
    class Spoilt(Sum):
        def predict(self, inputs):
            y = inputs["x"].sum(axis=1, keepdims=True)
            return {"y": spoil(y) if (inputs["x"] == 13).any() else y}

    backend = of(Spoilt())
    batch = [ask([1, 1]), ask([13, 0]), invocation([2, 2])]

    async def scenario():
        await backend.start()
        backend.outputs = declared
        found = await backend.infer(batch)
        await backend.close()
        return found

    replies = asyncio.run(scenario())
    assert replies[0].status == replies[2].status == 200
    assert (outputs(replies[0]), json.loads(replies[2].body)) == ([[2]], {"predictions": [[4]]})
    is_an_answer = (
        not declared and "another type" in request.node.name
    )  # any type of JSON's, where none is declared
    assert replies[1].status == (200 if is_an_answer else 500)


@pytest.mark.parametrize(
    "answer", [{"y": np.zeros((7, 1))}, {"y": np.zeros(())}, {"y": np.array([1j, 2j])}, {"y": 1}]
)
def test_a_model_that_answers_wrongly_is_500_or_less(answer, caplog):
    class Odd(Sum):
        def predict(self, inputs):
            return answer

    (replies,) = run(of(Odd()), [ask([1, 1]), ask([2, 2])])
    assert {reply.status for reply in replies} == {500}


def test_frames_flow_while_the_model_works():
    over = threading.Event()
    over.set()

    class Slow(Sum):
        def predict(self, inputs):
            assert over.wait(PATIENCE_S)
            return super().predict(inputs)

    async def scenario():
        backend = of(Slow())
        await backend.start()
        over.clear()
        work = asyncio.create_task(backend.infer([ask([1, 1])]))
        for _ in range(5):
            await asyncio.sleep(0)
            assert not work.done()
        over.set()
        replies = await work
        await backend.close()
        return replies

    (reply,) = asyncio.run(scenario())
    assert outputs(reply) == [[2]]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (object, r"it lacks inputs, outputs, a method predict\(inputs\)"),
        (
            type("M", (), {"inputs": INPUTS, "outputs": OUTPUTS}),
            r"it lacks a method predict\(inputs\)",
        ),
        (type("M", (), {"inputs": (), "outputs": (), "predict": print}), "inputs is empty.*outputs is empty"),
    ],
)
def test_a_model_that_is_none_is_named(make, said):
    with pytest.raises(Misconfigured, match=said):
        run(PythonBackend(make, name="m"), [])


def test_real_digits_through_the_protocol():
    images, labels = digits(held_out=True)
    backend = PythonBackend(Digits, name="digits")
    batches = [
        [
            compose_infer({"image": image[None]}, path="/v2/models/digits/infer", binary=True)
            for image in images[at : at + 32]
        ]
        for at in range(0, len(images), 32)
    ]

    replies = [reply for batch in run(backend, *batches) for reply in batch]

    right = [outputs(reply, "label") == [label] for reply, label in zip(replies, labels.tolist(), strict=True)]
    assert sum(right) / len(right) > 0.95
    assert backend.inputs == Digits.inputs


def test_texts_through_the_protocol():
    texts = b'"the wifi is slow.","the wifi is not slow."'
    body = b'{"inputs":[{"name":"text","datatype":"BYTES","shape":[2],"data":[%s]}]}' % texts
    (replies,) = run(PythonBackend(Polarity, name="m"), [wrong(body), wrong(body)])
    assert [outputs(reply, "label") for reply in replies] == [[b"negative", b"positive"]] * 2


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (SystemExit(3), "it called exit(3)"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (StopIteration(), "StopIteration"),
    ],
)
def test_a_model_that_wants_to_end_ends_only_its_request(raised, said):
    class Exits(Sum):
        def predict(self, inputs):
            if (inputs["x"] == 13).any():
                raise raised
            return super().predict(inputs)

    model = Exits()
    (replies,) = run(of(model), [ask([1, 2]), ask([13, 0]), ask([3, 4])])

    assert [reply.status for reply in replies] == [200, 500, 200]
    assert error(replies[1]) == f"the model failed: {said}"


def test_a_model_that_exits_when_it_is_made_is_misconfigured():
    with pytest.raises(Misconfigured, match=r"does not start: it called exit\(1\)"):
        run(PythonBackend(lambda: sys.exit(1), name="m"), [ask([1, 2])])


@pytest.mark.parametrize(
    ("wrong_outputs", "said"),
    [
        (
            {"labl": tensor([0])},
            "output 'y' is declared and not returned; output 'labl' is returned and not declared",
        ),
        ({"y": np.zeros((1, 1))}, "output 'y' is FP64, declared as FP32"),
        ({"y": np.zeros((1, 3), np.float32)}, "output 'y' has shape [1, 3], declared as [-1, 1]"),
        ({"y": tensor([1]), "z": tensor([1])}, "output 'z' is returned and not declared"),
    ],
)
def test_outputs_are_held_to_what_the_model_declares(wrong_outputs, said, monkeypatch):
    class Other(Sum):
        def predict(self, inputs):
            return wrong_outputs

    (replies,) = run(of(Other()), [ask([1, 2])])
    assert replies[0].status == 500
    assert said in error(replies[0])

    options = ProfileOptions(
        model="m",
        target="m:Other",
        folder=None,
        kind="python",
        instance_type="c5.large",
        batches=(1,),
        seconds=1.0,
        body=None,
        to=None,
    )
    monkeypatch.setattr(profile, "load_model", lambda *_: Other)
    monkeypatch.setattr(profile, "make_model", lambda *_: Other())
    with pytest.raises(Misconfigured, match=re.escape(said)) as refused:
        profile.profile_backend(options, as_json=False)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["python", "emulated"])
def test_answers_name_the_version_that_serves(kind):
    for version, told in (("9d0e55ab1c33", "9d0e55ab1c33"), ("", "1")):
        model = replace(served(), inputs=INPUTS, outputs=OUTPUTS, version=version)
        backend = make_backend(
            BackendSpec(kind=kind, target="m:Sum"),
            model,
            model.offerings[0],
            make_model=lambda *_: Sum(),
            now=time.monotonic,
            rng=np.random.default_rng(0),
        )
        (replies,) = run(backend, [ask([1, 1]), ask([1, 1])._replace(path="/invocations")])
        assert [json.loads(reply.body)["model_version"] for reply in replies] == [told, told]


def test_texts_are_held_to_bytes():
    class Words(Sum):
        outputs = (TensorSpec(name="y", datatype="BYTES", shape=(-1,)),)

        def predict(self, inputs):
            return {"y": np.array(["one"] * len(inputs["x"]))}

    (replies,) = run(of(Words()), [ask([1, 2])])
    assert outputs(replies[0]) == [b"one"]
