"""Traffic reports of gateways: arrivals by window, answers by their source, and the use of Lambda."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mark.domain.load.outcomes import Outcomes
from mark.domain.load.size_window import SizeCounts
from mark.domain.models.versions import VersionCounts

LATENCY_BIN_S = 0.001
LATENCY_BINS = 4000
"""Latencies are counted in bins of a millisecond; the last one holds all above 4 s."""
CLIENT_ERROR, SERVER_ERROR = 400, 500
CLIENT_GONE = 499
"""nginx's status of a request whose client has gone before its answer: nobody failed it."""
NOT_THE_REQUEST = (408, 429)
"""Too slow, too much to do: the same request may do well a little later."""
FAILURE_KINDS = 3
"""Kinds of failures of a model that are kept, the latest."""
_NUMBERS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|[0-9]+", re.IGNORECASE)
OVERLOADED = (503, 504)
"""Server errors of one that has too much to do."""


def is_model_error(status: int) -> bool:
    """True where an HTTP status says that the model failed by itself: more instances would fail alike."""
    return status >= SERVER_ERROR and status not in OVERLOADED


def is_rejection(status: int) -> bool:
    """True where an HTTP status says that the request is wrong in itself, which is no failure of a service."""
    return CLIENT_ERROR <= status < SERVER_ERROR and status not in NOT_THE_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKind:
    """Failures of a model whose texts are alike but for numbers; instants are the service's, to a window."""

    #: The last one's text.
    text: str
    #: How many.
    count: int = 1
    #: When the first one was.
    since: float = 0.0
    #: When the last one was.
    at: float = 0.0

    @property
    def kind(self) -> str:
        """The text without numbers and ids."""
        return _NUMBERS.sub("#", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraffic:
    """One client's counts of one model; `SERVICE` of `mark.domain.clients` names the service's own token."""

    client: str
    #: Requests that got an answer from a model.
    answered: int = 0
    #: Of these, requests that missed the objective.
    late: int = 0
    #: Requests refused for lack of capacity.
    shed: int = 0
    #: Requests that failed.
    failed: int = 0
    #: Requests refused by the client's own limits (429); no objective counts them.
    limited: int = 0
    #: Items of the requests that were answered.
    items: int = 0

    @property
    def finished(self) -> int:
        """Requests within the client's limits that were answered, shed or failed."""
        return self.answered + self.shed + self.failed

    @property
    def missed(self) -> int:
        """Finished requests that missed the objective."""
        return self.late + self.shed + self.failed

    @property
    def requests(self) -> int:
        """All requests but those that were wrong in themselves."""
        return self.finished + self.limited


CLIENT_COUNTS = ("answered", "late", "shed", "failed", "limited", "items")
"""The counts of `ClientTraffic`."""


def client_outcomes(one: ClientTraffic) -> dict[str, int]:
    """One client's requests by what became of them, as metrics and documents name it."""
    return {
        "in_time": one.answered - one.late,
        "late": one.late,
        "shed": one.shed,
        "failed": one.failed,
        "limited": one.limited,
    }


def grown_since(now: ClientTraffic, before: ClientTraffic | None) -> ClientTraffic:
    """The counts of one client since an earlier reading; none where a store that lost the latest has fewer."""
    old = before or ClientTraffic(client=now.client)
    grown = {name: max(0, getattr(now, name) - getattr(old, name)) for name in CLIENT_COUNTS}
    return ClientTraffic(client=now.client, **grown)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTotals:
    """Requests of one model by what became of them."""

    #: Requests answered by serving instances, ...
    instance: int = 0
    #: ... by standbys, ...
    standby: int = 0
    #: ... and by Lambda.
    lambda_: int = 0
    #: Of these, requests that missed the objective.
    late: int = 0
    #: Requests refused for lack of capacity (load shedding).
    shed: int = 0
    #: Requests that failed.
    failed: int = 0
    #: Requests that the model called wrong in themselves, which tells nothing of the service.
    rejected: int = 0
    #: Answers of a variant whose accuracy is known; none for a model without variants.
    accuracy_known: int = 0
    #: Sum of their accuracies.
    accuracy_sum: float = 0.0

    @property
    def answered(self) -> int:
        """Requests that got an answer from a model."""
        return self.instance + self.standby + self.lambda_

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy of the variants that answered; None where none did."""
        return self.accuracy_sum / self.accuracy_known if self.accuracy_known else None

    @property
    def finished(self) -> int:
        """Requests that were answered, shed or failed; what the model rejected says nothing of the service."""
        return self.answered + self.shed + self.failed

    @property
    def missed(self) -> int:
        """Finished requests that missed the objective."""
        return self.late + self.shed + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraffic(AnswerTotals):
    """One gateway's counts of one model since its last report; fields from `recent_known` on are gauges."""

    #: The model's name.
    model: str
    #: (window's number, requests), the number being service time // WINDOW_S. Those that turned out to be rejected
    #: are taken back, so that there may be fewer than none.
    arrivals: tuple[tuple[int, int], ...] = ()
    #: The same of those that shared instances took: no load of its own fleet. Those given back are taken off.
    shared: tuple[tuple[int, int], ...] = ()
    #: Requests by size, those of `arrivals` alone.
    sizes: SizeCounts = ()
    #: Of those that failed, the ones that the model answered with an error of its own: no capacity would have
    #: served them.
    model_errors: int = 0
    #: Of those that instances answered, the ones that crossed to an instance in another zone than they came in.
    crossed: int = 0
    #: Requests by the zone of the gateway in which they came in, of gateways that know theirs.
    entered: tuple[tuple[str, int], ...] = ()
    #: Requests that were sent again after their agent was lost.
    redispatched: int = 0
    #: (bin, requests), a bin being LATENCY_BIN_S wide.
    latency_counts: tuple[tuple[int, int], ...] = ()
    #: The sum of all latencies, seconds.
    latency_sum_s: float = 0.0
    #: The same of the first bytes of answers that streamed; their whole times are among the latencies.
    first_byte_counts: tuple[tuple[int, int], ...] = ()
    first_byte_sum_s: float = 0.0
    #: Requests that Lambda took; warm-up pings answer nobody.
    invocations: int = 0
    #: Cold starts among them.
    cold: int = 0
    #: Lambda calls and warm-up pings as they are billed on the service's clock: a call counts as often as that is
    #: faster than the wall.
    billed: float = 0.0
    #: GiB seconds of Lambda, likewise.
    gib_s: float = 0.0
    #: Rent of the device time that it took on shared instances, USD.
    shared_usd: float = 0.0
    #: The latest kinds of failures, the last first.
    failures: tuple[FailureKind, ...] = ()
    #: By client, where the service has clients.
    clients: tuple[ClientTraffic, ...] = ()
    #: By version, of requests that came during a rollout, and of pings of the versions' functions.
    versions: tuple[VersionCounts, ...] = ()
    #: The accuracies' two counts of the last whole window.
    recent_known: int = 0
    recent_sum: float = 0.0
    #: Lambda calls under way now.
    lambda_in_flight: int = 0
    #: Lambda environments believed warm now.
    lambda_warm: int = 0
    #: Of totals: the live gateways that they are of.
    gateways: int = 0

    @property
    def zoned(self) -> int:
        """Requests that came in at gateways that know their zone: of these, `crossed` says all."""
        return sum(count for _, count in self.entered)

    @property
    def recent_accuracy(self) -> float | None:
        """The same over the last whole window."""
        return self.recent_sum / self.recent_known if self.recent_known else None

    @property
    def outcomes(self) -> Outcomes:
        """Counts that capacity is decided by: the finished and the missed, without the model's own errors."""
        return Outcomes(finished=self.finished - self.model_errors, missed=self.missed - self.model_errors)


MODEL_COUNTS = (
    "instance", "standby", "lambda_", "late", "shed", "failed", "model_errors", "rejected",
    "crossed", "redispatched", "invocations", "cold", "accuracy_known",
)  # fmt: skip
"""The whole numbers of `ModelTraffic` that rise ..."""
MODEL_SUMS = ("latency_sum_s", "first_byte_sum_s", "billed", "gib_s", "shared_usd", "accuracy_sum")
"""... and the broken ones."""


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
    #: the version whose environments they are; empty where they are not told apart
    version: str = ""
