"""A status page that is really served, and a client that sees what came back."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mark.report.live.page_server import status_server
from mark.report.live.service_status import ServiceStatus

DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Served:
    port: int
    stop: Callable[[], None]

    def ask(self, path: str, *, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, text)
        finally:
            connection.close()

    @contextmanager
    def events(self, path: str = "/events", **headers: str) -> Iterator[Iterator[str]]:
        """The stream's lines, as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            assert response.status == 200
            yield (line.decode().rstrip("\n") for line in response)
        finally:
            response.close()
            connection.close()


@contextmanager
def serving(
    view: Callable[[], ServiceStatus],
    *,
    token: str | None = None,
    refresh_s: float = 0.02,
    local_only: bool = False,
) -> Iterator[Served]:
    server = status_server(view, token=token, local_only=local_only, refresh_s=refresh_s)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})

        def stop() -> None:
            server.should_exit = True
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

        thread.start()
        give_up_at = time.monotonic() + DEADLINE_S
        while not server.started:
            assert time.monotonic() < give_up_at
            time.sleep(0.005)
        try:
            yield Served(listening.getsockname()[1], stop)
        finally:
            stop()
