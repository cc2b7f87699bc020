"""A gateway's process: FOLDER PARENT NAME PORT."""

from __future__ import annotations

import asyncio
import secrets
import signal
import ssl
import sys
from pathlib import Path

import uvloop

from mark.app.live.account import aws_of
from mark.app.live.folder import RunFolder
from mark.app.processes.lifeline import begin
from mark.app.settings import Settings
from mark.aws.overflow import LambdaOverflow
from mark.domain.errors import Misconfigured
from mark.serving.gateway import GatewayConfig, serve_gateway
from mark.store.connect import connect_async
from mark.store.data_plane import GatewayStore

LAMBDA_CALLS = 256
"""Calls of Lambda that one gateway has under way at most: each takes a thread."""


async def main(folder: RunFolder, name: str, port: int) -> None:
    """Serve until SIGTERM."""
    settings, running = folder.settings(), folder.expected()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    link = connect_async(running.store)
    store = GatewayStore(link, running.name)
    aws = aws_of(settings, running)
    overflow = LambdaOverflow(aws, concurrency=LAMBDA_CALLS)
    config = GatewayConfig(
        name=f"{name}-{secrets.token_hex(4)}",  # a new life counts its reports anew
        host=settings.service.host,
        port=port,
        token=running.token,
        tls=tls_context(settings),
    )
    try:
        spec = await store.spec()
        await serve_gateway(config, spec=spec, link=store, overflow=overflow, stop=stop)
    finally:
        overflow.close()
        aws.close()
        await link.aclose()


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """The server's side of TLS, where certificate and key are named."""
    certificate, key = settings.service.tls_certificate, settings.service.tls_key
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"cannot use the certificate {certificate} with the key {key}: {error}") from error
    return context


if __name__ == "__main__":
    begin(sys.argv[3], parent=int(sys.argv[2]))
    uvloop.run(main(RunFolder(Path(sys.argv[1])), sys.argv[3], int(sys.argv[4])))
