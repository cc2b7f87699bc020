"""A service's secrets in files: the bearer token, the collector's headers, and who may read them."""

from __future__ import annotations

import secrets
import stat
from contextlib import suppress

from mark.config.service import ServiceSettings
from mark.config.settings import Settings
from mark.config.telemetry import TelemetrySettings
from mark.domain.errors import Misconfigured
from mark.live.local.ports import is_loopback
from mark.telemetry.otlp.headers import parse_headers

OTHERS = stat.S_IRGRP | stat.S_IROTH
"""Permission bits by which other users may read a file."""
TOKEN_LENGTH = 16
"""Characters that a token has at least."""


def exposed_secrets(settings: Settings) -> list[str]:
    """One line for each file with a secret that other users of this machine may read."""
    service, lines = settings.service, []
    for name, file in (
        ("service.token_file", service.token_file),
        ("service.tls_key", service.tls_key),
        ("telemetry.headers_file", settings.telemetry.headers_file),
    ):
        with suppress(OSError):  # whoever reads it says so
            if file is not None and file.stat().st_mode & OTHERS:
                lines.append(f"{name} {file} can be read by other users; chmod 600 {file}")
    return lines


def collector_headers(settings: TelemetrySettings) -> dict[str, str]:
    """The headers for the collector, of their file; none without one. Errors: Misconfigured."""
    file = settings.headers_file
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="ascii")
    except OSError as error:
        raise Misconfigured(f"cannot read telemetry.headers_file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Misconfigured(f"telemetry.headers_file {file} should be ASCII text") from error
    return parse_headers(text, f"telemetry.headers_file {file}")


def bearer_token(settings: ServiceSettings) -> str | None:
    """The bearer token: the file's; made up where the gateway is seen from beyond this machine; else none."""
    file = settings.token_file
    if file is None:
        return None if is_loopback(settings.host) else secrets.token_urlsafe(32)
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise Misconfigured(f"cannot read service.token_file {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        text = ""
    if len(text) < TOKEN_LENGTH or not text.isprintable():
        raise Misconfigured(f"the token in {file} must be {TOKEN_LENGTH} printable ASCII characters or more")
    return text
