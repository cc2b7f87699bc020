"""Deduplication by idempotency key: a retry with the same request id gets the first execution's response.

Only ids that clients chose are kept, for one to two minutes, in two generations of up to MAX_IDS ids and MAX_BYTES
of responses each. Under a high request rate these bounds shorten the time. An id stands for one request: with
another body, variant or accuracy floor it is refused, as where body or answer are of another content type.
"""

from __future__ import annotations

import math

from mark.serving.gateway.request import IdempotencyRecord, InferenceRequest, Key, StoredResponse
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors

KEPT_S = 60.0
MAX_IDS = 8192
MAX_BYTES = 32 * 1024 * 1024
CONFLICT = "this request id was used with another body, content type, variant or accuracy floor; use a new id"
READ_AS = ("content-type", "accept")
"""Headers that decide, beside body, variant and floor, how a request is read and answered."""


class IdempotencyCache:
    """Recent request ids in two generations: the older one is dropped whole when the younger one is full."""

    def __init__(self, unexpected: UnexpectedErrors) -> None:
        self._unexpected = unexpected
        self._young: dict[Key, IdempotencyRecord] = {}
        self._old: dict[Key, IdempotencyRecord] = {}
        self._rotates_at = math.inf
        self._bytes = 0

    def knows(self, model: str, request: InferenceRequest, client: str) -> bool:
        """True where a request of the client's with this id was executed, or is in flight, in this gateway."""
        key = (client, model, request.path + request.version, request.request_id)
        return key in self._young or key in self._old

    def begin(self, model: str, request: InferenceRequest, now: float) -> bool:
        """Register the request; True where it is to be executed.

        A duplicate gets the stored response at once, or that of the execution in flight when it completes.
        """
        young = self._young
        if now >= self._rotates_at or len(young) >= MAX_IDS or self._bytes > MAX_BYTES:
            self._rotate(now)
            young = self._young
        if not young:
            self._rotates_at = now + KEPT_S
        client = "" if request.client is None else request.client.name
        key = (client, model, request.path + request.version, request.request_id)
        told = (request.headers.get(name) for name in READ_AS)
        digest = hash((request.body, request.variant, request.accuracy_floor, request.header_length, *told))
        known = young.get(key) or self._old.get(key)
        if known is None:
            request.idempotency = young[key] = IdempotencyRecord(key, digest)
            return True
        if known.digest != digest:
            request.fail(409, CONFLICT)
        elif known.response is not None:
            request.answer(*known.response)
        else:
            request.forget_body()  # it waits with the one that is executed, maybe for hours
            waiting = [one for one in known.duplicates or () if one.connection is not None]
            known.duplicates = [*waiting, request]
        return False

    def complete(self, record: IdempotencyRecord, response: StoredResponse, *, keep: bool = True) -> None:
        """Store the response and answer the duplicates with it. keep: False where no later one is to get it."""
        record.response = response
        if keep:
            self._bytes += len(response.body)
        else:
            self._remove(record)
        if record.duplicates:
            duplicates, record.duplicates = record.duplicates, None
            for duplicate in duplicates:
                try:
                    duplicate.answer(*response)
                except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
                    self._unexpected.note(error, request_id=duplicate.request_id.decode("latin-1"))
                    duplicate.fail(500, INTERNAL_ERROR)

    def discard(self, record: IdempotencyRecord, status: int, text: str) -> None:
        """Fail the duplicates and remove the record: the next request with this id is executed."""
        self._remove(record)
        duplicates, record.duplicates = record.duplicates or (), None
        for duplicate in duplicates:
            duplicate.fail(status, text)

    def forget_version(self, version: bytes) -> None:
        """Remove the responses of a version that was aborted: a retry is answered by another."""
        for generation in (self._young, self._old):
            found = [
                key
                for key, record in generation.items()
                if record.response is not None and record.response.version == version
            ]
            for key in found:
                del generation[key]

    def _remove(self, record: IdempotencyRecord) -> None:
        for generation in (self._young, self._old):
            if generation.get(record.key) is record:
                del generation[record.key]

    def _rotate(self, now: float) -> None:
        """Drop the older generation except what is in flight: a duplicate of that would be executed beside it."""
        elder = self._old if now < self._rotates_at + KEPT_S else self._old | self._young
        in_flight = {key: record for key, record in elder.items() if record.response is None}
        self._old = in_flight if elder is not self._old else self._young | in_flight
        self._young, self._bytes = {}, 0
