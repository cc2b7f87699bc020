"""Requests with sizes, from the client's header to the batch: items count, and a bad size harms nobody."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from mark.dispatch.policy import Bounced, DispatchPolicy, Late
from mark.ports import InferReply, InferRequest
from mark.protocols.frames import FrameParser, Request, RequestDetails, Response, State, encode, with_details
from mark.protocols.oip import bodies as oip
from mark.service_spec import ServedModel
from mark.serving.agent.queue import AgentCore, Job
from mark.serving.gateway.members_view import AgentView
from mark.serving.queue_estimate import QueueEstimate
from tests.serving.fakes import EchoBackend
from tests.serving.harness import INFER, INPUTS, LAMBDA, Client, live, served, until
from tests.serving.test_agent import request
from tests.serving.test_wire import connection, greet


def rows_of(count: int) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [count, 2], "data": [0.0] * (2 * count)}
    return json.dumps({"inputs": [tensor]}).encode()


def by_rows() -> ServedModel:
    model = served()
    return replace(model, model=replace(model.model, rows_are_items=True))


async def seen_sizes(model: ServedModel, *asks: tuple[bytes, dict[str, str]]) -> list[int]:
    async with live(model) as running:
        client = await running.client()
        for body, headers in asks:
            assert (await client.ask(body=body, **headers)).status == 200
        await client.close()
        return [request.size for request in running.agents["i-0"].backend.requests]


async def test_the_size_of_the_header_comes_to_the_model_s_batch() -> None:
    body = rows_of(1)
    asks = [
        (body, {}),
        (body, {"x_mark_size": "3"}),
        (body, {"X_Mark_Size": "4"}),
        (body, {"x_mark_size": "1"}),
    ]
    assert await seen_sizes(served(), *asks) == [1, 3, 4, 1]


async def test_rows_are_the_size_where_the_model_says_so_and_a_header_goes_first() -> None:
    asks = [(rows_of(3), {}), (rows_of(3), {"x_mark_size": "2"}), (rows_of(1), {})]
    assert await seen_sizes(by_rows(), *asks) == [3, 2, 1]
    assert await seen_sizes(served(), *asks) == [1, 2, 1]


WRONG = {
    "no number": "many",
    "zero": "0",
    "negative": "-1",
    "a part": "1.5",
    "beyond the profile": "5",
    "long": "1" * 40,
}


@pytest.mark.parametrize("size", WRONG.values(), ids=WRONG)
async def test_a_size_that_is_none_is_refused_with_one_line_and_harms_nobody(size: str) -> None:
    async with live() as running:
        client = await running.client()
        reply = await client.ask(x_mark_size=size)
        assert reply.status == 400
        assert reply.document == {"error": "x-mark-size must be a whole number of items from 1 to 4"}
        assert (await client.ask()).status == 200
        direct = Client(*await asyncio.open_connection("127.0.0.1", running.agents["i-0"].http_port))
        assert (await direct.ask(x_mark_size=size)).status == 400
        assert len(running.agents["i-0"].backend.requests) == 1
        await client.close()
        await direct.close()


async def test_more_rows_than_the_profile_covers_are_refused_with_one_line() -> None:
    async with live(by_rows()) as running:
        reply = await running.ask(body=rows_of(5))
        assert reply.status == 400
        assert reply.document == {"error": "a request has at most 4 rows"}
        assert (await running.ask(body=rows_of(4))).status == 200


async def test_a_request_too_large_to_be_in_time_is_shed_where_a_small_one_is_served() -> None:
    dispatch = DispatchPolicy(admission_factor=1.0, bounced=Bounced.NOWHERE, late=Late.SHED)
    model = served(latency_s=5.0, dispatch=dispatch, batch_s=(0.002, 0.003, 0.004, 60.0))
    async with live(model) as running:
        assert (await running.ask(x_mark_size="3")).status == 200
        assert (await running.ask(x_mark_size="4")).status == 503


class Sink:
    """A client that keeps what became of its jobs."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def answered(self, job: Job, reply: InferReply) -> None:
        self.done.append(job.id)

    def bounced(self, job: Job) -> None:
        raise AssertionError

    def publish_if_changed(self) -> None: ...


def job(client: Sink, number: int, size: int) -> Job:
    body = json.dumps(oip.example_body(INPUTS)).encode()
    return Job(client, number, 0.0, 0.0, InferRequest(path=INFER, content_type="", body=body, size=size))


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([1] * 9, [4, 4, 1]),
        ([3, 2, 2, 1], [1, 2, 1]),
        ([2, 6, 1, 1, 2], [1, 1, 3]),
        ([6, 5, 4], [1, 1, 1]),
    ],
    ids=["of one item", "next does not fit", "larger than a batch goes alone", "each alone"],
)
async def test_a_batch_is_limited_in_items(sizes: list[int], batches: list[int]) -> None:
    backend, client = EchoBackend(), Sink()
    core = AgentCore(backend, profile_s=(1.0, 2.0, 3.0, 4.0), beyond_s=(5.0, 6.0), admission_factor=None)
    core.accepting = True
    for number, size in enumerate(sizes):
        assert core.take(job(client, number, size), 0.0) is None
    core.start()
    await until(lambda: core.is_empty)
    assert backend.batches == batches
    assert client.done == list(range(len(sizes)))
    assert core.places == core.in_service == 0


async def test_a_withdrawn_request_leaves_the_places_of_those_behind_it() -> None:
    backend, client = EchoBackend(), Sink()
    core = AgentCore(backend, profile_s=(1.0, 2.0, 3.0, 4.0), admission_factor=None)
    core.accepting = True
    backend.free.clear()
    for number, size in enumerate((1, 3, 2, 1)):
        core.take(job(client, number, size), 0.0)
        core.start()
    assert (core.in_service, core.places) == (1, 7)
    core.withdraw(client, 1)
    assert core.places == 3
    backend.free.set()
    await until(lambda: core.is_empty)
    assert backend.batches == [1, 2]


def test_both_ends_of_a_connection_count_items_alike() -> None:
    estimate = QueueEstimate()
    estimate.max_batch = 4
    for size in (3, 2, 2, 3):
        estimate.sent(0.0, 1.0, size)
    assert (estimate.in_service, estimate.waiting) == (3, 7)
    estimate.answered(1.0, 1.0, 3)
    assert (estimate.in_service, estimate.waiting) == (4, 3)
    estimate.answered(2.0, 1.0, 2)
    assert (estimate.in_service, estimate.waiting) == (2, 3)


def test_a_size_has_a_place_on_the_wire_and_one_item_has_no_byte() -> None:
    plain = Request(7, 1, 2, b"/p", b"t", 0, b"id", b"", b"body")
    assert with_details(encode(plain), 1, 0.0) == encode(plain)
    (sized,) = FrameParser().feed(with_details(encode(plain), 700, 0.0))
    assert sized == plain._replace(details=RequestDetails(size=700))


async def test_lambda_takes_requests_of_one_item_alone() -> None:
    model = served(dispatch=DispatchPolicy(bounced=Bounced.LAMBDA, late=Late.SHED), overflow=LAMBDA)
    async with live(model, agents=0) as running:
        assert (await running.ask()).status == 200
        assert (await running.ask(x_mark_size="2")).status == 503
        assert [request.size for _, request in running.overflow.calls] == [1]


async def test_a_sized_request_that_was_given_up_is_counted_out_whole_when_its_response_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[tuple[int, int]] = []
    views: set[AgentView] = set()
    answered = AgentView.answered

    def noted(view: AgentView, now: float, full_batch_s: float, size: int = 1) -> None:
        answered(view, now, full_batch_s, size)
        counted.append((size, view.in_service))
        views.add(view)

    monkeypatch.setattr(AgentView, "answered", noted)

    async with live(served(dispatch=DispatchPolicy(give_up_s=0.2))) as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        assert (await running.ask(x_mark_size="4")).status == 504
        backend.free.set()
        await until(lambda: bool(counted))
        assert counted == [(4, 0)]
        assert (await running.ask()).status == 200
        await until(lambda: not any(view.in_service for view in views))


async def test_an_agent_that_refuses_a_size_tells_its_state_which_the_gateway_s_count_is_not() -> None:
    made, wire, key = connection()
    greet(made, wire, key)
    made.flush()
    wire.written.clear()
    made.data_received(with_details(encode(request(1)), 2, 0.0))  # its profile has one
    made.flush()
    refused, state = FrameParser().feed(b"".join(wire.written))
    assert isinstance(refused, Response)
    assert refused.status == 400
    assert isinstance(state, State)
    assert (state.seen, state.waiting, state.in_service) == (1, 0, 0)
