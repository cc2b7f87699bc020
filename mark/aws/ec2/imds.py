"""The instance metadata service, version 2: who am I, which tags do I carry, am I about to be taken away.

On EC2 it answers at a link-local address; the SDKs' own variable AWS_EC2_METADATA_SERVICE_ENDPOINT names another.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from mark.domain.errors import Misconfigured, RetryLater

ENDPOINT = "http://169.254.169.254"
DMI = Path("/sys/class/dmi/id")
"""The file in which Linux names the machine's maker: Amazon, on EC2."""
ZONE = "meta-data/placement/availability-zone"
LEADER = "meta-data/mark/leader"
"""Not on AWS: which node leads, where a process beside an agent answers for the service (lean shape)."""
PASSWORD = "meta-data/mark/store-password"  # noqa: S105 - a path
"""Not on AWS: what the agent logs in with at the store, told as LEADER is."""
VERSION = "meta-data/mark/version/"
"""Not on AWS: how far the files of a version are, which that process fetches; the version's name follows."""
TIMEOUT_S = 2.0
TOKEN_TTL_S = 21_600
NOT_FOUND, UNAUTHORIZED = 404, 401


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The instance's identity: its id, its private address, its zone, its tags, its user data (a JSON object)."""

    instance: str
    host: str
    zone: str
    tags: dict[str, str]
    user_data: dict[str, str]


def instance_type_here(dmi: Path = DMI, endpoint: str = ENDPOINT) -> str | None:
    """The EC2 instance type of this machine, None where it is no EC2 instance; nothing else is asked."""
    if not any("amazon" in _line(dmi / name).lower() for name in ("sys_vendor", "bios_vendor", "bios_version")):
        return None
    imds = Imds(endpoint)
    try:
        return imds.get("meta-data/instance-type")
    except RetryLater:  # a container that may not ask
        return None
    finally:
        imds.close()


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class Imds:
    """Asks the metadata service; one kept-alive connection, one thread at a time."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        url = urlsplit(endpoint)
        if url.scheme != "http" or not url.hostname:
            raise Misconfigured(f"the metadata service's endpoint must be http://HOST, not {endpoint!r}")
        self._host, self._port, self._root = url.hostname, url.port or 80, url.path.rstrip("/")
        self._connection: http.client.HTTPConnection | None = None
        self._token: str | None = None

    def get(self, path: str) -> str | None:
        """The text under `latest/` + path; None where there is none. RetryLater without an answer."""
        status, text = self._ask("GET", path, {"x-aws-ec2-metadata-token": self._session()})
        if status == UNAUTHORIZED:  # the session is over
            self._token = None
            status, text = self._ask("GET", path, {"x-aws-ec2-metadata-token": self._session()})
        if status == NOT_FOUND:
            return None
        if status != http.client.OK:
            raise RetryLater(f"the metadata service answered {status} for {path}")
        return text

    def identity(self) -> Identity:
        """Read the instance's identity. Misconfigured where something is missing."""
        instance, host = self.get("meta-data/instance-id"), self.get("meta-data/local-ipv4")
        listed = self.get("meta-data/tags/instance")
        text = self.get("user-data")
        if instance is None or host is None or listed is None or text is None:
            raise Misconfigured("the metadata service lacks tags or user data; launch from our template")
        tags = {key: self.get(f"meta-data/tags/instance/{key}") or "" for key in listed.split()}
        zone = self.get(ZONE) or ""
        return Identity(instance=instance, host=host, zone=zone, tags=tags, user_data=_parse_user_data(text))

    def taken_at(self) -> float | None:
        """The termination time of a spot notice, epoch seconds; None without a notice."""
        text = self.get("meta-data/spot/instance-action")
        if text is None:
            return None
        return datetime.fromisoformat(json.loads(text)["time"]).timestamp()

    def leader(self) -> str:
        """The address of the node that leads. RetryLater where nobody knows it."""
        found = self.get(LEADER)
        if not found:
            raise RetryLater("the metadata service does not say which node leads")
        return found

    def store_password(self) -> str:
        """The agent's credentials for the store. RetryLater where nobody knows them."""
        found = self.get(PASSWORD)
        if not found:
            raise RetryLater("the metadata service does not say what to log in with at the store")
        return found

    def version(self, name: str) -> str | None:
        """How far the files of a version are; None where nobody fetches any. RetryLater without an answer."""
        return self.get(f"{VERSION}{name}")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _session(self) -> str:
        if self._token is None:
            headers = {"x-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
            status, text = self._ask("PUT", "api/token", headers)
            if status != http.client.OK:
                raise RetryLater(f"the metadata service gave no session: {status}")
            self._token = text
        return self._token

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """One exchange; a kept connection that was closed meanwhile is opened again once."""
        for attempt in (0, 1):
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
            try:
                self._connection.request(method, f"{self._root}/latest/{path}", headers=headers)
                reply = self._connection.getresponse()
                return reply.status, reply.read().decode()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if attempt:
                    raise RetryLater(f"the metadata service does not answer: {error}") from error
        raise AssertionError("two attempts always end")


def _parse_user_data(text: str) -> dict[str, str]:
    """User data that is a JSON object; a start script has none."""
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
