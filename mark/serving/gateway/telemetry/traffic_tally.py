"""Traffic counts of one model: since the last report for the store, since the start for Prometheus."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from mark.dispatch.instance.device_share import recent_rps
from mark.domain.demand import WINDOW_S
from mark.domain.load.size_window import add_sizes, size_bin
from mark.domain.load.traffic import (
    LATENCY_BIN_S,
    LATENCY_BINS,
    MODEL_COUNTS,
    MODEL_SUMS,
    ClientTraffic,
    ModelTraffic,
    grown_since,
    is_model_error,
    is_rejection,
)
from mark.domain.models.versions import VersionCounts, counted_since
from mark.protocols.oip.bodies import error_text
from mark.serving.gateway.telemetry.failure_tally import MOST_TEXT, FailureTally

if TYPE_CHECKING:
    from mark.serving.gateway.request import InferenceRequest

Server = Literal["instance", "standby", "lambda"]
SERVERS: tuple[Server, ...] = ("instance", "standby", "lambda")
COUNTED = {*MODEL_COUNTS, *MODEL_SUMS} - {"instance", "standby", "lambda_", "shared_usd"}
"""Counts of `ModelTraffic` that a tally has by the same name: answers stand by server, and rent is the host's."""
WINDOWS_KNOWN = 32
"""More than a request can see pass before it is given up."""
LAST_BIN = LATENCY_BINS - 1
Bins = tuple[tuple[int, int], ...]


class VersionTally:
    """Counts of one version of a model while a rollout runs, and of its shadow."""

    __slots__ = (
        "answered_", "compared_", "differing_", "failed_", "gib_s_", "lambda_calls_", "late_", "latency_s_",
        "shadow_dropped", "shadow_failed", "shadow_s", "shadowed_s", "version",
    )  # fmt: skip

    def __init__(self, version: str) -> None:
        self.version = version
        self.answered_ = self.late_ = self.failed_ = 0
        self.compared_ = self.differing_ = self.shadow_failed = self.shadow_dropped = 0
        self.latency_s_ = self.shadow_s = self.shadowed_s = 0.0
        self.lambda_calls_ = self.gib_s_ = 0.0

    def answered(self, latency_s: float, objective_s: float) -> None:
        """An answer of this version went out."""
        self.answered_ += 1
        self.latency_s_ += latency_s
        if latency_s > objective_s:
            self.late_ += 1

    def failed(self) -> None:
        """This version failed a request."""
        self.failed_ += 1

    def billed(self, calls: float, gib_s: float) -> None:
        """Calls of this version's function are billed."""
        self.lambda_calls_ += calls
        self.gib_s_ += gib_s

    def compared(self, latency_s: float, usual_s: float, *, differs: bool, failed: bool) -> None:
        """Two answers to one request were compared: this version's, and the stable one's that took usual_s."""
        self.compared_ += 1
        self.differing_ += differs
        self.shadow_failed += failed
        self.shadow_s += latency_s
        self.shadowed_s += usual_s

    @property
    def counts(self) -> VersionCounts:
        """All that was counted."""
        return VersionCounts(
            version=self.version,
            answered=self.answered_,
            late=self.late_,
            failed=self.failed_,
            latency_us=round(1e6 * self.latency_s_),
            compared=self.compared_,
            differing=self.differing_,
            shadow_failed=self.shadow_failed,
            shadow_dropped=self.shadow_dropped,
            shadow_us=round(1e6 * self.shadow_s),
            shadowed_us=round(1e6 * self.shadowed_s),
            lambda_calls=round(self.lambda_calls_),
            lambda_gib_us=round(1e6 * self.gib_s_),
        )


class Tally:
    """Counts of one model. `window_count` are the arrivals of the window of service time that runs.

    `_opened`: when the last windows began, by the loop's clock, and their numbers. `variants`: answers by variant.
    `shared`: requests that shared instances took, by window. `recent`: sum of accuracies and answers with one in
    the last whole window. `sizes`: arrivals by size since the last report.
    """

    __slots__ = (
        "_closed", "_measured", "_opened", "_since", "_window_began", "accuracy_known", "accuracy_sum", "arrivals",
        "billed", "by", "cold", "crossed", "cut_short", "deduplicated", "failed", "failures", "first_byte_sum_s",
        "first_bytes", "forwarded", "gib_s", "invocations", "late", "latencies", "latency_sum_s", "left",
        "model_errors", "recent", "redispatched", "rejected", "shared", "shed", "sizes", "variants", "versions",
        "window_count",
    )  # fmt: skip

    def __init__(self) -> None:
        self.arrivals: Counter[int] = Counter()
        self.by: dict[Server, int] = dict.fromkeys(SERVERS, 0)
        self.late = self.shed = self.failed = self.rejected = self.redispatched = self.deduplicated = 0
        self.crossed = 0
        self.shared: Counter[int] = Counter()
        self.model_errors = 0
        self.failures = FailureTally()
        self.invocations = self.cold = self.forwarded = 0
        self.left = self.cut_short = 0
        self.window_count = 0
        #: arrivals of earlier windows; of all, how many and when its load was measured last, and that
        self._closed = 0
        self._measured = (0, -math.inf, 0.0)
        self.sizes: dict[int, int] = {}
        self._opened: deque[tuple[float, int]] = deque(maxlen=WINDOWS_KNOWN)
        self.latencies: dict[int, int] = {}
        self.first_bytes: dict[int, int] = {}
        self.first_byte_sum_s = 0.0
        self.latency_sum_s = self.billed = self.gib_s = self.accuracy_sum = 0.0
        self.accuracy_known = 0
        self.variants: dict[bytes, int] = {}
        self.versions: dict[str, VersionTally] = {}
        self._window_began = self.recent = (0.0, 0)
        self._since: ModelTraffic | None = None

    def arrived(self, size: int) -> None:
        """Count a request of so many items."""
        self.window_count += 1
        sizes = self.sizes
        sizes[size] = sizes.get(size, 0) + 1

    def answered(self, by: Server, latency_s: float, objective_s: float) -> None:
        """A model's answer went out."""
        self.by[by] += 1
        place = int(latency_s / LATENCY_BIN_S)
        place = min(place, LAST_BIN)
        latencies = self.latencies
        latencies[place] = latencies.get(place, 0) + 1
        self.latency_sum_s += latency_s
        if latency_s > objective_s:
            self.late += 1

    def streamed(self, by: Server, first_s: float, whole_s: float, *, late: bool) -> None:
        """An answer that streamed is whole."""
        self.answered(by, whole_s, math.inf)
        place = min(int(first_s / LATENCY_BIN_S), LAST_BIN)
        self.first_bytes[place] = self.first_bytes.get(place, 0) + 1
        self.first_byte_sum_s += first_s
        self.late += late

    def answered_with(self, variant: bytes, accuracy: float) -> None:
        """The answer that just went out was a variant's, which is right so often."""
        self.variants[variant] = self.variants.get(variant, 0) + 1
        self.accuracy_sum += accuracy
        self.accuracy_known += 1

    def refused(self, status: int, size: int, arrived_at: float, body: bytes = b"") -> None:
        """A model's answer that serves nobody, status 400 or more, went out. arrived_at: the loop's clock.

        What is wrong with the request itself is no failure of the service, so no objective counts it. Nor is it
        load that instances are to be rented for: its arrival is taken back.
        """
        if is_rejection(status):
            self.rejected += 1
            self.sizes[size] = self.sizes.get(size, 0) - 1
            window = self._window_at(arrived_at)
            if window is None or window == self._opened[-1][1]:
                self.window_count -= 1
            else:
                self.arrivals[window] -= 1
        else:
            self.failed += 1
            self.model_errors += is_model_error(status)
            self.says_failed(error_text(body, MOST_TEXT))

    def took_shared(self, request: InferenceRequest) -> None:
        """Count a request that a shared instance takes as planned, in the window in which it arrived."""
        window = None if request.is_shared else self._window_at(request.arrived_at)
        if window is not None:
            request.is_shared = True
            self.shared[window] += 1

    def gave_back(self, request: InferenceRequest) -> None:
        """Count it no more, where it was: the instance did not take it after all."""
        window = self._window_at(request.arrived_at) if request.is_shared else None
        if window is not None:
            request.is_shared = False
            self.shared[window] -= 1

    def _window_at(self, arrived_at: float) -> int | None:
        """The window that ran at that instant of the loop's clock; None where it is long ago."""
        for at, number in reversed(self._opened):  # on the hot path, where a generator takes longer
            if at <= arrived_at:
                return number
        return None

    def says_failed(self, text: str) -> None:
        """Keep what a failure said, among the latest kinds."""
        self.failures.note(text, self._opened[-1][1] * WINDOW_S if self._opened else 0.0)

    def of_version(self, version: str) -> VersionTally:
        """The counts of a version, from now on among the model's."""
        return self.versions.setdefault(version, VersionTally(version))

    def open_window(self, window: int, now: float) -> None:
        """Begin to count arrivals since `now`, the loop's clock, for that window."""
        if not self._opened or self._opened[-1][1] != window:
            self._opened.append((now, window))
            total, known = self._window_began
            self.recent = (self.accuracy_sum - total, self.accuracy_known - known)
            self._window_began = (self.accuracy_sum, self.accuracy_known)

    def close_window(self, window: int) -> None:
        """Assign the arrivals counted so far to that window."""
        if self.window_count:
            self.arrivals[window] += self.window_count
            self._closed += self.window_count
            self.window_count = 0

    def measure_rps(self, now: float) -> float:
        """Its load lately, requests/s, from one call to the next. now: the loop's clock."""
        count, at, rps = self._measured
        arrived = self._closed + self.window_count
        if now > at:
            rps = recent_rps(rps, max(0, arrived - count), now - at)
            self._measured = arrived, now, rps
        return rps

    def traffic(
        self, model: str, *, in_flight: int, warm: int, clients: tuple[ClientTraffic, ...] = (), zone: str = ""
    ) -> ModelTraffic | None:
        """Traffic since the last call; None where there was none.

        clients: their counts so far. zone: where it came in; empty where that is not known.
        """
        now = self._totals(model, in_flight, warm, clients)
        arrivals, shared = _taken(self.arrivals), _taken(self.shared)
        sizes = add_sizes((size_bin(size), count) for size, count in self.sizes.items())
        self.sizes.clear()
        before = self._since
        if not (arrivals or shared or sizes) and before == now:
            return None
        self._since = now
        entered = ((zone, sum(count for _, count in arrivals)),) if zone and arrivals else ()
        since = _difference(now, before, arrivals)
        return replace(since, shared=shared, sizes=sizes, failures=self.failures.take(), entered=entered)

    def _totals(self, model: str, in_flight: int, warm: int, clients: tuple[ClientTraffic, ...]) -> ModelTraffic:
        counted = {name: getattr(self, name) for name in COUNTED}
        return ModelTraffic(
            model=model,
            instance=self.by["instance"],
            standby=self.by["standby"],
            lambda_=self.by["lambda"],
            latency_counts=tuple(sorted(self.latencies.items())),
            first_byte_counts=tuple(sorted(self.first_bytes.items())),
            clients=clients,
            versions=tuple(one.counts for one in self.versions.values()),
            recent_known=self.recent[1],
            recent_sum=self.recent[0],
            lambda_in_flight=in_flight,
            lambda_warm=warm,
            **counted,
        )


def _difference(
    now: ModelTraffic, before: ModelTraffic | None, arrivals: tuple[tuple[int, int], ...]
) -> ModelTraffic:
    old = before or ModelTraffic(model=now.model)
    before_of = {one.client: one for one in old.clients}
    versions = {one.version: one for one in old.versions}
    grown = {name: getattr(now, name) - getattr(old, name) for name in (*MODEL_COUNTS, *MODEL_SUMS)}
    return replace(
        now,
        arrivals=arrivals,
        latency_counts=_grown(now.latency_counts, old.latency_counts),
        first_byte_counts=_grown(now.first_byte_counts, old.first_byte_counts),
        clients=tuple(grown_since(one, before_of.get(one.client)) for one in now.clients),
        versions=tuple(counted_since(one, versions.get(one.version)) for one in now.versions),
        **grown,
    )


def _taken(counts: Counter[int]) -> Bins:
    """The counts by window, which begin anew."""
    found = tuple(sorted((window, count) for window, count in counts.items() if count))
    counts.clear()
    return found


def _grown(now: Bins, before: Bins) -> Bins:
    """Counts of each bin since."""
    known = dict(before)
    grown = ((place, count - known.get(place, 0)) for place, count in now)
    return tuple((place, count) for place, count in grown if count)
