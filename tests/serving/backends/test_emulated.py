"""The emulated backend keeps the profile's time and the burstable type's credits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from mark.catalog.load import load_models
from mark.dispatch.policy import DispatchPolicy
from mark.domain.tensor import TensorSpec
from mark.ports import InferRequest
from mark.service_spec import BackendSpec, ServedModel
from mark.serving.backends.emulated import PARTS, EmulatedBackend
from mark.serving.backends.factory import make_backend
from tests.serving.backends.asks import (
    INPUTS,
    OUTPUTS,
    ask,
    error,
    inception,
    invocation,
    of_batches,
    outputs,
    run,
    wrong,
)
from tests.virtual_time import run_virtually


def emulated(offering, *, now=lambda: 0.0, speed=lambda: 1.0, **more):
    rng = np.random.default_rng(1)
    return EmulatedBackend(
        offering, name="m", inputs=INPUTS, outputs=OUTPUTS, now=now, speed=speed, rng=rng, **more
    )


def test_batches_vary_about_the_profile_s_time():
    offering = replace(of_batches(inception(), {1: 0.02}), cv=0.25)

    async def scenario():
        backend, loop = emulated(offering), asyncio.get_running_loop()
        await backend.start()
        took = []
        for _ in range(400):
            began = loop.time()
            await backend.infer([ask([1, 2])])
            took.append(loop.time() - began)
        return np.array(took)

    took = run_virtually(scenario())
    assert took.mean() == pytest.approx(0.02, rel=0.05)
    assert took.std() / took.mean() == pytest.approx(0.25, rel=0.2)


def test_it_answers_zeros_of_the_right_shape():
    offering = of_batches(inception(), {4: 0.001})
    (replies,) = run(
        emulated(offering), [ask([1, 2]), ask([1, 2], [3, 4], binary=True), invocation([5, 6]), wrong()]
    )

    assert outputs(replies[0]) == [[0]]
    assert outputs(replies[1]) == [[0], [0]]
    assert b"predictions" in replies[2].body
    assert replies[3].status == 400
    assert "JSON" in error(replies[3])
    assert EmulatedBackend.platform == "emulated"


def test_batches_in_a_row_take_the_profile_s_time():
    offering = of_batches(inception(), {1: 0.02, 2: 0.03})

    async def scenario():
        backend, loop = emulated(offering), asyncio.get_running_loop()
        await backend.start()
        for _ in range(10):
            await backend.infer([ask([1, 2])])
        single_s = loop.time()
        for _ in range(5):
            await backend.infer([ask([1, 2]), ask([1, 2])])
        return single_s, loop.time()

    assert run_virtually(scenario()) == (pytest.approx(0.2), pytest.approx(0.35))


def test_what_cannot_be_read_takes_no_time():
    offering = of_batches(inception(), {1: 5.0})

    async def scenario():
        backend = emulated(offering)
        await backend.start()
        await backend.infer([wrong()])
        return asyncio.get_running_loop().time()

    assert run_virtually(scenario()) == 0.0


def test_a_burstable_type_slows_when_its_credits_end():
    offering = of_batches(inception("t2.medium"), {1: 0.02})
    clock = [0.0]
    backend = emulated(offering, now=lambda: clock[0], credits_left=0.0)

    async def scenario():
        loop = asyncio.get_running_loop()
        await backend.start()
        await backend.infer([ask([1, 2])])
        slow_s = loop.time()
        clock[0] += 3600.0
        earned = backend.credits
        await backend.infer([ask([1, 2])])
        return slow_s, earned, loop.time() - slow_s

    slow_s, earned, fast_s = run_virtually(scenario())
    assert slow_s == pytest.approx(0.1)
    assert earned == pytest.approx(24.0, abs=0.01)
    assert fast_s == pytest.approx(0.02)


def test_a_launch_brings_its_credits_and_other_types_have_none():
    burstable, plain = emulated(inception("t2.medium")), emulated(inception())
    run(burstable)
    run(plain)
    assert burstable.credits == 60.0
    assert (plain.credits, plain.surplus_vcpu_s) == (None, 0.0)


def test_an_unlimited_type_goes_on_at_full_speed_and_says_what_it_used_beyond_its_credits():
    bounded = of_batches(inception("t2.medium"), {1: 0.5})
    credits_ = replace(bounded.instance_type.credits, unlimited=True, launch_credits=0.0)
    offering = replace(bounded, instance_type=replace(bounded.instance_type, credits=credits_))

    async def scenario():
        backend, loop = emulated(offering, speed=lambda: 60.0), asyncio.get_running_loop()
        await backend.start()
        for _ in range(4):
            await backend.infer([ask([1, 2])])
        return loop.time(), backend.surplus_vcpu_s

    took_s, surplus_vcpu_s = run_virtually(scenario())
    assert took_s == pytest.approx(2.0)
    assert surplus_vcpu_s == pytest.approx(2 * 60 * 2.0), "two vCPUs for two minutes of service time"


@pytest.mark.parametrize("kind", ["emulated", "python", "oip", "tf-serving", "invocations"])
def test_the_factory_makes_what_the_service_names(kind):
    model = load_models()["inception-v3"]
    spec = BackendSpec(kind=kind, target="http://127.0.0.1:9" if kind not in {"emulated", "python"} else "a:B")
    offering = inception()
    served = ServedModel(
        model=model, slo=model.slo, dispatch=DispatchPolicy(), offerings=(offering,), backend=spec, inputs=INPUTS
    )
    backend = make_backend(
        spec,
        served,
        offering,
        make_model=lambda _name, _folder: object(),
        now=lambda: 0.0,
        rng=np.random.default_rng(),
    )
    assert backend.platform == kind
    asyncio.run(backend.close())


def test_the_loop_goes_on_while_a_large_body_is_read():
    async def scenario():
        rows = b"1,2\n" * 1_000_000 + b"1,x\n"
        large = InferRequest(path="/invocations", content_type="text/csv", body=rows)
        answering = asyncio.ensure_future(emulated(inception()).infer([large]))
        turns = 0
        while not answering.done():
            await asyncio.sleep(0)
            turns += 1
        return answering.result(), turns

    (reply,), turns = asyncio.run(scenario())

    assert "not a table of numbers" in error(reply)  # known after the last row; then nothing is waited for
    assert turns > 10


def test_more_rows_than_it_can_answer_are_refused():
    wide = EmulatedBackend(
        inception(),
        name="m",
        inputs=INPUTS,
        outputs=(TensorSpec(name="y", datatype="FP32", shape=(-1, 1_000_000)),),
        now=lambda: 0.0,
        speed=lambda: 1.0,
        rng=np.random.default_rng(1),
    )
    (replies,) = run(wide, [ask(*[[1, 2]] * 100)])

    assert replies[0].status == 413
    assert "send fewer" in error(replies[0])


def test_a_batch_takes_as_long_as_its_items():
    offering = of_batches(inception(), {1: 0.01, 4: 0.02, 8: 0.05})

    async def scenario():
        backend, loop = emulated(offering), asyncio.get_running_loop()
        await backend.start()
        took = []
        for sizes in ((1,), (1, 1), (3, 1), (7,), (2, 2, 4)):
            began = loop.time()
            await backend.infer([ask([1, 2])._replace(size=size) for size in sizes])
            took.append(round(loop.time() - began, 6))
            await asyncio.sleep(1.0)
        return took

    assert run_virtually(scenario()) == [0.01, 0.02, 0.02, 0.05, 0.05]


def test_an_emulated_stream_is_events_of_zeros_over_the_profile_s_time():
    offering = of_batches(inception(), {1: 0.8, 2: 1.6})

    async def scenario():
        backend, loop = emulated(offering), asyncio.get_running_loop()
        await backend.start()
        began = loop.time()
        first, second = [await backend.stream(ask([1, 2])) for _ in range(2)]
        events = [(part, loop.time() - began) async for part in first.parts]
        await first.parts.aclose()
        await second.parts.aclose()
        third = await backend.stream(ask([1, 2]))  # alone again
        began = loop.time()
        assert len([part async for part in third.parts]) == PARTS
        return events, loop.time() - began

    events, alone_s = run_virtually(scenario())
    assert len(events) == PARTS
    assert all(part.startswith(b"data: ") and part.endswith(b"\n\n") for part, _ in events)
    assert events[-1][1] == pytest.approx(0.8)
    assert events[0][1] == pytest.approx(0.1)
    assert alone_s == pytest.approx(0.8)
