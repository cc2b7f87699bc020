"""Policy of routing, admission, overflow and load shedding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from mark.domain.errors import Misconfigured


class Routing(StrEnum):
    """Rules that pick an instance."""

    LEAST_FINISH = "least-finish"
    WEIGHTED = "weighted"
    LEAST_OUTSTANDING = "least-outstanding"


class Bounced(StrEnum):
    """Targets of a request that its instance does not admit."""

    NOWHERE = "nowhere"
    LAMBDA = "lambda"


class Late(StrEnum):
    """Treatment of a request that no server can answer in time."""

    SERVE = "serve"
    SHED = "shed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicy:
    """The data plane's half of a policy."""

    routing: Routing = Routing.LEAST_FINISH
    bounced: Bounced = Bounced.LAMBDA
    #: share of the latency objective that a predicted finish may use; None without the Bouncer
    admission_factor: float | None = 0.98
    #: probability with which an admitted request must finish in that share; 0.5 looks at its expected finish
    admission_confidence: float = 0.5
    late: Late = Late.SERVE
    #: seconds after which a request is shed or expired: the service's own time-out
    give_up_s: float = 60.0
    #: least seconds after which a batch counts as hung, and its agent is restarted (`instance/hung.py`)
    hung_after_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0.5 <= self.admission_confidence < 1:
            raise Misconfigured(f"admission_confidence is in [0.5, 1), not {self.admission_confidence:g}")

    @property
    def admission_sigmas(self) -> float:
        """Normal deviations beyond the expected finish that the confidence stands for."""
        return NormalDist().inv_cdf(self.admission_confidence)
