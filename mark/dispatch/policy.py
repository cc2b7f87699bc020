"""How requests are routed, admitted, and what becomes of late ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Routing(StrEnum):
    """Which instance gets a request."""

    LEAST_FINISH = "least-finish"
    WEIGHTED = "weighted"
    LEAST_OUTSTANDING = "least-outstanding"


class Bounced(StrEnum):
    """Where a request goes that its instance does not admit."""

    NOWHERE = "nowhere"
    LAMBDA = "lambda"
    LAMBDA_IF_SOONER = "lambda-if-sooner"


class Late(StrEnum):
    """What becomes of a request that nobody can serve in time."""

    SERVE = "serve"
    SHED = "shed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicy:
    """The data plane's half of a policy.

    `admission_factor` is the share of the objective that a predicted finish may use; None stands for no Bouncer.
    A request that would wait longer than `give_up_s` is shed (the service's own time-out). A batch that runs for
    `hung_after_s`, and for many times what it should take (`hung.py`), is hung: its agent is replaced.
    """

    routing: Routing = Routing.LEAST_FINISH
    bounced: Bounced = Bounced.LAMBDA_IF_SOONER
    admission_factor: float | None = 0.98
    late: Late = Late.SERVE
    give_up_s: float = 60.0
    hung_after_s: float = 10.0
