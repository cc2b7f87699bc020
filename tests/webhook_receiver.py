"""A webhook on loopback: HTTPS with a certificate made for the occasion, which keeps what is posted to it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.store.tls import certificate

SECRET_PATH = "/services/T0/B0/hunter2"


@dataclass
class Receiver:
    """Answers with `status`, and with these raw bytes instead where there are any."""

    url: str = ""
    authority: Path = Path()
    status: int = 200
    raw: bytes = b""
    texts: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def context(self) -> ssl.SSLContext:
        """A client's side of TLS that knows the certificate."""
        return ssl.create_default_context(cafile=self.authority)


@contextmanager
def receiver(folder: Path) -> Iterator[Receiver]:
    """A receiver that runs meanwhile."""
    cert_file, key_file = certificate(folder)
    made = Receiver(authority=cert_file)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.paths.append(self.path)
            made.texts.append(json.loads(body)["text"])
            if made.raw:
                self.wfile.write(made.raw)
                return
            self.send_response(made.status)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert_file, key_file)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    made.url = f"https://127.0.0.1:{server.server_port}{SECRET_PATH}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
