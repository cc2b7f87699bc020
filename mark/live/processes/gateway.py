"""A gateway's process: FOLDER PARENT NAME PORT [GRPC_PORT]."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import uvloop

from mark.aws.client_tokens import AGAIN_S, READ_EACH_S, valid_tokens
from mark.aws.functions.overflow import LambdaOverflow
from mark.aws.session import Aws
from mark.config.settings import Settings
from mark.dispatch.central.queue import PLAIN, CentralCode
from mark.domain.offering import calls_of_models
from mark.live.aws_resources import aws_of
from mark.live.local.access import collector_headers, server_tls
from mark.live.local.grpc_listener import grpc_listener
from mark.live.local.heartbeat import keep_beating
from mark.live.local.process_start import begin
from mark.live.local.run_dir import RunFolder, Running
from mark.live.store_link import open_async_link
from mark.service_spec import ServiceSpec
from mark.serving.gateway.server import GatewayConfig, TokenReader, serve_gateway
from mark.steady_time import WALL
from mark.store.data_plane import GatewayStore
from mark.store.users import StoreUser
from mark.telemetry.otlp.sender import open_telemetry

PEER_PORT = 8080
"""Where gateways with an address and TLS of their own reach each other."""
MOST_THREADS = 500
"""A call of Lambda takes a thread; half of an account's usual thousand."""


async def main(folder: RunFolder, name: str, port: int, grpc_port: int | None = None) -> None:
    """Serve until SIGTERM. grpc_port: the one that the gateways share."""
    beating = asyncio.ensure_future(keep_beating())
    settings = folder.settings()
    service = settings.service.model_copy(update={"grpc_port": grpc_port})
    try:
        own = settings.model_copy(update={"service": service})
        await serve(own, folder.expected(), name, port, collector=collector_headers(settings.telemetry))
    finally:
        beating.cancel()


async def serve(
    settings: Settings,
    running: Running,
    name: str,
    port: int,
    own_address: str | None = None,
    *,
    token_in_secret: bool = False,
    collector: Mapping[str, str],
) -> None:
    """Be a gateway of that service until SIGTERM. own_address: as in GatewayConfig. collector: headers for it.

    token_in_secret: the clients' token is in a secret of AWS, where another may follow it at any time.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    link = open_async_link(running.store_for(StoreUser.GATEWAY))
    store = GatewayStore(link, running.name)
    aws = aws_of(settings, running, "gateway")
    overflow = LambdaOverflow(aws, concurrency=lambda_calls(settings))
    config = GatewayConfig(
        name=f"{name}-{secrets.token_hex(4)}",  # a new life counts its reports anew
        host=settings.service.host,
        port=port,
        own_address=own_address,
        shared_as=name if own_address is None else "",
        peer_port=PEER_PORT,
        token=running.token,
        local_only=running.token is None,
        tls=server_tls(settings.service),
        beside=grpc_listener(settings.service),
    )
    telemetry = None
    try:
        WALL.adopt(await store.share_wall(WALL.offset_s))
        spec = await store.spec()
        telemetry = open_telemetry(
            spec.telemetry, process="mark-gateway", namespace=spec.name, instance=config.name, headers=collector
        )
        tokens = _reader(aws, running.name) if token_in_secret else None
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


def lambda_calls(settings: Settings) -> int:
    """This gateway's share of the calls that models may have at once."""
    allowed = calls_of_models(settings.policy.overflow_limits.concurrency)
    return min(MOST_THREADS, max(1, allowed // settings.service.gateway_count))


if __name__ == "__main__":
    begin(sys.argv[3], parent=int(sys.argv[2]))
    uvloop.run(main(RunFolder(Path(sys.argv[1])), sys.argv[3], *map(int, sys.argv[4:])))
