"""Traffic reports of gateways: arrivals by window, answers by their source, and the use of Lambda."""

from __future__ import annotations

from dataclasses import dataclass

LATENCY_BIN_S = 0.001
LATENCY_BINS = 4000
"""Latencies are counted in bins of a millisecond; the last one holds all above 4 s."""
CLIENT_ERROR, SERVER_ERROR = 400, 500
NOT_THE_REQUEST = (408, 429)
"""Too slow, too much to do: the same request may do well a little later."""


def is_rejection(status: int) -> bool:
    """True where an HTTP status says that the request is wrong in itself, which is no failure of a service."""
    return CLIENT_ERROR <= status < SERVER_ERROR and status not in NOT_THE_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraffic:
    """One gateway's counts of one model since its last report; the last two fields are gauges.

    arrivals: (window's number, requests), the number being service time // WINDOW_S; those that turned out to be
    rejected are taken back, so that there may be fewer than none. instance, standby, lambda_:
    requests answered by each; late: how many of those missed the objective; shed: refused; rejected: what the
    model called wrong in itself, which tells nothing of the service. latency_counts: (bin, requests).
    invocations: Lambda calls, warm-up pings counted; cold: cold starts among them. billed, gib_s:
    calls and GiB seconds as they are billed on the service's clock: each counts as many times as the clock is
    faster than the wall. lambda_in_flight, lambda_warm: calls under way, and environments believed warm, now.
    """

    model: str
    arrivals: tuple[tuple[int, int], ...] = ()
    instance: int = 0
    standby: int = 0
    lambda_: int = 0
    late: int = 0
    shed: int = 0
    failed: int = 0
    rejected: int = 0
    redispatched: int = 0
    latency_counts: tuple[tuple[int, int], ...] = ()
    latency_sum_s: float = 0.0
    invocations: int = 0
    cold: int = 0
    billed: float = 0.0
    gib_s: float = 0.0
    lambda_in_flight: int = 0
    lambda_warm: int = 0

    @property
    def answered(self) -> int:
        """Requests that got an answer from a model."""
        return self.instance + self.standby + self.lambda_


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """One report; `sequence` rises by one, so that a report sent twice is counted once."""

    gateway: str
    sequence: int
    models: tuple[ModelTraffic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """Lambda environments of a model that pings left warm at `at` (service time): each gateway's share of them.

    Environments from before `anew_at` are gone: the function was made anew.
    """

    model: str
    at: float
    share: int
    anew_at: float = 0.0
