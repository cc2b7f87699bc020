"""A gateway as a process of its own, for tests that look at its memory or kill it: PORT NAME REDIS_URL [TOKEN].

It prints its port.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from mark.service_spec import ServiceSpec
from mark.serving.gateway.config import GatewayConfig
from mark.serving.gateway.server import serve_gateway
from mark.store.connect import connect_async
from mark.store.data_plane import GatewayStore
from tests.serving.harness import served


def _say(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


async def main(port: str, name: str, url: str, token: str | None = None) -> None:
    await serve_gateway(
        GatewayConfig(name=name, port=int(port), token=token, shared_as=name),
        spec=ServiceSpec(name="test", models=(served(latency_s=30.0),)),
        link=GatewayStore(connect_async(url), "test"),
        overflow=None,
        stop=asyncio.Event(),
        on_bound=_say,
    )


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
