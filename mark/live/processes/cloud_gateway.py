"""A gateway's process on an instance in AWS.

The rollout's templates say in its environment what one on a single machine reads from its folder: MARK_SERVICE,
MARK_STORE_URL, AWS_REGION, MARK_LAMBDA_CALLS (how many calls of Lambda it may have at once), MARK_TOKEN; where
they apply MARK_PORT, MARK_GRPC_PORT, MARK_TLS_CERTIFICATE and MARK_TLS_KEY, and MARK_OTLP_HEADERS for a
collector that asks for headers.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import uvloop

from mark.aws.session import AwsSettings
from mark.live.cloud_process import EVERYWHERE, exit_after, own_address, own_zone, required_variable
from mark.live.gateway_start import GatewayStart
from mark.live.processes.gateway import serve
from mark.telemetry.otlp.headers import parse_headers
from mark.telemetry.structured_logs import log_json

PORT = 8080
"""The load balancer's target."""


def main(environment: Mapping[str, str]) -> int:
    """Serve until SIGTERM; the exit code."""
    log_json("gateway")
    start = start_of(environment)
    port, grpc_port = int(environment.get("MARK_PORT") or PORT), environment.get("MARK_GRPC_PORT")
    serving = serve(
        start,
        socket.gethostname(),
        port,
        own_address(environment),
        zone=own_zone(environment),
        grpc_port=int(grpc_port) if grpc_port else None,
        token_in_secret=True,
    )
    uvloop.run(serving)
    return 0


def start_of(environment: Mapping[str, str]) -> GatewayStart:
    """The start that the templates describe; Misconfigured where a variable is missing."""
    certificate, key = environment.get("MARK_TLS_CERTIFICATE"), environment.get("MARK_TLS_KEY")
    return GatewayStart(
        service=required_variable(environment, "MARK_SERVICE"),
        store=required_variable(environment, "MARK_STORE_URL"),
        host=EVERYWHERE,
        aws=AwsSettings(region=required_variable(environment, "AWS_REGION"), role="gateway"),
        lambda_calls=int(required_variable(environment, "MARK_LAMBDA_CALLS")),
        token=environment.get("MARK_TOKEN"),
        tls_certificate=Path(certificate) if certificate else None,
        tls_key=Path(key) if key else None,
        collector=parse_headers(environment.get("MARK_OTLP_HEADERS", ""), "the secret telemetry.headers_secret"),
    )


if __name__ == "__main__":
    exit_after(main)
