"""A steady load on a live service: so many requests a second, whether or not earlier ones are answered.

Each request has an id of its own, a number whose hash nobody chose. What came is judged by windows of ten seconds:
an objective that is kept on average may be missed for a minute.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

RPS = 100.0
THREADS = 24
"""As many requests are under way at most; a service that is in time has two."""
WINDOW_S = 10.0
OBJECTIVE_S = 2.0
TARGET = 0.98
TRIES = 3
PATIENCE_S = 60.0
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]})


class Answer(NamedTuple):
    """A request: when it was sent, its status (0: none came), the model's value, and how long it took."""

    sent: float
    status: int
    value: float | None
    took_s: float

    @property
    def is_good(self) -> bool:
        return self.status == 200 and self.took_s <= OBJECTIVE_S


@dataclass
class Load:
    """Requests at a steady rate; `answers` holds them by when they ended."""

    url: str
    rps: float = RPS
    answers: list[Answer] = field(default_factory=list)
    #: tries after the first, of requests whose connection was lost
    retried: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    began_at: float = field(default_factory=time.monotonic)
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self) -> None:
        """One thread's part: whoever is free sends the next request once its time has come."""
        connection = self._connection()
        while True:
            number = next(self._numbers)
            if self.stop.wait(max(0.0, self.began_at + number / self.rps - time.monotonic())):
                connection.close()
                return
            sent = time.monotonic()
            status, value, connection = self._ask(connection, f"request-{number}")
            self.answers.append(Answer(sent, status, value, time.monotonic() - sent))

    def _connection(self) -> http.client.HTTPConnection:
        at = urlsplit(self.url)
        assert at.hostname is not None
        return http.client.HTTPConnection(at.hostname, at.port, timeout=PATIENCE_S)

    def _ask(
        self, connection: http.client.HTTPConnection, request_id: str
    ) -> tuple[int, float | None, http.client.HTTPConnection]:
        """One request; where its gateway was lost it is sent again under its id, as `mark load` does."""
        headers = {"content-type": "application/json", "x-mark-request-id": request_id}
        for _ in range(TRIES):
            with suppress(OSError, http.client.HTTPException):
                connection.request("POST", urlsplit(self.url).path, BODY, headers)
                reply = connection.getresponse()
                body = reply.read()
                value = json.loads(body)["outputs"][0]["data"][0] if reply.status == 200 else None
                return reply.status, value, connection
            connection.close()
            connection = self._connection()
            self.retried += 1
        return 0, None, connection

    def since(self, at: float) -> Counter[float | None]:
        """Answers to what was sent from then on."""
        return Counter(one.value for one in tuple(self.answers) if one.sent >= at)

    def worst(self, since: float = 0.0) -> float:
        """The share in time of the window with the fewest; of windows with a tenth of the requests that it has."""
        windows: dict[int, list[bool]] = {}
        for one in tuple(self.answers):
            if one.sent >= since:
                windows.setdefault(int((one.sent - self.began_at) // WINDOW_S), []).append(one.is_good)
        least = 0.1 * self.rps * WINDOW_S
        return min((sum(good) / len(good) for good in windows.values() if len(good) >= least), default=1.0)

    def assert_good(self, what: str, since: float = 0.0, **more: float) -> None:
        """No request is lost and each window keeps the objective; the figures are told. more: of the case."""
        found = [one for one in tuple(self.answers) if one.sent >= since]
        ended = max((one.sent for one in found), default=0.0) - min((one.sent for one in found), default=0.0)
        lost, worst = sum(one.status != 200 for one in found), self.worst(since)
        told = {
            "requests": len(found),
            "rps": round(len(found) / max(ended, 1e-9), 1),
            "lost": lost,
            "attained": round(sum(one.is_good for one in found) / max(len(found), 1), 4),
            "attained_worst_10_s": round(worst, 4),
            "sent_again": self.retried,
            **{name: round(value, 2) for name, value in more.items()},
        }
        sys.stderr.write(f"\nFIGURES {what}: {json.dumps(told)}\n")
        assert lost == 0, Counter(one.status for one in found)
        assert worst >= TARGET, told


@contextmanager
def load(url: str, rps: float = RPS) -> Iterator[Load]:
    """Load until the block ends."""
    made = Load(url, rps)
    threads = [threading.Thread(target=made.run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        for thread in threads:
            thread.join()
