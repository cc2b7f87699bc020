"""A model's server that answers what HTTP does not know harms nobody but the one who asked it."""

from __future__ import annotations

import asyncio

import pytest

from mark.ports import InferReply, InferRequest, OverflowReply
from tests.serving.harness import LAMBDA, live, served

PLAIN = InferReply(status=200, content_type="text/plain", body=b"ok")
UNUSUAL = {f"status {status}": PLAIN._replace(status=status) for status in (299, 499, 529)}
NONSENSE = {f"status {status}": PLAIN._replace(status=status) for status in (999, 70_000, 101)} | {
    "a head longer than the body": PLAIN._replace(header_length=3),
    "a long type": PLAIN._replace(content_type="x" * 256),
    "a type that is not ASCII": PLAIN._replace(content_type="text/\u0416"),
    "a type with a header in it": PLAIN._replace(content_type="text/plain\r\nset-cookie: a=b"),
}
ODD = UNUSUAL | NONSENSE


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_an_agents_answers(odd: InferReply) -> None:
    async with live() as running:
        running.agents["i-0"].backend.answers = odd
        replies = await asyncio.gather(*(running.ask() for _ in range(4)))

        expected = odd.status if odd in UNUSUAL.values() else 502
        assert [reply.status for reply in replies] == [expected] * 4
        assert await running.metric("mark_gateway_redispatched_total") == 0  # its connection was kept


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_a_functions_answers(odd: InferReply, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(served(overflow=LAMBDA), agents=0) as running:

        async def invoke(_function: str, _request: InferRequest, _timeout_s: float) -> OverflowReply:
            return OverflowReply(reply=odd, gib_s=0.5, cold=False)

        monkeypatch.setattr(running.overflow, "invoke", invoke)

        assert (await running.ask()).status == (odd.status if odd in UNUSUAL.values() else 502)
        assert await running.metric("mark_gateway_lambda_in_flight") == 0


async def test_an_answer_that_has_no_body_leaves_the_connection_in_step() -> None:
    async with live() as running:
        running.agents["i-0"].backend.answers = PLAIN._replace(status=204)
        client = await running.client()
        for _ in range(2):
            reply = await client.ask()
            assert (reply.status, reply.body) == (204, b"")
            assert "content-length" not in reply.headers
        await client.close()
