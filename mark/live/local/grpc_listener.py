"""The gateways' way in by gRPC, where the settings ask for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mark.domain.errors import Misconfigured
from mark.live.local.tls import server_identity

if TYPE_CHECKING:
    from mark.serving.grpc.grpc_server import GrpcServer
    from mark.serving.http.http_server import HttpServer

EXTRA = "service.grpc_port needs grpcio: pip install 'mark-serving[grpc]'"


def grpc_listener(
    host: str, port: int | None, certificate: Path | None = None, key: Path | None = None
) -> Callable[[HttpServer], GrpcServer] | None:
    """Makes a gateway's listener; None without a port. Errors: Misconfigured.

    grpcio is imported here and not before: it is an extra, and takes 15 MiB of memory.
    """
    if port is None:
        return None
    # its own library writes a line for each handshake that fails: any stranger could fill the log
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from mark.serving.grpc.grpc_server import GrpcConfig, GrpcServer  # noqa: PLC0415
    except ImportError as error:
        raise Misconfigured(EXTRA) from error
    config = GrpcConfig(host=host, port=port, identity=server_identity(certificate, key))
    return partial(GrpcServer, config)
