"""Orders are imperative, facts are past tense. Both unions are closed: match them to the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from mark.domain.fleet.instances import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Fields of every order. `token` makes the call idempotent."""

    token: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfInstances(Command):
    """An order about instances, by id."""

    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(Command):
    """Rent `count` instances of an offering."""

    offering: str
    count: int
    role: Role = Role.SERVING
    #: Offerings that do as well: AWS may launch of these, too (`planner/equivalents.py`).
    equivalents: tuple[str, ...] = ()
    #: Pools, as offering and zone, that are left out: they were refused lately.
    without: tuple[tuple[str, str], ...] = ()
    #: Zone in whose reserved capacity they have a place; empty for a launch like any other.
    reserved_in: str = ""
    #: The model's version that they serve; empty where versions are not told apart.
    version: str = ""
    kind: Literal["launch"] = "launch"

    @property
    def offerings(self) -> tuple[str, ...]:
        """All offerings that may come, the chosen one first."""
        return (self.offering, *self.equivalents)

    def zones_without(self, offering: str) -> frozenset[str]:
        """The zones in which an offering is left out."""
        return frozenset(zone for name, zone in self.without if name == offering)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(OfInstances):
    """Give these no new requests; each terminates itself when its last one is answered."""

    kind: Literal["drain"] = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate(OfInstances):
    """End these at once, whatever they are doing."""

    kind: Literal["terminate"] = "terminate"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStandby(OfInstances):
    """Wake these stopped standbys."""

    kind: Literal["start-standby"] = "start-standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStandby(OfInstances):
    """Give these standbys no new requests; each stops when its last one is answered."""

    kind: Literal["stop-standby"] = "stop-standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmLambda(Command):
    """Have `concurrency` Lambda environments warm."""

    concurrency: int
    kind: Literal["warm-lambda"] = "warm-lambda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw(Command):
    """Ask for `count` instances less of a launch that could not be sent yet, or for none of it."""

    #: Token of the launch.
    launch: str
    offering: str
    count: int
    kind: Literal["withdraw"] = "withdraw"


Order = Launch | Drain | Terminate | StartStandby | StopStandby | WarmLambda | Withdraw


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotWarned:
    """A spot instance got its interruption notice."""

    instance: str
    #: When the notice was given, epoch seconds.
    at: float
    #: When the instance is terminated, epoch seconds.
    terminates_at: float
    kind: Literal["spot-warned"] = "spot-warned"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceAdvised:
    """A spot instance is more likely than others to be taken; nobody says when, or whether."""

    instance: str
    #: When AWS recommended to replace it, epoch seconds.
    at: float
    kind: Literal["rebalance"] = "rebalance"


class RefusalCause(StrEnum):
    """The cause of a refused launch or wake."""

    #: AWS has none there now.
    CAPACITY = "capacity"
    #: The account may have no more.
    QUOTA = "quota"
    #: A limit of the service leaves no room now, and AWS was not asked. Another offering would have met it too.
    GUARDRAIL = "guardrail"
    #: A limit of the service lets not even one of this offering run, and AWS was not asked.
    FORBIDDEN = "forbidden"
    #: The credentials may not launch it.
    AUTHORIZATION = "authorization"
    #: The launch is wrong as it is set up: its template, image, network or parameters.
    CONFIGURATION = "configuration"
    #: AWS was busy or failed.
    AWS_FAILURE = "aws-failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """Instances of a launch order could not be had, or standbys of a StartStandby not be woken."""

    token: str
    offering: str
    #: Instances that do not come, or sleep on. Where several pools refused one call, the first tells of them all.
    count: int
    cause: RefusalCause
    at: float
    #: AWS's error code, or the failure's name where AWS was not reached; empty where no code was given.
    code: str = ""
    #: Where it was refused; None where that is not said.
    zone: str | None = None
    #: The limit of the service that refused it, as a sentence for people.
    detail: str = ""
    #: Standbys that could not be woken, by id; empty for a launch.
    instances: tuple[str, ...] = ()
    kind: Literal["launch-refused"] = "launch-refused"

    @property
    def why(self) -> str:
        """The cause for people: AWS's code and the zone, or the limit's sentence."""
        if self.code:
            return f"{self.code} in {self.zone}" if self.zone else self.code
        return f"{self.cause}: {self.detail}" if self.detail else str(self.cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchWithdrawn:
    """Instances of a launch that was withdrawn do not come: no earlier sending of it was heard, either."""

    #: Token of the launch.
    token: str
    offering: str
    count: int
    at: float
    kind: Literal["launch-withdrawn"] = "launch-withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailed:
    """An instance was launched and ended before it was ever ready, or was ended because it never was."""

    instance: str
    offering: str
    at: float
    #: The code of AWS's StateReason; empty where AWS gave none.
    code: str = ""
    #: AWS's message, or why it was ended.
    detail: str = ""
    kind: Literal["launch-failed"] = "launch-failed"

    @property
    def why(self) -> str:
        """The reason for people. AWS's message begins with the code."""
        return self.detail or self.code or "AWS does not say why"


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


Fact = SpotWarned | RebalanceAdvised | LaunchRefused | LaunchWithdrawn | LaunchFailed | ForecastFailed | PlanFailed
