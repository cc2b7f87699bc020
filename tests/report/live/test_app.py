"""The served status page: what each route answers, to whom, and that changes are sent."""

import http.client
import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from mark.report.live.service_status import SERVICE, ServiceStatus
from tests.report.live.fakes import busy_model, empty_model, interrupted_model, status
from tests.report.live.http import Served, serving
from tests.waiting import PATIENCE_S

TOKEN = "a-long-token"
GUARDED = ("/events", "/status.json", "/metrics")


@pytest.fixture(scope="module")
def page() -> Iterator[Served]:
    with serving(lambda: status(busy_model())) as served:
        yield served


@pytest.fixture(scope="module")
def closed() -> Iterator[Served]:
    with serving(lambda: status(busy_model()), token=TOKEN) as served:
        yield served


def data_of(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def test_page_holds_the_figures(page: Served) -> None:
    answer = page.ask("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for part in ("inception-v3", "41.2", "99.65 %", "98 % within 600 ms", "2.36", "55.4 requests/s are expected"):
        assert part in answer.text
    assert '<noscript><meta http-equiv="refresh"' in answer.text


def test_status_json_is_the_view(page: Served) -> None:
    assert json.loads(page.ask("/status.json").text) == SERVICE.dump(status(busy_model()))


def test_metrics_are_prometheus_text(page: Served) -> None:
    answer = page.ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'mark_usd_per_hour{model="inception-v3"} 0.987' in answer.text


def test_unknown_paths_and_methods_are_refused(page: Served) -> None:
    assert page.ask("/etc/passwd").status == 404
    assert page.ask("/", method="POST").status == 405
    assert page.ask("/login").status == 405


def test_policy_allows_only_what_the_page_brings(page: Served) -> None:
    one, other = page.ask("/"), page.ask("/")
    policy = dict(part.strip().split(" ", 1) for part in one.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    nonce = policy["script-src"].removeprefix("'nonce-").removesuffix("'")
    assert policy["style-src"] == policy["script-src"]
    assert re.findall(r"<(?:script|style)\b[^>]*>", one.text) == [
        f'<style nonce="{nonce}">',
        f'<script nonce="{nonce}">',
    ]
    assert " style=" not in one.text
    assert nonce not in other.headers["content-security-policy"]
    assert not re.search(r"https?://", one.text)


@pytest.mark.parametrize("path", ["/", "/status.json", "/metrics", "/healthz"])
def test_every_answer_has_security_headers(page: Served, path: str) -> None:
    headers = page.ask(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "server" not in headers


def test_fragments_come_at_once_and_then_only_what_changed() -> None:
    shown = [status(busy_model())]
    with serving(lambda: shown[0]) as served, served.events() as lines:
        updates = data_of(lines)
        first = next(updates)
        assert {"top", "banners", "m0-tiles", "m0-chart", "m0-spend"} <= first.keys()
        assert first["m0-tiles"] in served.ask("/").text
        shown[0] = status(replace(busy_model(), usd_per_hour=1.23, notes=("a note",)))
        second = next(updates)
        assert second.keys() == {"models", "m0-tiles", "m0-spend", "m0-notes"}
        assert "1.23" in second["m0-tiles"]


def test_another_outline_reloads_the_page() -> None:
    shown = [status(busy_model())]
    with serving(lambda: shown[0]) as served:
        shape = re.search(r"events\?shape=(\w+)", served.ask("/").text)
        assert shape
        with served.events(f"/events?shape={shape[1]}") as lines:
            next(data_of(lines))
            shown[0] = status(busy_model(), empty_model("digits"))
            assert "event: reload" in lines


def test_one_view_serves_many_readers() -> None:
    taken = count()
    with serving(lambda: status(busy_model(), now=float(next(taken))), refresh_s=30.0) as served:
        for _ in range(5):
            assert served.ask("/status.json").status == 200
    assert next(taken) == 1


def test_a_view_that_fails_is_an_error_and_the_next_is_shown() -> None:
    fails: list[Exception] = [ValueError("broken")]

    def view() -> ServiceStatus:
        if fails:
            raise fails.pop()
        return status(busy_model())

    with serving(view) as served:
        assert served.ask("/").status == 500
        assert served.ask("/").status == 200


@pytest.mark.parametrize("path", GUARDED)
def test_token_is_needed(closed: Served, path: str) -> None:
    answer = closed.ask(path)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "inception" not in answer.text
    for wrong in ("Bearer", "Bearer nope", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9"):
        assert closed.ask(path, authorization=wrong).status == 401
    for cookie in ("mark_status=", f"mark_status={TOKEN}", "mark_status=00"):
        assert closed.ask(path, cookie=cookie).status == 401


def test_token_opens(closed: Served) -> None:
    for path in ("/", "/status.json", "/metrics"):
        assert closed.ask(path, authorization=f"Bearer {TOKEN}").status == 200
    with closed.events(authorization=f"bearer {TOKEN}") as lines:
        assert next(data_of(lines))
    assert closed.ask("/healthz").text == "ok\n"


def test_page_without_the_token_is_the_form(closed: Served) -> None:
    answer = closed.ask("/")
    assert answer.status == 401
    assert 'type="password"' in answer.text
    assert "inception" not in answer.text


def test_login_gives_a_strict_cookie_that_is_not_the_token(closed: Served) -> None:
    form = {"method": "POST", "content-type": "application/x-www-form-urlencoded"}
    answer = closed.ask("/login", body=f"token={TOKEN}", **form)
    assert answer.status == 303
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    value = cookie.split(";")[0]
    assert closed.ask("/", cookie=value).status == 200
    assert closed.ask("/status.json", cookie=value).status == 200


def test_login_refuses_what_is_not_the_token(closed: Served) -> None:
    for body in ("token=nope", "", "token=%FF", f"other={TOKEN}"):
        answer = closed.ask("/login", method="POST", body=body)
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
        assert "That is not the token" in answer.text
    assert closed.ask("/login", method="POST", body="token=" + "x" * 10_000).status == 413


def test_login_of_an_open_page_leads_back(page: Served) -> None:
    answer = page.ask("/login", method="POST", body="token=x")
    assert answer.status == 303
    assert "set-cookie" not in answer.headers


def test_a_page_for_this_machine_only_answers_to_no_other_name() -> None:
    with serving(lambda: status(busy_model()), local_only=True) as served:
        assert served.ask("/status.json").status == 200
        assert served.ask("/status.json", host="localhost:1").status == 200
        answer = served.ask("/status.json", host="evil.example")
        assert (answer.status, answer.headers["cache-control"]) == (421, "no-store")


def test_streams_end_with_the_page(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda: status(interrupted_model())) as served, served.events() as lines:
        next(data_of(lines))
        served.stop()
        assert list(data_of(lines)) == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_too_many_readers_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mark.report.live.app.MOST_STREAMS", 1)
    with serving(lambda: status(busy_model())) as served, served.events() as lines:
        next(data_of(lines))
        assert served.ask("/events").status == 503


SCRIPT = """
import socket, sys
from pathlib import Path
from mark.report.live.page_server import serve_status
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
certificate, key = (Path(name) for name in sys.argv[1:3])
serve_status(lambda: {"service": "s", "now": 0.0, "models": []}, listening, token="t",
             tls_certificate=certificate, tls_key=key)
"""


def test_serves_over_tls_until_it_is_told_to_end(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    arguments = [sys.executable, "-c", SCRIPT, str(certificate), str(key)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout
            port = int(process.stdout.readline())
            context = ssl.create_default_context(cafile=str(certificate))
            connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=context)
            connection.request("POST", "/login", "token=t")
            answer = connection.getresponse()
            assert answer.status == 303
            assert "Secure" in str(answer.getheader("set-cookie")).split("; ")
            connection.close()
            process.terminate()
            assert process.wait(PATIENCE_S) == -signal.SIGTERM
        finally:
            process.kill()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost and its key, good for a day."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"
