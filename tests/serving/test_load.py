"""The open loop: what is due is sent, whatever became of the rest, and every request is accounted for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mark.domain.errors import Misconfigured
from mark.serving.loadgen.run import Load, LoadResult, Target

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-mark-served-by: %s\r\n\r\n{}"
OF_VARIANT = ANSWER.replace(b"%s", b"instance\r\nx-mark-variant: %s")
WRONG = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nx-mark-served-by: instance\r\n\r\n"
SHED = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"


class Server:
    """A small HTTP server whose answers a test decides; `ids` are the request ids as they came."""

    def __init__(self, answer: Callable[[int], bytes | None], *, after: int = 0, wait_s: float = 0.0) -> None:
        """It answers `wait_s` after so many requests have come."""
        self.ids: list[bytes] = []
        self.sizes: list[bytes | None] = []
        self._answer, self._after, self._wait_s = answer, after, wait_s
        self._come = asyncio.Event()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
                self.ids.append(headers[b"x-mark-request-id"])
                self.sizes.append(headers.get(b"x-mark-size"))
                if len(self.ids) >= self._after:
                    self._come.set()
                await self._come.wait()
                await asyncio.sleep(self._wait_s)
                answer = self._answer(len(self.ids))
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()


def sent(
    server: Server, due_s: list[float], sizes: list[int] | None = None, *, objective_s: float = 0.5
) -> LoadResult:
    async def run() -> LoadResult:
        async with server:
            target = Target(host="127.0.0.1", port=server.port, path="/v2/models/m/infer", body=b"{}")
            load = Load(target, objective_s=objective_s, run_id="r")
            await load.connect()
            return await load.run(due_s, sizes, stop=asyncio.Event())

    return asyncio.run(asyncio.wait_for(run(), 60.0))


def test_a_request_of_several_items_says_so():
    server = Server(lambda _: ANSWER % b"instance")
    sent(server, [0.0, 0.05, 0.1], [3, 1, 170])
    assert dict(zip(server.ids, server.sizes, strict=True)) == {b"r-0": b"3", b"r-1": None, b"r-2": b"170"}


def test_answers_are_counted_by_who_gave_them():
    server = Server(lambda number: ANSWER % (b"lambda" if number % 2 else b"instance"))

    result = sent(server, [0.0, 0.01, 0.02, 0.03])

    assert (result.sent, result.answered, result.in_flight, result.attained) == (4, 4, 0, 1.0)
    assert result.by == {"lambda": 2, "instance": 2}
    assert len(set(server.ids)) == 4


def test_answers_are_counted_by_the_variant_that_gave_them():
    server = Server(lambda number: OF_VARIANT % b"small" if number < 4 else ANSWER % b"lambda")
    assert sent(server, [0.0, 0.01, 0.02, 0.03]).variants == {"small": 3}


def test_a_slow_service_does_not_slow_the_sender_and_latency_counts_from_when_it_was_due():
    server = Server(lambda _: ANSWER % b"instance", after=8, wait_s=0.2)

    result = sent(server, [0.0] * 8, objective_s=0.1)

    assert result.answered == 8
    assert result.attained == 0.0


def test_a_request_under_a_reset_connection_is_sent_once_more_with_its_id():
    server = Server(lambda number: None if number == 1 else ANSWER % b"instance")

    result = sent(server, [0.0])

    assert server.ids == [b"r-0", b"r-0"]
    assert (result.answered, result.errors) == (1, {"retried": 1})


def test_the_second_reset_is_an_error_and_the_request_is_not_lost_from_the_count():
    server = Server(lambda _: None)

    result = sent(server, [0.0])

    assert (result.sent, result.answered, result.in_flight) == (1, 0, 0)
    assert result.errors == {"retried": 1, "reset": 1}
    assert result.attained == 0.0


def test_what_is_shed_is_no_answer():
    result = sent(Server(lambda _: SHED), [0.0, 0.01])

    assert (result.answered, result.by["shed"], result.attained) == (0, 2, 0.0)


def test_what_is_wrong_in_itself_is_an_error_that_no_objective_counts():
    answers = {1: ANSWER % b"instance", 2: WRONG % b"400 Bad Request", 3: WRONG % b"429 Too Many Requests"}

    result = sent(Server(answers.__getitem__), [0.0, 0.05, 0.1])

    assert result.errors == {"http_400": 1, "http_429": 1}
    assert (result.answered, result.rejected, result.attained) == (1, 1, 0.5)
    assert not result.by.keys() - {"instance"}


def test_nobody_listens():
    async def run() -> None:
        load = Load(Target(host="127.0.0.1", port=1, path="/", body=b""), objective_s=1.0, run_id="r")
        await load.connect()

    with pytest.raises(Misconfigured, match="nobody listens"):
        asyncio.run(run())
