"""The emulated AWS's own controls, which AWS has not: its clock, prewarming, interruptions and faults."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import asdict
from typing import Any

from mark.domain.clock import ClockAnchor
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured, RetryLater
from mark.telemetry.steady_time import WALL

TIMEOUT_S = 10.0


class EmulatedControls:
    """Speaks to /_mark/ of the emulated AWS at `endpoint`."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

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

    def fault(self, fault: dict[str, Any]) -> None:
        """Inject a fault (docs/emulated-aws.md)."""
        self._send("faults", fault)

    def clear_faults(self) -> None:
        """Inject nothing any more."""
        self._send("faults", None, method="DELETE")

    def state(self) -> dict[str, Any]:
        """Its instances, processes and counters."""
        return self._send("state", None, method="GET")

    def _send(self, path: str, body: dict[str, Any] | None, *, method: str = "POST") -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the endpoint is ours
            f"{self._endpoint}/_mark/{path}",
            data=None if body is None else json_text(body, allow_nan=True).encode(),
            headers={"content-type": "application/json"},
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
        found: dict[str, Any] = json.loads(text) if text else {}
        return found
