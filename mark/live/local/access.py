"""Access to a service: its bearer token and its side of TLS."""

from __future__ import annotations

import secrets
import ssl
import stat
from contextlib import suppress

from mark.config.service import ServiceSettings
from mark.domain.errors import Misconfigured
from mark.live.local.ports import is_loopback

OTHERS = stat.S_IRGRP | stat.S_IROTH
"""Permission bits by which other users may read a file."""
TOKEN_LENGTH = 16
"""Characters that a token has at least."""


def exposed_secrets(settings: ServiceSettings) -> list[str]:
    """One line for each file with a secret that other users of this machine may read."""
    lines = []
    for name, file in (("token_file", settings.token_file), ("tls_key", settings.tls_key)):
        with suppress(OSError):  # whoever reads it says so
            if file is not None and file.stat().st_mode & OTHERS:
                lines.append(f"service.{name} {file} can be read by other users; chmod 600 {file}")
    return lines


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


def server_tls(settings: ServiceSettings) -> ssl.SSLContext | None:
    """The server's side of TLS, where certificate and key are named."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Misconfigured("TLS takes two files: service.tls_certificate and service.tls_key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or error.args[-1]
        raise Misconfigured(f"cannot use the certificate {certificate} with the key {key}: {why}") from error
    return context


def server_identity(settings: ServiceSettings) -> tuple[bytes, bytes] | None:
    """Private key and certificate chain (PEM), where they are named: gRPC takes no context. Errors: as above."""
    if server_tls(settings) is None or settings.tls_certificate is None or settings.tls_key is None:
        return None
    return settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes()
