"""The gateways' way in by gRPC, where the settings ask for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mark.config.service import ServiceSettings
from mark.domain.errors import Misconfigured
from mark.live.local.access import server_identity

if TYPE_CHECKING:
    from mark.serving.grpc.server import GrpcServer
    from mark.serving.http.server import HttpServer

EXTRA = "service.grpc_port needs grpcio: pip install 'mark-serving[grpc]'"


def grpc_listener(service: ServiceSettings) -> Callable[[HttpServer], GrpcServer] | None:
    """Makes a gateway's listener; None where the settings name no port. Errors: Misconfigured.

    grpcio is imported here and not before: it is an extra, and takes 15 MiB of memory.
    """
    if service.grpc_port is None:
        return None
    # its own library writes a line for each handshake that fails: any stranger could fill the log
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from mark.serving.grpc.server import GrpcConfig, GrpcServer  # noqa: PLC0415
    except ImportError as error:
        raise Misconfigured(EXTRA) from error
    config = GrpcConfig(host=service.host, port=service.grpc_port, identity=server_identity(service))
    return partial(GrpcServer, config)
