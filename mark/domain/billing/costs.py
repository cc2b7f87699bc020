"""The cost words: what was used, and what a run or a day cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mark.domain.fleet.instances import Role

Ec2State = Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An instance entered an EC2 state at `at` (service time): what live usage is computed from.

    `usd_per_hour` is its offering's price when that was written down; None where nobody knew it. With
    `surplus_vcpu_s` it is a reading and enters no state: vCPU seconds beyond its credits since it was started.
    """

    instance: str
    model: str
    offering: str
    role: Role
    state: Ec2State
    at: float
    usd_per_hour: float | None = None
    surplus_vcpu_s: float | None = None
    #: The version of the model that it was launched for; empty where versions are not told apart.
    version: str = ""

    @property
    def is_reading(self) -> bool:
        """True where it enters no state."""
        return self.surplus_vcpu_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUsage:
    """One stretch of an instance in state running, `[started_at, ended_at)`, billed per second.

    `surplus_vcpu_s` are vCPU seconds beyond the credits of an unlimited burstable instance. `usd_per_hour` is the
    price that was recorded when it began; None where the bill takes its offering's. `version` is the model's that
    it served, empty where versions are not told apart.
    """

    instance: str
    offering: str
    role: Role
    started_at: float
    ended_at: float
    surplus_vcpu_s: float = 0.0
    usd_per_hour: float | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledTime:
    """Billed seconds of instances of one role, offering, recorded price and version, rounding included."""

    role: Role
    offering: str
    usd_per_hour: float | None
    billed_s: int
    #: Of it, what unlimited burstable instances used beyond their credits.
    surplus_vcpu_s: float = 0.0
    #: The version of the model that they served; empty where versions are not told apart, or no more.
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRollup:
    """Usage of instances long gone in `[since, until)`: one hour of many instances in place of their transitions.

    `billed` is what they had been billed for by `until`, less what they had been by `since`; `asleep_s` and
    `running_s` are instance seconds.
    """

    since: float
    until: float
    billed: tuple[BilledTime, ...]
    asleep_s: float
    running_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """A model's ledger as it is kept: all before `folded_to` of what had ended by then as `rollups`, by time.

    `transitions` are those that are kept one by one: by time, those of one instant as they were told.
    """

    transitions: tuple[Transition, ...]
    rollups: tuple[UsageRollup, ...] = ()
    folded_to: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetUsage:
    """Usage of a fleet up to an instant: stretches in state running, and instance seconds asleep and running."""

    usages: tuple[InstanceUsage, ...]
    asleep_s: float
    running_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaUsage:
    """Usage of Lambda: invocations (warm-up pings counted), cold starts among them, billed GiB seconds."""

    requests: int
    cold_starts: int
    gib_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One line of the bill; `component` is instances, standby, lambda, overhead or commitments."""

    component: str
    item: str
    quantity: float
    unit: str
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostUsd:
    """The cost words of every report. `serving` = instances + standby + lambda; `total` adds the other two.

    `commitments`: what is paid for those of the account, less the price on demand of what they cover, which the
    others contain.
    """

    instances: float
    standby: float
    lambda_: float
    overhead: float
    commitments: float = 0.0

    @property
    def serving(self) -> float:
        """The cost of serving requests, USD."""
        return self.instances + self.standby + self.lambda_

    @property
    def total(self) -> float:
        """All of it."""
        return self.serving + self.overhead + self.commitments
