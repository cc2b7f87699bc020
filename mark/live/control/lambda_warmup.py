"""Warm-up pings of a model's function, and what they are billed for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mark.aws.functions.warmup import AT_ONCE, WarmedUp, warm_up
from mark.aws.session import Aws
from mark.dispatch.overflow import BUCKETS, believed_warm, note_in_flight, warm_for_all
from mark.domain.fleet.lease import Lease
from mark.domain.load.traffic import GatewayReport, ModelTraffic, Warmed
from mark.domain.models.versions import VersionCounts
from mark.live.clock import ServiceClock
from mark.service_spec import ServedModel
from mark.store.service import ServiceStore

TIMEOUT_S = 30.0


class Warmer:
    """Pings the function and reports the bill as a gateway would; a ping stands for itself at any speed.

    While a rollout runs, the function that answers as its candidate is warmed, too, by its share of the requests.
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
        self._beliefs: dict[str, NDArray[np.int64]] = {}
        self._anew_at = 0.0

    def believed(self) -> int:
        """Environments that its own pings should have left warm: by the version with the fewest of its share."""
        self._forget_gone()
        now = self._clock.now()
        return warm_for_all(
            (believed_warm(self._belief(version), now), share) for version, _, share in self._shares()
        )

    def warm(self, concurrency: int) -> WarmedUp:
        """Warm so many environments, of each version its share, and report the bill."""
        self._forget_gone()
        done = {
            version: self._warm(version, function, math.ceil(share * concurrency))
            for version, function, share in self._shares()
        }
        whole = WarmedUp(
            answered=sum(one.answered for one in done.values()),
            cold=sum(one.cold for one in done.values()),
            failed=sum(one.failed for one in done.values()),
            gib_s=sum(one.gib_s for one in done.values()),
        )
        self._sequence += 1
        traffic = ModelTraffic(
            model=self._served.name,
            billed=float(whole.answered),
            gib_s=whole.gib_s,
            versions=_billed_to(done),
        )
        report = GatewayReport(gateway=self._name, sequence=self._sequence, models=(traffic,))
        self._store.report(report)
        return whole

    def _warm(self, version: str, function: str, concurrency: int) -> WarmedUp:
        done = warm_up(self._client, function, concurrency, version=version)
        now = self._clock.now()
        note_in_flight(self._belief(version), now, done.answered)
        share = math.ceil(done.answered / self._gateways)
        warmed = Warmed(model=self._served.name, at=now, share=share, anew_at=self._anew_at, version=version)
        self._store.put_warmed(warmed)
        return done

    def _shares(self) -> list[tuple[str, str, float]]:
        """Versions, their functions, and what share of the plan's environments each may need; all: the stable."""
        served = self._served
        versions = self._store.versions(served.name) if served.function_versions else None
        if versions is None:
            return [("", served.function, 1.0)]
        shares = {versions.stable: 1.0} | ({versions.candidate: versions.weight} if versions.weight > 0 else {})
        return [(one, versions.function_of(one, served.function), share) for one, share in shares.items()]

    def _belief(self, version: str) -> NDArray[np.int64]:
        return self._beliefs.setdefault(version, np.zeros((2, BUCKETS), np.int64))

    def _forget_gone(self) -> None:
        """Forget environments that ended with the account's functions."""
        told = self._store.warmed(self._served.name)
        if told is not None and told.anew_at > self._anew_at:
            self._anew_at = told.anew_at
            self._beliefs.clear()


def _billed_to(done: Mapping[str, WarmedUp]) -> tuple[VersionCounts, ...]:
    """The pings by version; none where versions are not told apart."""
    return tuple(
        VersionCounts(version=version, lambda_calls=one.answered, lambda_gib_us=round(1e6 * one.gib_s))
        for version, one in done.items()
        if version
    )
