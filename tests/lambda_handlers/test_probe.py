"""One request to a service, and all that may come of it, over real HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from mark.domain.errors import Misconfigured
from mark.lambda_handlers import probe
from mark.protocols.probe import ask
from tests.lambda_handlers.records import CONTEXT


class Service(BaseHTTPRequestHandler):
    """Answers as a gateway does: who has the token is served, but for a model that is not there."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        allowed = self.headers.get("authorization") == "Bearer secret"
        self.send_response(401 if not allowed else 404 if "nobody" in self.path else 200)
        if allowed and "nobody" not in self.path:
            self.send_header("x-mark-served-by", "instance")
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v2/models"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_answer_comes_with_who_gave_it(service: str) -> None:
    reply = ask(f"{service}/digits/infer", "abc", "secret")
    assert (reply["status"], reply["served_by"], reply["body"]) == (200, "instance", "cba")
    assert reply["ms"] >= 0


@pytest.mark.parametrize(
    ("model", "token", "status"), [("nobody", "secret", 404), ("digits", "wrong", 401), ("digits", None, 401)]
)
def test_an_error_is_an_answer(service: str, model: str, token: str | None, status: int) -> None:
    reply = ask(f"{service}/{model}/infer", "abc", token)
    assert (reply["status"], reply["served_by"], reply["body"]) == (status, "", "cba")


def test_where_nothing_answers_the_reason_is_told() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{closed.getsockname()[1]}/v2/models/digits/infer"
        reply = probe.handler({"url": url, "body": "{}", "token": "t"}, CONTEXT)
    assert (reply["status"], reply["served_by"]) == (0, "")
    assert "refused" in reply["body"]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"url": "http://x", "body": "", "token": ""},
        {"url": "file:///etc/passwd"},
        {"url": "https://x", "body": 1},
    ],
    ids=["nothing", "in the clear", "a file", "no text"],
)
def test_nothing_is_asked_but_a_service_over_tls(event: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        probe.handler(event, CONTEXT)
