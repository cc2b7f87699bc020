"""A message to a webhook: posted once, over HTTPS alone, and no failure names the address."""

from __future__ import annotations

import socket
import ssl
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.protocols.alert_messages import TEST, slack_body
from mark.protocols.webhook_post import post, url_parts
from tests.webhook_receiver import SECRET_PATH, Receiver, receiver


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Receiver]:
    with receiver(tmp_path) as made:
        yield made


def told(error: BaseException) -> str:
    """All that a log may have of it."""
    return "".join(traceback.format_exception(error)) + repr(error)


def test_a_message_is_posted_once(there: Receiver) -> None:
    post(there.url, slack_body(TEST), context=there.context)
    assert there.paths == [SECRET_PATH]
    assert there.texts == ["NOTICE test: alarms of MArk are posted here. Nothing is wrong."]


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (204, None, ""),
        (302, Misconfigured, "status 302, a redirect"),
        (404, Misconfigured, "status 404"),
        (429, RetryLater, "status 429"),
        (503, RetryLater, "status 503"),
    ],
)
def test_the_status_says_what_came_of_it(
    there: Receiver, status: int, kind: type[MarkError] | None, words: str
) -> None:
    there.status = status
    if kind is None:
        post(there.url, slack_body(TEST), context=there.context)
    else:
        with pytest.raises(kind, match=words) as caught:
            post(there.url, slack_body(TEST), context=there.context)
        assert "hunter2" not in told(caught.value)
        assert "127.0.0.1" not in told(caught.value)
    assert there.paths == [SECRET_PATH], "no redirect is followed"


@pytest.mark.parametrize("raw", [b"SSH-2.0\r\n", b"HTTP/1.1 two\r\n", b"x" * 5000, b"\n"])
def test_what_is_no_http_is_a_failure(there: Receiver, raw: bytes) -> None:
    there.raw = raw
    with pytest.raises(RetryLater, match="no HTTP"):
        post(there.url, slack_body(TEST), context=there.context)


def test_a_certificate_of_nobody_is_refused_before_anything_is_sent(there: Receiver) -> None:
    with pytest.raises(RetryLater, match="certificate is not valid") as caught:
        post(there.url, slack_body(TEST))
    assert there.texts == []
    assert "127.0.0.1" not in told(caught.value)


def test_who_never_answers_is_left(there: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        url = f"https://127.0.0.1:{silent.getsockname()[1]}{SECRET_PATH}"
        with pytest.raises(RetryLater, match=r"no answer within 0\.2 s"):
            post(url, b"{}", timeout_s=0.2)


def test_who_answers_byte_by_byte_is_left(tmp_path: Path, there: Receiver) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    left = threading.Event()

    def drip(server: socket.socket) -> None:
        plain, _ = server.accept()
        with tls.wrap_socket(plain, server_side=True) as link:
            try:
                while not left.wait(0.05):
                    link.sendall(b" ")
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,), daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(RetryLater, match="no answer within 1 s"):
            post(url, b"{}", context=there.context, timeout_s=1.0)
        left.set()
        thread.join()


def test_who_is_not_there_is_said_without_a_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(RetryLater, match="connection refused") as caught:
        post(f"https://127.0.0.1:{port}{SECRET_PATH}", b"{}")
    assert str(port) not in told(caught.value)
    with pytest.raises(RetryLater, match="its host is not found"):
        post(f"https://a..b{SECRET_PATH}", b"{}")


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/hunter2",
        "https://user:hunter2@hooks.example.com/",
        "https://hooks.example.com:0/hunter2",
        "https://hooks.example.com:70000/hunter2",
        "https://hooks.example.com/hunter2\r\nx: y",
        "https://hooks.example.com/hunter2 ",
        "https:///hunter2",
        "hunter2",
        "",
    ],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Misconfigured, match="must read https://HOST/PATH") as caught:
        url_parts(url)
    assert "hunter2" not in told(caught.value)


@given(st.text())
def test_an_address_that_is_taken_cannot_break_out_of_the_request(text: str) -> None:
    with suppress(Misconfigured):
        url_parts(f"https://hooks.example.com/{text}")
        assert text.isascii()
        assert not any(character.isspace() or not character.isprintable() for character in text)
