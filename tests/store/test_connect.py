"""URLs: what is refused in one line, TLS, clusters; and that every failure is RetryLater, soon."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from mark.domain.errors import Misconfigured, RetryLater
from mark.store.connect import _LIMITS, ANSWER_S, AsyncLink, Link, connect, connect_async
from mark.store.embedded import EmbeddedRedis
from mark.store.scripts import Script
from mark.store.service import ServiceStore
from tests.store.builders import a_transition
from tests.store.tls import certificate, tls_in_front_of


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "it begins with none of redis://"),
        ("http://localhost", "it begins with none of redis://"),
        ("redis://", "it names no host"),
        ("redis://host:0", "it names no host, or port 0"),
        ("redis://host:none", "Port could not be cast"),
        ("redis://host:70000", "Port out of range"),
        ("redis://[::1", "Invalid IPv6 URL"),
        ("unix://relative/path", "after unix:// comes a socket's whole path"),
        ("redis://host?timeout=1", "it has the parameter 'timeout'"),
        ("redis://host?db=nought", "db is not a whole number"),
        ("redis+cluster://host?db=1", "a cluster has no db"),
        ("rediss://host?ssl_ca_certs=/no/such/file", "ssl_ca_certs names no file"),
        ("rediss://host?ssl_cert_reqs=perhaps", "ssl_cert_reqs is one of"),
        ("rediss://host?ssl_check_hostname=perhaps", "ssl_check_hostname is one of"),
        ("redis://host?ssl_cert_reqs=none", "only rediss:// takes ssl_cert_reqs"),
    ],
)
def test_a_wrong_url_is_refused_in_one_line(url: str, why: str) -> None:
    for make in (connect, connect_async):
        with pytest.raises(Misconfigured, match="the store's URL is wrong") as refused:
            make(url)
        assert why in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_password_is_never_told() -> None:
    with pytest.raises(Misconfigured) as refused:
        connect("redis://user:secret@host?nonsense=1")
    with pytest.raises(RetryLater) as later:
        connect("redis://user:secret@127.0.0.1:1/0").call("GET", "key")
    for error in (refused.value, later.value):
        assert "secret" not in str(error)


def test_a_server_that_is_not_there_is_retry_later_with_its_cause(tmp_path: Path) -> None:
    link = connect(f"unix://{tmp_path}/redis.sock")
    with pytest.raises(RetryLater, match=r"the store unix:///.*/redis\.sock did not answer") as later:
        link.call("GET", "key")
    assert later.value.__cause__ is not None
    with pytest.raises(RetryLater):
        link.run(Script("return 1"), ())

    async def asked() -> None:
        link = connect_async(f"unix://{tmp_path}/redis.sock")
        with pytest.raises(RetryLater):
            await link.call("GET", "key")
        with pytest.raises(RetryLater):
            await link.run(Script("return 1"), ())
        await link.aclose()

    asyncio.run(asked())


def test_a_cluster_that_is_not_there_is_retry_later() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"redis+cluster://127.0.0.1:{free.getsockname()[1]}"
        link = connect(url)
        with pytest.raises(RetryLater):
            link.call("GET", "key")

        async def asked() -> None:
            link = connect_async(url)
            with pytest.raises(RetryLater):
                await link.call("GET", "key")
            await link.aclose()

        asyncio.run(asked())


def test_what_redis_refuses_is_retry_later_too(link: Link) -> None:
    with pytest.raises(RetryLater, match="unknown command"):
        link.call("NONSENSE")
    with pytest.raises(RetryLater, match="went wrong"):
        link.run(Script("return redis.error_reply('ERR it went wrong')"), ())


def test_a_server_that_hangs_is_retry_later_soon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LIMITS, "socket_timeout", ANSWER_S)
    with EmbeddedRedis(folder) as server:
        link = connect(server.url)
        link.call("SET", "key", "value")
        os.kill(server.pid, signal.SIGSTOP)
        wakes = threading.Timer(5.0, os.kill, (server.pid, signal.SIGCONT))
        wakes.start()
        with pytest.raises(RetryLater):
            link.call("GET", "key")
        assert wakes.is_alive()
        wakes.cancel()
        wakes.join()
        os.kill(server.pid, signal.SIGCONT)
        assert link.call("GET", "key") == b"value"  # nor does a late answer pass for another one
        link.close()


def test_a_script_is_sent_again_to_a_server_that_forgot_it(link: Link) -> None:
    script = Script("return ARGV[1]")
    assert link.run(script, (), ("one",)) == b"one"
    link.call("SCRIPT FLUSH")
    assert link.run(script, (), ("two",)) == b"two"


def test_a_link_opens_again_after_it_was_closed(redis: EmbeddedRedis) -> None:
    link = connect(redis.url)
    link.close()
    assert link.call("EXISTS", "nothing") == 0
    link.close()
    assert link.call("EXISTS", "nothing") == 0
    link.close()


def test_tls_with_a_certificate_from_a_file(redis: EmbeddedRedis, tmp_path: Path) -> None:
    cert_file, key_file = certificate(tmp_path)
    with tls_in_front_of(Path(redis.url.removeprefix("unix://")), cert_file, key_file) as port:
        link = connect(f"rediss://127.0.0.1:{port}?ssl_ca_certs={cert_file}")
        store = ServiceStore(link, "tls")
        store.put_status("x", {"through": "TLS"})
        assert store.status("x") == {"through": "TLS"}
        link.close()

        stranger = connect(f"rediss://127.0.0.1:{port}")
        with pytest.raises(RetryLater, match=r"(?i)certificate"):
            stranger.call("GET", "key")
        stranger.close()

        async def asked() -> int:
            link = connect_async(f"rediss://127.0.0.1:{port}?ssl_ca_certs={cert_file}")
            answer = await link.call("EXISTS", "nothing")
            await link.aclose()
            return int(answer)

        assert asyncio.run(asked()) == 0


def test_a_cluster_takes_every_script(cluster: str) -> None:
    """It refuses a script whose keys do not lie together, so each is run once; the contract runs the others."""
    link = connect(cluster)
    store = ServiceStore(link, "demo")
    lease = store.leases.acquire("left", 5.0)
    assert lease is not None
    journal = store.open_journal("digits", b"header", lease)
    journal.write(b"line")
    journal.rotate(b"header 2")
    store.leases.renew(lease)
    store.leases.release(lease)
    store.note(a_transition())
    assert store.transitions("digits") == (a_transition(),)
    assert list(store.journal_lines("digits", 1)) == [b"header", b"line"]
    assert store.traffic("digits").answered == 0
    link.close()


async def test_a_cancellation_that_the_client_loses_ends_its_task_all_the_same() -> None:
    class Loses:
        async def execute_command(self, *_words: object) -> bytes:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return b"answer"

    call = asyncio.ensure_future(AsyncLink("it", lambda _host: Loses()).call("GET", "key"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
