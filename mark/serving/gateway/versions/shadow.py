"""Shadow traffic: copies of requests for a version that is not to answer them yet.

A request is copied once the stable version has answered it: its client waits for nothing, and what it got does not
change. The copy goes to an agent of the candidate that is predicted to answer within the objective, once; it is
dropped where none is, where the agent does not take it, and where it is lost or late. Its answer is compared with
the one that the client got, counted, and dropped. No count of clients, of the objective or of load knows of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from mark.dispatch.versions import in_share
from mark.domain.load.traffic import SERVER_ERROR
from mark.ports import InferReply
from mark.protocols.answer_difference import answer_difference
from mark.protocols.frames import Response
from mark.serving.gateway.request import InferenceRequest
from mark.serving.http.content_codings import INLINE_BYTES

if TYPE_CHECKING:
    from mark.serving.gateway.telemetry.traffic_tally import VersionTally
    from mark.serving.unexpected_errors import UnexpectedErrors

log = logging.getLogger("mark.gateway")
MOST_BYTES = 16 * 1024 * 1024
"""Of requests and answers that copies in flight keep in memory; beyond, nothing is copied."""
MOST_LOGGED = 10
"""Differences of a version that a gateway logs."""


class ShadowRequest(InferenceRequest):
    """A copy of an answered request, which nobody waits for.

    original: the request, which keeps its body's share of the server's memory. usual: the answer to it, which took
    usual_s.
    """

    __slots__ = ("original", "shadows", "usual", "usual_s")

    def __init__(self, shadows: Shadows, original: InferenceRequest, usual: Response, *, usual_s: float) -> None:
        super().__init__(None, original.method, original.target, {}, original.body, keep_alive=False)
        self.shadows, self.original, self.usual, self.usual_s = shadows, original, usual, usual_s
        self.path, self.content_type, self.accept = original.path, original.content_type, original.accept
        self.header_length, self.size = original.header_length, original.size
        self.request_id = original.request_id  # and not its trace, which has ended with the answer
        self.accuracy_floor, self.variant = original.accuracy_floor, usual.details.variant

    @property
    def held_bytes(self) -> int:
        """Bytes that it keeps in memory."""
        return len(self.body) + len(self.usual.body)


class ShadowRoute(Protocol):
    """A way to the candidate's agents."""

    def send_shadow(self, shadow: ShadowRequest, now: float) -> bool:
        """Send a copy to an agent that answers in time; False where there is none."""
        ...


class Shadows:
    """The copies of one version in one gateway. share: of the requests; 0: none is copied."""

    def __init__(
        self,
        version: bytes,
        tally: VersionTally,
        route: ShadowRoute,
        unexpected: UnexpectedErrors,
        *,
        objective_s: float,
    ) -> None:
        self.share, self.tolerance = 0.0, 0.0
        self.tally = tally
        self._version, self._route, self._unexpected = version, route, unexpected
        self._objective_s = objective_s
        self._bytes = self._logged = 0

    def copy(self, request: InferenceRequest, usual: Response, usual_s: float, now: float) -> None:
        """Send a copy of a request that was just answered, where it is in the share.

        A request that names its version is not compared.
        """
        if request.version or not in_share(request.request_id, self._version, self.share):
            return
        shadow = ShadowRequest(self, request, usual, usual_s=usual_s)
        shadow.arrived_at, shadow.deadline_at = now, now + self._objective_s
        has_room = not self._bytes or self._bytes + shadow.held_bytes <= MOST_BYTES
        self._bytes += shadow.held_bytes
        try:
            is_sent = has_room and self._route.send_shadow(shadow, now)
        except Exception as error:  # noqa: BLE001 - the driver of one copy: its request was answered
            self._unexpected.note(error, version=self._version.decode())
            is_sent = False
        if not is_sent:
            self.dropped(shadow)

    def dropped(self, shadow: ShadowRequest) -> None:
        """A copy gets no answer that could be compared."""
        self._bytes -= shadow.held_bytes
        self.tally.shadow_dropped += 1

    def answered(self, shadow: ShadowRequest, response: Response, now: float) -> None:
        """Compare the candidate's answer; large ones in a thread."""
        latency_s = now - shadow.arrived_at
        if len(response.body) + len(shadow.usual.body) <= INLINE_BYTES:
            self._count(shadow, response.status, latency_s, self._difference(shadow, response))
            return
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(None, self._difference, shadow, response)
        done.add_done_callback(lambda made: self._count(shadow, response.status, latency_s, made.result()))

    def _difference(self, shadow: ShadowRequest, response: Response) -> str | None:
        try:
            return answer_difference(_reply(shadow.usual), _reply(response), self.tolerance)
        except Exception as error:  # noqa: BLE001 - the driver of one comparison: no client knows of it
            self._unexpected.note(error, version=self._version.decode())
            return "its answer could not be compared"

    def _count(self, shadow: ShadowRequest, status: int, latency_s: float, difference: str | None) -> None:
        self._bytes -= shadow.held_bytes
        is_failed, differs = status >= SERVER_ERROR, difference is not None
        self.tally.compared(latency_s, shadow.usual_s, differs=differs, failed=is_failed)
        if difference is not None and self._logged < MOST_LOGGED:
            self._logged += 1
            fields = {
                "version": self._version.decode(),
                "request_id": shadow.request_id.decode("latin-1"),
                "difference": difference,
            }
            log.info("a version's answer differs from the stable one's", extra=fields)


def _reply(response: Response) -> InferReply:
    return InferReply(response.status, "", response.body, response.header_length)
