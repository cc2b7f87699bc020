"""The certificate of an agent's port for frames: made at each start, and known by its fingerprint in the store."""

from __future__ import annotations

import datetime as dt
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

LIVES = dt.timedelta(days=3650)
"""Longer than any agent: gateways compare the fingerprint, no date."""
NAME = "mark agent"


@dataclass(frozen=True, slots=True)
class AgentTls:
    """The server's side of TLS, and the SHA-256 of its certificate in hex."""

    context: ssl.SSLContext
    fingerprint: str


def make_certificate() -> AgentTls:
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
        file = Path(folder, "agent.pem")
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(file)
    return AgentTls(context, certificate.fingerprint(hashes.SHA256()).hex())
