"""A client that repeats a request with the same id gets the one answer, not a second execution.

Only ids that clients chose are remembered: for one to two minutes, a bounded number of them, answers up to a
bounded size. Under many requests a second the bounds come first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mark.serving.gateway.request import InferenceRequest
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors

KEPT_S = 60.0
MAX_IDS = 8192
MAX_BYTES = 32 * 1024 * 1024


Key = tuple[str, bytes, bytes]
"""Model, path and id: SageMaker's path is the same for all models."""


class Answer(NamedTuple):
    """What was answered."""

    status: int
    content_type: bytes
    header_length: int
    body: bytes
    by: bytes


class IdempotencyRecord:
    """One id: a request in flight with those that repeat it, or its answer."""

    __slots__ = ("answer", "digest", "followers", "key")

    def __init__(self, key: Key, digest: int) -> None:
        self.key, self.digest = key, digest
        self.followers: list[InferenceRequest] | None = None
        self.answer: Answer | None = None


class IdempotencyCache:
    """The ids that were seen lately, in two generations: the elder is forgotten whole when the younger is full."""

    def __init__(self, defects: UnexpectedErrors) -> None:
        self._defects = defects
        self._young: dict[Key, IdempotencyRecord] = {}
        self._old: dict[Key, IdempotencyRecord] = {}
        self._turns_at = math.inf
        self._bytes = 0

    def knows(self, model: str, request: InferenceRequest) -> bool:
        """Whether a request with its id came here before."""
        key = (model, request.path, request.request_id)
        return key in self._young or key in self._old

    def begin(self, model: str, request: InferenceRequest, now: float) -> bool:
        """Whether it is to be executed; else it was answered here, or will be with the first of its id."""
        young = self._young
        if now >= self._turns_at or len(young) >= MAX_IDS or self._bytes > MAX_BYTES:
            self._turn(now)
            young = self._young
        if not young:
            self._turns_at = now + KEPT_S
        key = (model, request.path, request.request_id)
        digest = hash(request.body)
        known = young.get(key) or self._old.get(key)
        if known is None:
            request.repeat = young[key] = IdempotencyRecord(key, digest)
            return True
        if known.digest != digest:
            request.fail(409, "this request id was used with another body; use a new id")
        elif known.answer is not None:
            request.answer(*known.answer)
        else:
            known.followers = [*(known.followers or ()), request]
        return False

    def answered(self, repeat: IdempotencyRecord, answer: Answer) -> None:
        """Keep the answer, and give it to those that wait for it."""
        repeat.answer = answer
        self._bytes += len(answer.body)
        if repeat.followers:
            followers, repeat.followers = repeat.followers, None
            for follower in followers:
                try:
                    follower.answer(*answer)
                except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
                    self._defects.note(error, request_id=follower.request_id.decode("latin-1"))
                    follower.fail(500, INTERNAL_ERROR)

    def failed(self, repeat: IdempotencyRecord, status: int, text: str) -> None:
        """There is no answer to keep: the next repetition is executed."""
        for generation in (self._young, self._old):
            if generation.get(repeat.key) is repeat:
                del generation[repeat.key]
        followers, repeat.followers = repeat.followers or (), None
        for follower in followers:
            follower.fail(status, text)

    def _turn(self, now: float) -> None:
        """What is in flight stays known, or its repetition would be executed beside it."""
        elder = self._old if now < self._turns_at + KEPT_S else self._old | self._young
        waiting = {key: repeat for key, repeat in elder.items() if repeat.answer is None}
        self._old = waiting if elder is not self._old else self._young | waiting
        self._young, self._bytes = {}, 0
