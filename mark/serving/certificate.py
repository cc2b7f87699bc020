"""The certificate of a port within the service: made at each start, and known by its fingerprint in the store."""

from __future__ import annotations

import asyncio
import datetime as dt
import hmac
import ssl
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

LIVES = dt.timedelta(days=3650)
"""Longer than any process: callers compare the fingerprint, no date."""
NAME = "mark"


@dataclass(frozen=True, slots=True)
class PortTls:
    """The server's side of TLS, and the SHA-256 of its certificate in hex."""

    context: ssl.SSLContext
    fingerprint: str


def make_certificate() -> PortTls:
    """A new key and a certificate that it signs itself. The key lies in a private file while OpenSSL reads it."""
    # agents on loopback, dozens of them on one machine, need none of it
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + LIVES)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "port.pem")
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(file)
    return PortTls(context, certificate.fingerprint(hashes.SHA256()).hex())


def any_certificate() -> ssl.SSLContext:
    """TLS that accepts each certificate: `is_shown` compares it when the connection is made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_shown(transport: asyncio.BaseTransport, fingerprint: str) -> bool:
    """True where the other end shows the certificate of this fingerprint."""
    shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return hmac.compare_digest(sha256(shown).hexdigest().encode(), fingerprint.encode())
