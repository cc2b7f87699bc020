from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.settings import Settings
from mark.config.telemetry import TelemetrySettings
from mark.domain.errors import Misconfigured
from mark.live.local.access import collector_headers, exposed_secrets


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
@pytest.mark.parametrize("name", ["service.token_file", "service.tls_key", "telemetry.headers_file"])
def test_a_secret_that_others_may_read_is_warned_about(name: str, mode: int, warned: bool, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * 20)
    file.chmod(mode)

    part, _, key = name.partition(".")
    lines = exposed_secrets(Settings.model_validate({part: {key: file}}))

    assert len(lines) == warned
    assert all(str(file) in line and "chmod 600" in line for line in lines)


def test_a_certificate_is_no_secret_and_a_missing_file_is_said_elsewhere(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    certificate.touch(0o644)

    service = {"tls_certificate": certificate, "tls_key": tmp_path / "none"}
    assert exposed_secrets(Settings.model_validate({"service": service})) == []


def test_headers_for_a_collector_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("api-key=s3cret%20word, X-Tenant=a\n")

    assert collector_headers(TelemetrySettings()) == {}
    assert collector_headers(TelemetrySettings(headers_file=file)) == {"api-key": "s3cret word", "x-tenant": "a"}


@pytest.mark.parametrize(
    "text",
    [
        "s3cret",
        "api key=s3cret",
        "=s3cret",
        "api-key=s3cret%0d%0ax: 1",
        "k=",
        pytest.param("ké=s3cret", id="accent"),
    ],
)
def test_headers_that_cannot_be_read_are_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(Misconfigured, match=r"telemetry\.headers_file") as refused:
        collector_headers(TelemetrySettings(headers_file=file))

    assert "s3cret" not in str(refused.value)
