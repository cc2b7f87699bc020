"""A name that clients call moves from one service to another under load, and the first one ends: nothing is lost.

docs/deploy.md has the steps. The two services are alike here; what a shape adds to its gateways stands before
them (nodes, a balancer), and a gateway that ends is the same in both.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.end_to_end.rig import LIGHT, Rig, eventually, rig

pytestmark = pytest.mark.slow
MODEL, TOKEN = "inception-v3", "one-token-of-the-clients"
CLIENTS = 12
TIME_TO_LIVE_S = 3.0
FEW = 200
"""Requests by which a load is under way."""


@dataclass
class Name:
    """The name that clients call; a change reaches each of them when what it was told is too old."""

    address: str

    def look_up(self) -> tuple[str, float]:
        return self.address, time.monotonic() + TIME_TO_LIVE_S


@dataclass
class Client:
    """Requests one after the other on kept connections, to whatever the name meant when it was last asked.

    One that is `patient` keeps its connection for as long as the other end does, as many pools do.
    """

    name: Name
    body: bytes
    patient: bool
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def run(self, over: threading.Event) -> None:
        while not over.is_set():
            address, until = self.name.look_up()
            connection = http.client.HTTPConnection(address, timeout=60.0)
            try:
                while not over.is_set() and (self.patient or time.monotonic() < until):
                    if not self.is_kept_after(connection, address):
                        break
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{address}: {error!r}")
            finally:
                connection.close()

    def is_kept_after(self, connection: http.client.HTTPConnection, address: str) -> bool:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        connection.request("POST", f"/v2/models/{MODEL}/infer", self.body, headers)
        reply = connection.getresponse()
        reply.read()
        self.answers[address, reply.status] += 1
        return not reply.will_close


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[Rig, Rig]]:
    with rig(tmp_path / "first", "first") as first, rig(tmp_path / "second", "second") as second:
        for one in (first, second):
            one.home.mkdir()
            (one.home / "token").write_text(TOKEN, encoding="utf-8")
            one.up(LIGHT.format(name=one.name).replace("port: 0", "port: 0\n  token_file: token", 1))
        yield first, second


def test_a_name_moves_under_load_and_the_first_service_ends(services: tuple[Rig, Rig]) -> None:
    first, second = services
    models: list[dict[str, Any]] = first.running["models"]
    body = json.dumps(next(model["example"] for model in models if model["name"] == MODEL)).encode()
    addresses = {one.name: urlsplit(one.running["gateway"]).netloc for one in services}
    name, over = Name(addresses["first"]), threading.Event()
    clients = [Client(name, body, patient=bool(number % 2)) for number in range(CLIENTS)]
    threads = [threading.Thread(target=client.run, args=(over,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: answered(clients, addresses["first"]) >= FEW)
        name.address = addresses["second"]
        eventually(lambda: answered(clients[::2], addresses["second"]) >= FEW)
        assert answered(clients[1::2], addresses["second"]) == 0, "these keep what they have"
        assert first.down().status == 0
        eventually(lambda: min(answered([client], addresses["second"]) for client in clients) > 0)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert [failure for client in clients for failure in client.failures] == []
    answers = sum((client.answers for client in clients), Counter[tuple[str, int]]())
    assert {status for _, status in answers} == {200}
    assert second.store.arrived(MODEL) == answers[addresses["second"], 200], "each was served once"


def answered(clients: list[Client], address: str) -> int:
    return sum(client.answers[address, 200] for client in clients)
