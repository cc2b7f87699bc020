"""Orders are imperative, facts are past tense. Both unions are closed: match them to the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mark.domain.fleet import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Rent `count` instances of an offering. `token` makes the call idempotent."""

    token: str
    reason: str
    offering: str
    count: int
    role: Role = Role.SERVING
    kind: Literal["launch"] = "launch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Give these no new requests; each terminates itself when its last one is answered."""

    token: str
    reason: str
    instances: tuple[str, ...]
    kind: Literal["drain"] = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """End these at once, whatever they are doing."""

    token: str
    reason: str
    instances: tuple[str, ...]
    kind: Literal["terminate"] = "terminate"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStandby:
    """Wake these stopped standbys."""

    token: str
    reason: str
    instances: tuple[str, ...]
    kind: Literal["start-standby"] = "start-standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStandby:
    """Give these standbys no new requests; each stops when its last one is answered."""

    token: str
    reason: str
    instances: tuple[str, ...]
    kind: Literal["stop-standby"] = "stop-standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmLambda:
    """Have `concurrency` Lambda environments warm."""

    token: str
    reason: str
    concurrency: int
    kind: Literal["warm-lambda"] = "warm-lambda"


Order = Launch | Drain | Terminate | StartStandby | StopStandby | WarmLambda


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotWarned:
    """A spot instance will be taken away at `gone_at`."""

    instance: str
    at: float
    gone_at: float
    kind: Literal["spot-warned"] = "spot-warned"


GUARDRAIL = "guardrail: "
"""How the code of a LaunchRefused begins where a limit of our own left no room now, and AWS was not asked.

It says nothing of the offering: another one would have met the limit too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """`count` instances of a launch order could not be had, or so many standbys of a StartStandby not be woken."""

    token: str
    offering: str
    count: int
    code: str
    at: float
    kind: Literal["launch-refused"] = "launch-refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastFailed:
    """The forecaster raised or returned nonsense; the fallback answered for this tick."""

    forecaster: str
    error: str
    at: float
    kind: Literal["forecast-failed"] = "forecast-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """No fleet meets the objective; the last plan stays."""

    error: str
    at: float
    kind: Literal["plan-failed"] = "plan-failed"


Fact = SpotWarned | LaunchRefused | ForecastFailed | PlanFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class SloWindow:
    """The monitor's last full window (M requests or 60 s): answered or shed in it, and how many missed."""

    closed_at: float
    requests: int
    missed: int
