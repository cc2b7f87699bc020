"""What a gateway counts of one model: for the store since its last report, for Prometheus since it started."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from mark.domain.traffic import LATENCY_BIN_S, LATENCY_BINS, ModelTraffic, is_rejection

Server = Literal["instance", "standby", "lambda"]
SERVERS: tuple[Server, ...] = ("instance", "standby", "lambda")
LAST_BIN = LATENCY_BINS - 1


class Tally:
    """Counts of one model. `window_count` are the arrivals of the window of service time that runs."""

    __slots__ = (
        "_since", "arrivals", "billed", "by", "cold", "failed", "gib_s", "invocations", "late", "latencies",
        "latency_sum_s", "redispatched", "rejected", "repeated", "shed", "window_count",
    )  # fmt: skip

    def __init__(self) -> None:
        self.arrivals: Counter[int] = Counter()
        self.by: dict[Server, int] = dict.fromkeys(SERVERS, 0)
        self.late = self.shed = self.failed = self.rejected = self.redispatched = self.repeated = 0
        self.invocations = self.cold = 0
        self.window_count = 0
        self.latencies: dict[int, int] = {}
        self.latency_sum_s = self.billed = self.gib_s = 0.0
        self._since: ModelTraffic | None = None

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

    def refused(self, status: int) -> None:
        """A model's answer that serves nobody, status 400 or more, went out.

        What is wrong with the request itself is no failure of the service, so no objective counts it.
        """
        if is_rejection(status):
            self.rejected += 1
        else:
            self.failed += 1

    def close_window(self, window: int) -> None:
        """The arrivals counted so far belong to that window."""
        if self.window_count:
            self.arrivals[window] += self.window_count
            self.window_count = 0

    def traffic(self, model: str, *, in_flight: int, warm: int) -> ModelTraffic | None:
        """What has happened since the last call; None where nothing has."""
        now = self._totals(model, in_flight, warm)
        arrivals = tuple(sorted(self.arrivals.items()))
        self.arrivals.clear()
        before = self._since
        if not arrivals and before == now:
            return None
        self._since = now
        return _difference(now, before, arrivals)

    def _totals(self, model: str, in_flight: int, warm: int) -> ModelTraffic:
        return ModelTraffic(
            model=model,
            instance=self.by["instance"],
            standby=self.by["standby"],
            lambda_=self.by["lambda"],
            late=self.late,
            shed=self.shed,
            failed=self.failed,
            rejected=self.rejected,
            redispatched=self.redispatched,
            latency_counts=tuple(sorted(self.latencies.items())),
            latency_sum_s=self.latency_sum_s,
            invocations=self.invocations,
            cold=self.cold,
            billed=self.billed,
            gib_s=self.gib_s,
            lambda_in_flight=in_flight,
            lambda_warm=warm,
        )


def _difference(
    now: ModelTraffic, before: ModelTraffic | None, arrivals: tuple[tuple[int, int], ...]
) -> ModelTraffic:
    old = before or ModelTraffic(model=now.model)
    bins = dict(old.latency_counts)
    grown = ((place, count - bins.get(place, 0)) for place, count in now.latency_counts)
    return ModelTraffic(
        model=now.model,
        arrivals=arrivals,
        instance=now.instance - old.instance,
        standby=now.standby - old.standby,
        lambda_=now.lambda_ - old.lambda_,
        late=now.late - old.late,
        shed=now.shed - old.shed,
        failed=now.failed - old.failed,
        rejected=now.rejected - old.rejected,
        redispatched=now.redispatched - old.redispatched,
        latency_counts=tuple((place, count) for place, count in grown if count),
        latency_sum_s=now.latency_sum_s - old.latency_sum_s,
        invocations=now.invocations - old.invocations,
        cold=now.cold - old.cold,
        billed=now.billed - old.billed,
        gib_s=now.gib_s - old.gib_s,
        lambda_in_flight=now.lambda_in_flight,
        lambda_warm=now.lambda_warm,
    )
