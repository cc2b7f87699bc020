from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.service import ServiceSettings
from mark.live.local.access import exposed_secrets


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
@pytest.mark.parametrize("name", ["token_file", "tls_key"])
def test_a_secret_that_others_may_read_is_warned_about(name: str, mode: int, warned: bool, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * 20)
    file.chmod(mode)

    lines = exposed_secrets(ServiceSettings.model_validate({name: file}))

    assert len(lines) == warned
    assert all(str(file) in line and "chmod 600" in line for line in lines)


def test_a_certificate_is_no_secret_and_a_missing_file_is_said_elsewhere(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    certificate.touch(0o644)

    assert exposed_secrets(ServiceSettings(tls_certificate=certificate, tls_key=tmp_path / "none")) == []
