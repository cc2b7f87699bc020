"""Results of a replay: counts, latencies, costs, and the series behind its plots."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mark.catalog.billing import Load
from mark.catalog.commitment_bill import Hours
from mark.domain.billing.costs import BillLine, CostUsd
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import LambdaGuess
from mark.policies.tuning import TunedSetting

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCounts:
    """Outcomes of requests; the five add up to the requests that arrived."""

    instance: int
    standby: int
    lambda_: int
    shed: int
    in_flight: int

    @property
    def total(self) -> int:
        """All requests."""
        return self.instance + self.standby + self.lambda_ + self.shed + self.in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency of what was answered, seconds.

    ccdf_s, ccdf_share: length points, a latency and the share of the answers that were slower.
    """

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    ccdf_s: Floats
    ccdf_share: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondSeries:
    """Per second of the run, by second of arrival. Each: length seconds."""

    arrivals: Ints
    answered: Ints
    #: Late and shed requests.
    missed: Ints
    to_lambda: Ints
    #: Sum of the latencies of those answered, s.
    latency_sum_s: Floats
    latency_max_s: Floats
    #: Sum of the accuracies of the variants that answered on instances; None for a model without variants.
    accuracy_sum: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteSeries:
    """Per minute of the run, at its start.

    ready: shape (minutes, offerings), serving instances and woken standbys that are ready, columns as
    `offerings`; capacity_rps: shape (minutes, offerings), the same times their capacity; forecast_max_rps:
    length minutes, the maximum forecast for that minute one lead before it (NaN where there was none).
    """

    offerings: tuple[str, ...]
    ready: Ints
    capacity_rps: Floats
    forecast_max_rps: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One policy on one workload. `throttled` counts the calls that Lambda refused, retries counted each.

    `world` is how kind the cloud was (`cloudmodel/world.py`). `speed` is how many times as fast the trace was
    moved through: counts are of requests that were sent, costs and rates of the `speed` requests that each of
    them stands for. `fallback_forecasts` counts those of the `forecasts` that are the last value because the
    forecaster failed. `gateways` is how many gateways or nodes the load takes, None where a managed service has
    them. `accuracy` is the mean of the variants that answered on instances, None for a model without variants.
    `quality` is the mean of accuracy times the utility of the delay, 0 for what was shed; None likewise.
    `uses_truth`: the forecaster knew the load to come. `tuned` is what an autoscaler was set to on the load
    before the run, None for what nobody tunes. `lambda_guess` is Lambda where only its profile is missing.
    """

    policy: str
    market: str
    model: str
    trace: str
    seed: int
    start_at: float
    duration_s: float
    slo: Slo
    served: ServedCounts
    attained: float
    latency: Latency
    cost: CostUsd
    bill: tuple[BillLine, ...]
    #: What the overhead was billed by.
    load: Load
    cold_starts: int
    lambda_invocations: int
    throttled: int
    assumed_profiles: tuple[str, ...]
    stand_in_profiles: tuple[str, ...]
    launches: int
    refusals: int
    interruptions: int
    wakes: int
    wall_s: float
    seconds: SecondSeries
    minutes: MinuteSeries
    notes: tuple[str, ...] = ()
    speed: float = 1.0
    world: str = "ideal"
    forecasts: int = 0
    fallback_forecasts: int = 0
    gateways: int | None = None
    accuracy: float | None = None
    quality: float | None = None
    uses_truth: bool = False
    tuned: TunedSetting | None = None
    lambda_guess: LambdaGuess | None = None
    #: By the hour, what commitments may cover of its own instances and Lambda.
    usage: Hours = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Arrivals of the run."""
        return self.served.total

    @property
    def cold_start_rate(self) -> float:
        """Cold starts per Lambda invocation; 0 without any."""
        return self.cold_starts / self.lambda_invocations if self.lambda_invocations else 0.0
