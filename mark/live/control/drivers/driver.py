"""The driver of one model's controller in real time, called by the service's loop (`service_driver.py`).

A tick comes each period of the service's clock, and at once when something happened: a spot notice, a refused
launch, a window of the SLO monitor that missed. It decides nothing: `Controller.tick` is the one of the replay.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from mark.controller.journal import Header, header_line
from mark.controller.runner import Controller
from mark.domain.fleet.orders import Order
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

    def __init__(  # noqa: PLR0913 it is given every port
        self,
        controller: Controller,
        *,
        clock: ServiceClock,
        cloud: LiveCloud,
        plane: LiveDataPlane,
        publisher: ModelStatusWriter,
        journal: StoreJournal,
        header: Header,
        unseen: Sequence[Order] = (),
        beside: Callable[[], None] = _nothing,
    ) -> None:
        """unseen: what a controller before this one left unsent. beside: called several times a second."""
        self._controller, self._clock, self._cloud, self._plane = controller, clock, cloud, plane
        self._publisher, self._journal, self._header = publisher, journal, header
        self._beside, self._unseen = beside, unseen
        self._is_awake, self._watch_at = True, -math.inf

    def wake(self) -> None:
        """Tick at the next pass: something happened."""
        self._is_awake = True

    def observe(self) -> None:
        """Take inventory before anything is ordered."""
        self._cloud.observe()

    def claim(self) -> None:
        """Tell the service's cap what its first plan wants, before any model acts."""
        self._controller.claim()

    def is_due(self) -> bool:
        """True at the period's end, or where something happened. RetryLater, LeaseLost as `act`."""
        self._beside()
        self._cloud.poll_events()  # what is spent is known before the next tick
        left_s = self._clock.wall_until(self._controller.next_at) + SETTLE_S
        return self._is_awake or left_s <= 0 or self._plane.has_missed() or self._is_surging()

    def act(self) -> None:
        """Tick; first send what was left unsent. A unit that closed meanwhile is taken at the next pass.

        RetryLater where AWS or the store does not answer, LeaseLost where another controller acts: recover anew.
        """
        self._is_awake = False
        unseen, self._unseen = self._unseen, ()
        for order in unseen:
            self._cloud.submit(order)
        self._tick()
        if self._plane.is_behind():  # units that closed while nobody acted
            self.wake()

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
