"""The driver of one model's controller in real time.

A tick comes each period of the service's clock, and at once when something happened: a spot notice, a refused
launch, a window of the SLO monitor that missed. It decides nothing: `Controller.tick` is the one of the replay.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from mark.controller.journal import Header, header_line
from mark.controller.runner import Controller
from mark.domain.orders import Order
from mark.live.clock import ServiceClock
from mark.live.control.data_plane import LiveDataPlane
from mark.live.control.observe_mode import LiveCloud
from mark.live.control.status_writer import ModelStatusWriter
from mark.store.journal import StoreJournal

log = logging.getLogger(__name__)

SETTLE_S = 0.06
"""Real seconds from a window's end to a tick or a poll for surges: gateways report the window by then."""
SEGMENT_BYTES = 16 * 1024 * 1024
"""A segment of the journal that is longer is followed by another: some days of ticks."""
WAITING_BYTES = 4 * SEGMENT_BYTES
"""Length that a segment may reach while another, that would be dropped for its successor, is not archived."""
SIZE_EACH_TICKS = 100
"""Ticks between two checks of the segment's length."""
POLL_EACH_S = 0.05
"""Real seconds between two polls for events and the SLO monitor."""


def _nothing() -> None:
    """Nothing is done between ticks."""


def rotate_if_long(journal: StoreJournal, header: Callable[[], bytes]) -> None:
    """Open another segment where this one is long; what that drops waits for its copy, but not for ever."""
    size_bytes = journal.size_bytes
    is_last_call = size_bytes > WAITING_BYTES
    if size_bytes > SEGMENT_BYTES and (is_last_call or not journal.is_waiting):
        journal.rotate(header(), unkept=is_last_call)


class ModelDriver:
    """The driver of one model, while this process holds the lease."""

    def __init__(
        self,
        controller: Controller,
        *,
        clock: ServiceClock,
        cloud: LiveCloud,
        plane: LiveDataPlane,
        publisher: ModelStatusWriter,
        journal: StoreJournal,
        header: Header,
        beside: Callable[[], None] = _nothing,
    ) -> None:
        """beside: called between ticks, in their thread, several times a second."""
        self._controller, self._clock, self._cloud, self._plane = controller, clock, cloud, plane
        self._publisher, self._journal, self._header = publisher, journal, header
        self._beside = beside
        self._wake = threading.Event()
        self._watch_at = -math.inf

    def wake(self) -> None:
        """Tick at once: something happened."""
        self._wake.set()

    def observe(self) -> None:
        """Take inventory before anything is ordered."""
        self._cloud.observe()

    def claim(self) -> None:
        """Tell the service's cap what its first plan wants, before any model acts."""
        self._controller.claim()

    def run(self, stop: threading.Event, unseen: Sequence[Order]) -> None:
        """Submit what a controller before this one left, then tick until `stop` is set.

        RetryLater where AWS or the store does not answer, LeaseLost where another controller acts: recover anew.
        """
        for order in unseen:
            self._cloud.submit(order)
        while not stop.is_set():
            self._tick()
            while self._plane.is_behind() and not stop.is_set():  # units that closed while nobody acted
                self._tick()
            self._wait(stop)

    def _tick(self) -> None:
        decision = self._controller.tick()
        for order in decision.orders:
            given = {"model": self._publisher.model, "token": order.token, "reason": order.reason}
            log.info(order.kind, extra=given)
        if self._cloud.has_pending_facts:
            self.wake()
        self._publisher.publish(self._controller, decision)
        if decision.state.tick % SIZE_EACH_TICKS == 0:
            rotate_if_long(self._journal, lambda: header_line(self._checkpointed()))

    def _is_surging(self) -> bool:
        """Poll for surges at each window's end, as a replay does, once the window is reported."""
        watch_s = self._controller.watch_s
        if math.isinf(watch_s) or self._clock.wall_until(self._watch_at) + SETTLE_S > 0:
            return False
        self._watch_at = (math.floor(self._clock.now() / watch_s) + 1) * watch_s
        return self._controller.is_surging()

    def _checkpointed(self) -> Header:
        """The header of the journal's next segment: it holds all that folding the one before would give."""
        controller = self._controller
        return replace(self._header, checkpoint=controller.checkpoint, history=controller.history)

    def _wait(self, stop: threading.Event) -> None:
        """Until the period's end, or until something happened."""
        while not stop.is_set():
            left_s = self._clock.wall_until(self._controller.next_at) + SETTLE_S
            if left_s <= 0 or self._plane.has_missed() or self._is_surging():
                return
            self._beside()
            self._cloud.poll_events()  # what is spent is known before the next tick
            if self._wake.wait(min(left_s, POLL_EACH_S)):
                self._wake.clear()
                return
