"""A process beside an agent: the part of EC2's metadata that the agent may read, on loopback, and no credentials.

The agent loads model code, whose user the instance's firewall keeps from the metadata service itself. This
process runs as another user and answers in its place (AWS_EC2_METADATA_SERVICE_ENDPOINT names it): who the
instance is, its tags, a spot notice. Where MARK_STORE_URL follows a lease it also says which node leads, and what
the agent of MARK_SERVICE logs in with there, so that agents need no role of AWS. It fetches the version of the
instance, and on a shared one those that its agent names, from MARK_VERSIONS (s3://BUCKET/PREFIX, in MARK_REGION).
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import IO, cast

from mark.aws.ec2.imds import ENDPOINT, LEADER, PASSWORD, VERSION, Imds
from mark.aws.ec2.tags import MODEL, MODEL_VERSION
from mark.aws.names import ON_INSTANCES
from mark.domain.errors import MarkError, RetryLater
from mark.domain.fleet.host_spec import SHARED
from mark.live.processes.version_fetch import VersionFetch
from mark.telemetry.structured_logs import log_json

HOST, PORT = "127.0.0.1", 1338
READABLE = re.compile(
    r"meta-data/(instance-id|local-ipv4|instance-type|placement/availability-zone|spot/instance-action|tags/instance(/[\w:.=+@-]+)?)"
)
"""Paths below latest/ that are answered. No credentials, no user data, no path that leads elsewhere."""
SESSION = "one-for-all"
"""One session for all: whoever may read at all may read all of it."""
log = logging.getLogger("mark.metadata")
READ_S = 2.0
"""Time that a client has to send its request."""

_ONE_AT_A_TIME = Lock()
"""`Imds` keeps one connection."""

Read = Callable[[str], str | None]


class Kept:
    """Cached answer of a call of AWS, asked again when it is older than `fresh_s`: who asks is model code, too."""

    def __init__(
        self, read: Callable[[], str], fresh_s: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._fresh_s, self._monotonic = read, fresh_s, monotonic
        self._known, self._read_again_at = "", -math.inf
        self._lock = Lock()

    def __call__(self) -> str:
        """The answer, the last one where a newer cannot be had. RetryLater where there is none."""
        with self._lock:
            if self._monotonic() >= self._read_again_at:
                self._read_again_at = self._monotonic() + self._fresh_s
                try:
                    self._known = self._read()
                except MarkError as error:
                    log.warning("the password at the store cannot be read", extra={"reason": str(error)})
            if not self._known:
                raise RetryLater("nobody could read the password at the store yet")
            return self._known


def read_from(
    imds: Imds,
    leader: Callable[[], str] | None,
    path: str,
    password: Callable[[], str] | None = None,
    versions: Callable[[str], str | None] | None = None,
) -> str | None:
    """The answer to an agent for a path under latest/; None where there is none. RetryLater without a reply."""
    if path == "user-data":
        return ""  # a start script: all that an agent takes from it stands in its environment
    if path == LEADER:
        return leader() if leader is not None else None
    if path == PASSWORD:
        return password() if password is not None else None
    if path.startswith(VERSION):
        version = path.removeprefix(VERSION)
        with _ONE_AT_A_TIME:  # a model that has an instance to itself gets its own files only
            model, own = (imds.get(f"meta-data/tags/instance/{tag}") for tag in (MODEL, MODEL_VERSION))
        return versions(version) if versions is not None and (model == SHARED or version == own) else None
    if READABLE.fullmatch(path) is None or ".." in path:
        return None
    with _ONE_AT_A_TIME:
        return imds.get(path)


class Metadata(ThreadingHTTPServer):
    """Answers a spot notice also while somebody waits for the leader."""

    def __init__(self, read: Read, port: int = PORT) -> None:
        super().__init__((HOST, port), _Handler)
        self.read = read

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as the base has it
        """A client that broke off is its own affair; whatever else ends an answer is told."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            log.exception("an agent's question about its instance cannot be answered")


class _Handler(BaseHTTPRequestHandler):
    server: Metadata
    timeout = READ_S

    def do_PUT(self) -> None:
        """A session, whoever asks: what it opens is no secret from this machine."""
        self._reply(200 if self.path == "/latest/api/token" else 404, SESSION)

    def do_GET(self) -> None:
        """An item; 404 also for what an agent may not read."""
        try:
            text = self.server.read(self.path.removeprefix("/latest/"))
        except RetryLater as error:
            self._reply(503, str(error))
            return
        self._reply(200 if text is not None else 404, text or "")

    def _reply(self, status: int, text: str) -> None:
        body = text.encode() if status != 404 else b""
        self.send_response(status)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Each look of an agent is no news."""


def main(environment: Mapping[str, str]) -> None:
    """Answer until the process is ended."""
    log_json("metadata")
    imds = Imds(environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT)
    url, service = environment.get("MARK_STORE_URL", ""), environment.get("MARK_SERVICE", "")
    leader, password = _of_store(url, service)
    versions = _versions(environment.get("MARK_VERSIONS", ""), environment.get("MARK_REGION", ""))
    Metadata(partial(read_from, imds, leader, password=password, versions=versions)).serve_forever()


def _versions(url: str, region: str) -> Callable[[str], str | None] | None:
    """Fetch versions from that prefix; None where there is none."""
    if not url:
        return None
    bucket, _, prefix = url.removeprefix("s3://").partition("/")

    def opened(version: str) -> IO[bytes]:
        from mark.aws.errors import translated  # noqa: PLC0415 - boto3, as below
        from mark.aws.session import Aws, AwsSettings  # noqa: PLC0415

        aws = Aws(AwsSettings(region=region, role="agent"))
        with translated():
            return cast(
                "IO[bytes]", aws.objects.get_object(Bucket=bucket, Key=f"{prefix}/{version}.tar.gz")["Body"]
            )

    return VersionFetch(Path(ON_INSTANCES), opened).ask


def _of_store(url: str, service: str) -> tuple[Callable[[], str] | None, Callable[[], str] | None]:
    """Ask which node leads, and for the agents' password; None where that is not told here."""
    if not url:
        return None, None
    # boto3 is large, and only this shape needs it
    from mark.aws.client_tokens import FRESH_S  # noqa: PLC0415
    from mark.live.store_link import leader_of, password_of  # noqa: PLC0415

    read = password_of(url, service) if service else None
    return leader_of(url), Kept(read, FRESH_S) if read is not None else None


if __name__ == "__main__":
    main(os.environ)
    sys.exit(0)
