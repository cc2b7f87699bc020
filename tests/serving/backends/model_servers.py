"""Model servers for tests: real HTTP on a thread, with what they were asked kept."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


class ModelServer:
    """Answers what `respond(method, path, headers, body)` gives; `asked` lists method, path and body."""

    def __init__(self, respond: Callable[[str, str, dict[str, str], bytes], Answer]) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.connections: list[socket.socket] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            timeout = 5

            def setup(self) -> None:
                super().setup()
                outer.connections.append(self.connection)

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.asked.append((self.command, self.path, body))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, extra, answer = respond(self.command, self.path, headers, body)
                self.send_response(status)
                for name, value in {"content-type": "application/json", **extra}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = _serve  # noqa: N815

            def log_message(self, *_args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    @property
    def inferences(self) -> list[bytes]:
        """Bodies that were posted."""
        return [body for method, _, body in self.asked if method == "POST"]


@contextmanager
def model_server(respond: Callable[[str, str, dict[str, str], bytes], Answer]) -> Iterator[ModelServer]:
    server = ModelServer(respond)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def said(value: object, status: int = 200) -> Answer:
    """A JSON answer."""
    return status, {}, json.dumps(value).encode()
