"""Serves the status page over HTTP or TLS."""

from __future__ import annotations

import socket
from pathlib import Path

import uvicorn

from mark.report.live.app import View, status_app

GRACE_S = 2
"""Whoever still reads this long after the page was told to end is cut off."""


def status_server(
    view: View,
    *,
    token: str | None,
    local_only: bool = False,
    refresh_s: float = 1.0,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
) -> uvicorn.Server:
    """A server that is not yet running; `serve_status` runs one, tests run it on a thread."""

    def is_ending() -> bool:
        return server.should_exit

    config = uvicorn.Config(
        status_app(view, token=token, local_only=local_only, refresh_s=refresh_s, is_ending=is_ending),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls_certificate,
        ssl_keyfile=tls_key,
    )
    server = uvicorn.Server(config)
    return server


def serve_status(
    view: View,
    listening: socket.socket,
    *,
    token: str | None,
    local_only: bool = False,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
) -> None:
    """Serve on a bound socket until SIGTERM or SIGINT. local_only: as in `status_app`."""
    server = status_server(
        view, token=token, local_only=local_only, tls_certificate=tls_certificate, tls_key=tls_key
    )
    server.run(sockets=[listening])
