"""The emulated AWS's own controls, which AWS has not: its clock, prewarming, interruptions and faults."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypedDict

from mark.domain.clock import ClockAnchor
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured, RetryLater
from mark.live.local.running import Running
from mark.steady_time import WALL

TIMEOUT_S = 10.0


class EmulatedInstance(TypedDict):
    """An instance of the emulated EC2, as far as its service looks at it."""

    id: str
    #: As EC2 names it: `running`.
    state: str
    #: Type and market: `c5.large:spot`.
    pool: str
    tags: dict[str, str]
    #: 0 without a process.
    pid: int
    #: Starts of its process since its power came on.
    starts: int
    #: Service time; None before.
    ready_at: float | None


class PermissionsUsed(TypedDict, total=False):
    """Refusals and grants of IAM; empty where nobody is judged."""

    #: Message -> times.
    refused: dict[str, int]
    #: By role, "STATEMENT ACTION" -> times.
    used: dict[str, dict[str, int]]


class EmulatorState(TypedDict):
    """State of the emulated AWS; docs/emulated-aws.md has all of it."""

    service_time: float
    instances: list[EmulatedInstance]
    #: Calls by role and action.
    callers: dict[str, dict[str, int]]
    #: State by name.
    alarms: dict[str, str]
    permissions: PermissionsUsed


class InjectedFault(TypedDict, total=False):
    """A fault to inject; docs/emulated-aws.md has the meaning of its fields."""

    kind: str
    service: str
    action: str
    code: str
    status: int
    count: int
    seconds: float
    delay_s: float
    share: float
    match: str


class EmulatedControls:
    """Client of /_mark/ of the emulated AWS at `endpoint`. secret: of the account's key."""

    def __init__(self, endpoint: str, secret: str) -> None:
        self._endpoint, self._secret = endpoint, secret

    @classmethod
    def of(cls, running: Running) -> EmulatedControls:
        """The controls of a running service's account."""
        return cls(running.aws_endpoint, running.aws_secret_access_key)

    def set_clock(self, anchor: ClockAnchor) -> None:
        """Let its clock stand at `anchor`."""
        fields = {key: value for key, value in asdict(anchor).items() if value != float("inf")}
        self._send("clock", {**fields, "wall_offset_s": WALL.offset_s})  # it is a process of this host

    def prewarm(self, *, on: bool) -> None:
        """While on, what is launched is up at once."""
        self._send("prewarm", {"on": on})

    def open(self) -> None:
        """Have it answer everybody: the account is set up."""
        self._send("open", {})

    def verify(self, *identities: str) -> None:
        """Let SES know addresses or domains as verified, as if their owners had followed its link."""
        self._send("mail", {"verify": list(identities)})

    def interrupt(self, share: float, offering: str = "") -> tuple[list[str], int]:
        """Send spot notices to a share of the ready spot instances; who got one, and of how many."""
        reply = self._send("interrupt", {"share": share, "offering": offering})
        return list(reply["instances"]), int(reply["ready"])

    def fault(self, fault: InjectedFault) -> None:
        """Inject a fault (docs/emulated-aws.md)."""
        self._send("faults", fault)

    def clear_faults(self) -> None:
        """Inject nothing any more."""
        self._send("faults", None, method="DELETE")

    def state(self) -> EmulatorState:
        """Its instances, processes and counters."""
        found: EmulatorState = self._send("state", None, method="GET")
        return found

    def _send(self, path: str, body: Mapping[str, object] | None, *, method: str = "POST") -> Any:
        request = urllib.request.Request(  # noqa: S310 - the endpoint is ours
            f"{self._endpoint}/_mark/{path}",
            data=None if body is None else json_text(body, allow_nan=True).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {self._secret}"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310 - as above
                text = reply.read()
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace").strip()[:300]
            raise Misconfigured(f"the emulated AWS refused {path}: {reason or error.reason}") from error
        except OSError as error:
            raise RetryLater(f"the emulated AWS does not answer: {error}") from error
        return json.loads(text) if text else {}
