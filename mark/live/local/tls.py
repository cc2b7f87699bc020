"""The server's side of TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

from mark.domain.errors import Misconfigured


def server_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The server's side of TLS; None where neither file is named. Errors: Misconfigured."""
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


def server_identity(certificate: Path | None, key: Path | None) -> tuple[bytes, bytes] | None:
    """Private key and certificate chain (PEM), where they are named: gRPC takes no context. Errors: as above."""
    if server_tls(certificate, key) is None or certificate is None or key is None:
        return None
    return key.read_bytes(), certificate.read_bytes()
