"""A tiny agent: serves HTTP on its instance's address and does what it is told."""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8000


class Metadata:
    def __init__(self, base: str) -> None:
        self._base = base
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        self._token = self._call("PUT", "latest/api/token", headers)

    def get(self, path: str) -> str:
        return self._call("GET", path, {"X-aws-ec2-metadata-token": self._token})

    def _call(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(self._base + path, headers=headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310
            return reply.read().decode()


def run(environment: Mapping[str, str]) -> int:
    metadata = Metadata(environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"])
    address = metadata.get("latest/meta-data/local-ipv4")
    codes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/off":
                codes.append(0)
            elif self.path == "/crash":
                os._exit(3)
            try:
                text = (
                    metadata.get(self.path.removeprefix("/imds/")) if "/imds/" in self.path else str(os.getpid())
                )
            except urllib.error.HTTPError as error:
                text = str(error.code)
            body = json.dumps(text).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if codes:
                threading.Thread(target=server.shutdown).start()

        def log_message(self, *args: object) -> None:
            sys.stderr.write(f"{args}\n")

    server = ThreadingHTTPServer((address, PORT), Handler)
    server.serve_forever(poll_interval=0.02)
    server.server_close()
    return codes[0]
