"""ministack: an emulated AWS that makes whole CloudFormation stacks, with rollback. One server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from scripts.own_venvs import tool

ACCOUNT = "123456789012"
"""ministack takes an access key of twelve digits for the account."""
START_S, STOP_S = 60.0, 5.0
HOME = "us-east-1"
"""The region of whoever names none."""
ZONES = "REHEARSED_ZONES"
"""The variable that tells ministack's server its zones: of itself it has a, b and c everywhere."""


def recorded_zones(region: str) -> tuple[str, ...]:
    """Zones that an account sees in a region, as moto has them from AWS."""
    return tuple(sorted(zone.name for zone in RegionsAndZonesBackend.zones[region]))


@contextmanager
def running(folder: Path | None = None, *, region: str = HOME) -> Iterator[dict[str, str]]:
    """A ministack of its own on a free port; the environment that makes boto3 speak to it.

    Its account has the zones that accounts see in the region, as they were recorded.
    """
    python, server_file = tool("ministack") / "python", Path(__file__).with_name("ministack_server.py")
    with tempfile.TemporaryDirectory(prefix="mark-ministack-") as scratch:
        place = folder or Path(scratch)
        port = free_port()
        given = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "TMPDIR": scratch, "LOG_LEVEL": "WARNING"}
        given |= {"MINISTACK_REGION": region, ZONES: " ".join(recorded_zones(region))}
        with (place / "ministack.log").open("wb") as log:
            server = subprocess.Popen(  # noqa: S603 - installed by own_venvs
                [str(python), "-P", str(server_file)],
                env={**_without_paths(os.environ), **given},
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            endpoint = f"http://127.0.0.1:{port}"
            _wait(endpoint, server)
            yield {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": ACCOUNT,
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": region,
                "AWS_DEFAULT_REGION": region,
            }
        finally:
            _stop(server)


def _without_paths(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment whose functions find their bundle's modules alone, and speak to this AWS alone."""
    kept = (item for item in environment.items() if item[0] != "PYTHONPATH" and not item[0].startswith("AWS_"))
    return dict(kept)


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def _wait(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"{endpoint}/_ministack/health", timeout=2):  # noqa: S310 - our own server
                return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.1)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End it with its workers: it heeds no SIGTERM while a function of its lives."""
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
