"""Warm-up pings of a model's function, and what they are billed for."""

from __future__ import annotations

import math
import time

import numpy as np

from mark.aws.functions.warmup import AT_ONCE, WarmedUp, warm_up
from mark.aws.session import Aws
from mark.dispatch.overflow import BUCKETS, believed_warm, note_in_flight
from mark.domain.lease import Lease
from mark.domain.traffic import GatewayReport, ModelTraffic, Warmed
from mark.live.clock import ServiceClock
from mark.service_spec import ServedModel
from mark.store.service import ServiceStore

TIMEOUT_S = 30.0


class Warmer:
    """Pings the function and reports the bill as a gateway would; a ping stands for itself at any speed.

    Gateways are told what is warm, each its share: what would start cold is late, so they send nothing there.
    """

    def __init__(
        self,
        served: ServedModel,
        *,
        aws: Aws,
        store: ServiceStore,
        clock: ServiceClock,
        lease: Lease,
        gateways: int,
    ) -> None:
        self._served, self._store, self._clock = served, store, clock
        self._gateways = gateways
        self._client = aws.invoking(connections=AT_ONCE, timeout_s=TIMEOUT_S)
        self._name = f"warm-{served.name}-{lease.epoch}-{time.time_ns()}"
        self._sequence = 0
        self._belief = np.zeros((2, BUCKETS), np.int64)
        self._anew_at = 0.0

    def believed(self) -> int:
        """Environments that its own pings should have left warm."""
        self._forget_gone()
        return believed_warm(self._belief, self._clock.now())

    def warm(self, concurrency: int) -> WarmedUp:
        """Warm so many environments, and report the bill."""
        self._forget_gone()
        done = warm_up(self._client, self._served.function, concurrency)
        now = self._clock.now()
        note_in_flight(self._belief, now, done.answered)
        share = math.ceil(done.answered / self._gateways)
        self._store.put_warmed(Warmed(model=self._served.name, at=now, share=share, anew_at=self._anew_at))
        self._sequence += 1
        traffic = ModelTraffic(
            model=self._served.name,
            billed=float(done.answered),
            gib_s=done.gib_s,
        )
        report = GatewayReport(gateway=self._name, sequence=self._sequence, models=(traffic,))
        self._store.report(report)
        return done

    def _forget_gone(self) -> None:
        """Forget environments that ended with the account's functions."""
        told = self._store.warmed(self._served.name)
        if told is not None and told.anew_at > self._anew_at:
            self._anew_at = told.anew_at
            self._belief[:] = 0
