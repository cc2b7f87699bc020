"""The inbox of the service's `events` queue: polled by a thread, claimed from by instance, then acknowledged.

A claimed message is deleted by `ack`; until then SQS delivers it again to whoever polls after `visibility_s`, so
that the next controller gets what a crashed one had claimed (at-least-once delivery). A message that the same
inbox receives again is left out: deduplication by SQS's id. One that nobody claims (EventBridge reports every
instance of the account) is deleted after `keep_s`, one of a state sooner: what it says the listing says, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.aws.errors import translated
from mark.aws.session import POLL_S
from mark.domain.errors import MarkError, Misconfigured, failure_words
from mark.domain.fleet.orders import RebalanceAdvised, SpotWarned
from mark.protocols.events import InstanceMessage, parse_message

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_log = logging.getLogger(__name__)

BATCH = 10
"""Messages that SQS gives or deletes in one call."""
PAUSE_S = 1.0
"""Pause of the poller after a failure that boto3's own retries did not end; doubled with each in a row."""
LONGEST_PAUSE_S = 30.0
KEEP_STATES_S = 60.0
"""Own instances are known from their launch on; an account may have thousands of others, of which SQS gives each
message again, at a price, as long as it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A message that was received: SQS's id and the parsed body."""

    id: str
    word: InstanceMessage


class EventInbox:
    """One per service, shared by the clouds of its models; only the controller that acts starts it.

    From the poller's thread `wake` is called when a spot notice has arrived, and after each poll `on_poll`
    with why it failed, None where it did not. No failure ends the polling.
    """

    def __init__(
        self,
        sqs: SQSClient,
        queue_url: str,
        *,
        wake: Callable[[], None] = lambda: None,
        on_poll: Callable[[str | None], None] = lambda _: None,
        pause_s: float = PAUSE_S,
        visibility_s: int = 30,
        poll_s: int = POLL_S,
        keep_s: float = 300.0,
    ) -> None:
        self._sqs = sqs
        self._queue_url = queue_url
        self._wake, self._on_poll, self._pause_s = wake, on_poll, pause_s
        self._visibility_s = visibility_s
        self._poll_s = poll_s
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._receipts: dict[str, str] = {}
        self._waiting: dict[str, tuple[Arrived, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="events", daemon=True)

    def start(self) -> None:
        """Poll from now on."""
        self._thread.start()

    def close(self) -> None:
        """End the polling and make unacknowledged messages visible; returns when the poll under way has ended."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        receipts = list(self._receipts.values())
        self._receipts.clear()
        try:
            for start in range(0, len(receipts), BATCH):
                self._make_visible(receipts[start : start + BATCH])
        except MarkError as error:
            _log.warning(
                "messages without an acknowledgement are delivered again in %d s: %s", self._visibility_s, error
            )

    def claim(self, mine: Callable[[str], bool]) -> list[Arrived]:
        """Take the messages about instances that are `mine`, in order of arrival; each is claimed once."""
        with self._lock:
            taken = [arrived for arrived, _ in self._waiting.values() if mine(arrived.word.instance)]
            for arrived in taken:
                del self._waiting[arrived.id]
        return taken

    def release(self, arrived: Iterable[Arrived]) -> None:
        """Give back what could not be handled now; it can be claimed again."""
        with self._lock:
            self._waiting |= {item.id: (item, time.monotonic()) for item in arrived}

    def ack(self, arrived: Iterable[Arrived]) -> None:
        """Delete what the journal has. RetryLater where the queue is unreachable: call again later."""
        self._delete([item.id for item in arrived])

    def receive(self, wait_s: int) -> int:
        """Poll once; returns the number of new messages."""
        with translated():
            reply = self._sqs.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=BATCH,
                WaitTimeSeconds=wait_s,
                VisibilityTimeout=self._visibility_s,
            )
        new, bad, urgent = 0, [], False
        for message in reply.get("Messages", []):
            name, receipt = message["MessageId"], message["ReceiptHandle"]
            with self._lock:
                again = name in self._receipts
                self._receipts[name] = receipt
            if again:  # claimed and not acknowledged, or still waiting: only its receipt is newer
                continue
            try:
                word = parse_message(message["Body"])
            except Misconfigured as error:
                _log.warning("a message of the events queue cannot be parsed and is deleted: %s", error)
                bad.append(name)
                continue
            with self._lock:
                self._waiting[name] = (Arrived(id=name, word=word), time.monotonic())
            new += 1
            urgent = urgent or isinstance(word, SpotWarned | RebalanceAdvised)
        if urgent:
            self._wake()
        if bad:
            self._delete(bad)
        return new

    def _poll(self) -> None:
        pause_s = self._pause_s
        while not self._stop.is_set():
            why = self._failure()
            self._on_poll(why)
            if why is None:
                pause_s = self._pause_s
            else:
                self._stop.wait(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2.0 * pause_s)

    def _failure(self) -> str | None:
        """Poll once; the reason of a failure, None on success."""
        try:
            self.receive(self._poll_s)
            self._forget()
        except MarkError as error:
            _log.warning("the events queue cannot be read: %s", error)
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is: nobody else hears of spot notices
            _log.exception("the events queue cannot be read")
            return failure_words(error)
        return None

    def _forget(self) -> None:
        """Delete what nobody has claimed for `keep_s`: it is about instances of others."""
        now = time.monotonic()
        with self._lock:
            old = [name for name, (one, at) in self._waiting.items() if at < now - self._kept_s(one.word)]
            for name in old:
                del self._waiting[name]
        self._delete(old)

    def _kept_s(self, word: InstanceMessage) -> float:
        return self._keep_s if isinstance(word, SpotWarned) else min(self._keep_s, KEEP_STATES_S)

    def _make_visible(self, receipts: list[str]) -> None:
        with translated():
            self._sqs.change_message_visibility_batch(
                QueueUrl=self._queue_url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                    for number, receipt in enumerate(receipts)
                ],
            )

    def _delete(self, names: list[str]) -> None:
        for start in range(0, len(names), BATCH):
            with self._lock:
                batch = [
                    (name, self._receipts[name]) for name in names[start : start + BATCH] if name in self._receipts
                ]
            if not batch:
                continue
            with translated():
                self._sqs.delete_message_batch(
                    QueueUrl=self._queue_url,
                    Entries=[{"Id": str(n), "ReceiptHandle": receipt} for n, (_, receipt) in enumerate(batch)],
                )
            with self._lock:
                for name, _ in batch:
                    self._receipts.pop(name, None)
