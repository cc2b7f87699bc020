"""A real HTTP server in Lambda's place: answers Invoke as it is told."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
REPORT = (
    "START RequestId: a\nREPORT RequestId: a\tDuration: 199.4 ms\tBilled Duration: 200 ms\t"
    "Memory Size: 2048 MB\tMax Memory Used: 90 MB\t"
)
COLD = REPORT + "Init Duration: 310.55 ms\t"


def log(text: str) -> dict[str, str]:
    return {"x-amz-log-result": base64.b64encode(text.encode()).decode()}


def echo(event: dict[str, Any]) -> Answer:
    """The function answers with the body it was given."""
    reply = {
        "statusCode": 200,
        "headers": {"Content-Type": "application/json"},
        "body": event["body"],
        "isBase64Encoded": event["isBase64Encoded"],
    }
    return 200, log(REPORT), json.dumps(reply).encode()


class LambdaStandIn:
    """`answer` may be changed while it runs; `calls` holds (path, event)."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer] = echo) -> None:
        self.answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stand_in.calls.append((self.path, event))
                status, headers, body = stand_in.answer(event)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> LambdaStandIn:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
