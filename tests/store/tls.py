"""A TLS end in front of a Unix socket, with a certificate made for the occasion."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.waiting import PATIENCE_S


def certificate(folder: Path) -> tuple[Path, Path]:
    """Files of a self-signed certificate for 127.0.0.1 and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert_file, key_file


@contextmanager
def tls_in_front_of(path: Path, cert_file: Path, key_file: Path) -> Iterator[int]:
    """A port of 127.0.0.1 that speaks TLS and passes on what is said to the Unix socket."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    ready, ports = threading.Event(), list[int]()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        async with server:
            ports.append(server.sockets[0].getsockname()[1])
            ready.set()
            await over.wait()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.005)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(5.0)
        loop.close()
