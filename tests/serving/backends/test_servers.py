"""Containers that speak /invocations: readiness, forwarding, and their absence."""

from __future__ import annotations

import asyncio
import json

import pytest

from mark.domain.errors import Misconfigured
from mark.ports import InferRequest
from mark.serving.backends.servers import InvocationsBackend
from tests.serving.backends.model_servers import model_server, said


def asked(body, path="/invocations", content_type="text/csv"):
    return InferRequest(path=path, content_type=content_type, body=body)


def run(backend, batch):
    async def scenario():
        try:
            await backend.start()
            return await backend.infer(batch)
        finally:
            await backend.close()

    return asyncio.run(scenario())


def test_bodies_pass_as_they_are():
    def respond(method, path, headers, body):
        if path == "/ping":
            return 200, {}, b""
        assert (method, path, headers["content-type"]) == ("POST", "/invocations", "text/csv")
        return 200, {"content-type": "text/csv"}, body[::-1]

    with model_server(respond) as server:
        replies = run(
            InvocationsBackend(server.url), [asked(b"1,2"), asked(b"3,4"), asked(b"5", "/endpoints/m/invocations")]
        )

    assert [reply.body for reply in replies] == [b"2,1", b"4,3", b"5"]
    assert {(reply.status, reply.content_type) for reply in replies} == {(200, "text/csv")}


def test_one_that_is_refused_harms_no_other():
    def respond(method, path, headers, body):
        return said({"error": "bad row"}, 400) if body == b"bad" else (200, {}, body)

    with model_server(respond) as server:
        replies = run(
            InvocationsBackend(server.url),
            [asked(b"1"), asked(b"bad"), asked(b"2"), asked(b"{}", "/v2/models/m/infer")],
        )

    assert [reply.status for reply in replies] == [200, 400, 200, 400]
    assert "supports /invocations only" in json.loads(replies[3].body)["error"]


def test_it_waits_until_the_server_is_ready():
    pings = []

    def respond(method, path, headers, body):
        pings.append(path)
        return said({}, 503 if len(pings) < 3 else 200)

    with model_server(respond) as server:
        run(InvocationsBackend(server.url), [])
    assert pings == ["/ping"] * 3


def test_one_that_never_gets_ready_is_named():
    with (
        model_server(lambda *_: said({}, 500)) as server,
        pytest.raises(Misconfigured, match=r"not ready.*status 500"),
    ):
        run(InvocationsBackend(server.url, ready_within_s=0.05), [])
    with pytest.raises(Misconfigured, match="cannot be reached"):
        run(InvocationsBackend(server.url, ready_within_s=0.05), [])


def test_a_server_that_goes_away_is_503():
    async def scenario():
        with model_server(lambda *_: said({"ok": 1})) as server:
            backend = InvocationsBackend(server.url)
            await backend.start()
            first = await backend.infer([asked(b"1")])
        gone = await backend.infer([asked(b"1"), asked(b"2")])
        await backend.close()
        return first, gone

    first, gone = asyncio.run(scenario())
    assert first[0].status == 200
    assert [reply.status for reply in gone] == [503, 503]
    assert "cannot be reached" in json.loads(gone[0].body)["error"]
