"""A gateway's process: FOLDER PARENT NAME ZONE PORT [GRPC_PORT]; the zone is empty where none are told apart."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from functools import partial
from pathlib import Path

import uvloop

from mark.aws.client_tokens import AGAIN_S, READ_EACH_S, valid_tokens
from mark.aws.functions.overflow import LambdaOverflow
from mark.aws.session import Aws
from mark.dispatch.central.queue import PLAIN, CentralCode
from mark.live.gateway_start import GatewayStart
from mark.live.local.grpc_listener import grpc_listener
from mark.live.local.heartbeat import keep_beating
from mark.live.local.process_start import begin
from mark.live.local.tls import server_tls
from mark.live.store_link import open_async_link
from mark.service_spec import ServiceSpec
from mark.serving.gateway.config import GatewayConfig, TokenReader
from mark.serving.gateway.server import serve_gateway
from mark.steady_time import WALL
from mark.store.data_plane import GatewayStore
from mark.telemetry.otlp.sender import open_telemetry

PEER_PORT = 8080
"""Where gateways with an address and TLS of their own reach each other."""


async def main(folder: Path, name: str, zone: str, port: int, grpc_port: int | None = None) -> None:
    """Serve until SIGTERM. folder: the service's; grpc_port: the one that the gateways share."""
    beating = asyncio.ensure_future(keep_beating())
    try:
        await serve(GatewayStart.read(folder), name, port, zone=zone, grpc_port=grpc_port)
    finally:
        beating.cancel()


async def serve(
    start: GatewayStart,
    name: str,
    port: int,
    own_address: str | None = None,
    *,
    zone: str = "",
    grpc_port: int | None = None,
    token_in_secret: bool = False,
) -> None:
    """Be a gateway of that service until SIGTERM. own_address: as in GatewayConfig.

    token_in_secret: the clients' token is in a secret of AWS, where another may follow it at any time.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    link = open_async_link(start.store)
    store = GatewayStore(link, start.service)
    aws = Aws(start.aws)
    overflow = LambdaOverflow(aws, concurrency=start.lambda_calls)
    config = GatewayConfig(
        name=f"{name}-{secrets.token_hex(4)}",  # a new life counts its reports anew
        host=start.host,
        port=port,
        own_address=own_address,
        zone=zone,
        shared_as=name if own_address is None else "",
        peer_port=PEER_PORT,
        token=start.token,
        local_only=start.token is None,
        tls=server_tls(start.tls_certificate, start.tls_key),
        beside=grpc_listener(start.host, grpc_port, start.tls_certificate, start.tls_key),
    )
    telemetry = None
    try:
        WALL.adopt(await store.share_wall(WALL.offset_s))
        spec = await store.spec()
        if any(served.overflow is not None for served in spec.models):
            await asyncio.to_thread(overflow.prepare)
        telemetry = open_telemetry(
            spec.telemetry,
            process="mark-gateway",
            namespace=spec.name,
            instance=config.name,
            headers=start.collector,
        )
        tokens = _reader(aws, start.service) if token_in_secret else None
        central = await asyncio.to_thread(_central_code, spec)
        await serve_gateway(
            config,
            spec=spec,
            link=store,
            overflow=overflow,
            stop=stop,
            tokens=tokens,
            central=central,
            telemetry=telemetry,
        )
    finally:
        if telemetry is not None:
            await telemetry.close()
        overflow.close()
        aws.close()
        await link.aclose()


def _reader(aws: Aws, service: str) -> TokenReader:
    return TokenReader(read=partial(valid_tokens, aws, service), each_s=READ_EACH_S, again_s=AGAIN_S)


def _central_code(spec: ServiceSpec) -> CentralCode:
    """Compiled decisions where a model has a central queue: numba is not imported for others."""
    if all(served.central is None for served in spec.models):
        return PLAIN
    from mark.config.policies import usable_cache  # noqa: PLC0415
    from mark.simulator.engine.compiled import compiled_central_code  # noqa: PLC0415

    return compiled_central_code(usable_cache())


if __name__ == "__main__":
    begin(sys.argv[3], parent=int(sys.argv[2]))
    uvloop.run(main(Path(sys.argv[1]), sys.argv[3], sys.argv[4], *map(int, sys.argv[5:])))
