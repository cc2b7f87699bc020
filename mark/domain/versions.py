"""Versions of a served model, and the rollout that replaces one by another.

A version is named by the hash of what answers: the model's files and how its backend loads them. The stable one
has all traffic but the share that a rollout gives to its candidate. The moves of a rollout are in
`mark/controller/rollout.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mark.domain.errors import Misconfigured

VERSION_LETTERS = 12
"""Hex digits of a version's name: 48 bits, so that two versions of one model never meet."""


def function_of_version(function: str, version: str) -> str:
    """The Lambda function that answers for a version: the model's, by an alias that bears the version's name."""
    return f"{function}:{alias_of(version)}" if version else function


def alias_of(version: str) -> str:
    """The alias of a version; one of digits alone would be a number of Lambda's own."""
    return f"v{version}"


class RolloutPhase(StrEnum):
    """preparing -> dwelling -> preparing ... -> promoted; each but the last may become aborted."""

    #: Instances of the candidate start, until they carry the step's share.
    PREPARING = "preparing"
    #: The candidate answers its share and is compared with the stable version.
    DWELLING = "dwelling"
    #: The candidate is the stable version now.
    PROMOTED = "promoted"
    #: The candidate answers nobody any more.
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPolicy:
    """The steps of a rollout, and what ends it."""

    #: Shares of the requests that the candidate answers, rising; the last is 1.
    steps: tuple[float, ...] = (0.05, 0.25, 1.0)
    #: How long each share is held at least, seconds of service time.
    dwell_s: float = 300.0
    #: How long the candidate's instances of one step may take to become ready, seconds of service time.
    ready_within_s: float = 900.0
    #: Finished requests of a step before its latency is judged and it may end; with fewer it lasts four dwells.
    least_requests: int = 100
    #: Missed, or failed, requests before a share of them is judged: few, so that a bad version costs few.
    least_missed: int = 10
    #: Aborts where the candidate misses the objective so many times as often as it may, and stable does not.
    burn_rate: float = 10.0
    #: Aborts where the share of failed requests is so much above the stable version's.
    error_share: float = 0.02
    #: Aborts where the mean latency is so many times the stable version's.
    latency_factor: float = 1.5

    def check(self) -> None:
        """Misconfigured where the steps are none."""
        steps = self.steps
        if not steps or steps[-1] != 1.0 or steps[0] <= 0.0 or list(steps) != sorted(set(steps)):
            raise Misconfigured("the steps of a canary rise and end with 100, such as 5,25,100")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCounts:
    """Requests of one version, as gateways counted them."""

    version: str
    #: Requests that it answered.
    answered: int = 0
    #: Of these, requests that missed the objective.
    late: int = 0
    #: Requests that it failed.
    failed: int = 0
    #: The sum of the latencies of those that it answered, microseconds.
    latency_us: int = 0

    @property
    def finished(self) -> int:
        """Requests that were answered or failed."""
        return self.answered + self.failed

    @property
    def missed(self) -> int:
        """Finished requests that missed the objective."""
        return self.late + self.failed

    @property
    def missed_share(self) -> float:
        """Share of the finished requests that missed the objective."""
        return self.missed / self.finished if self.finished else 0.0

    @property
    def failed_share(self) -> float:
        """Share of the finished requests that failed."""
        return self.failed / self.finished if self.finished else 0.0

    @property
    def mean_latency_s(self) -> float:
        """Mean latency of its answers, seconds; 0 before the first."""
        return self.latency_us / self.answered / 1e6 if self.answered else 0.0


VERSION_COUNTS = ("answered", "late", "failed", "latency_us")
"""The counts of `VersionCounts`."""


def counted_since(now: VersionCounts, before: VersionCounts | None) -> VersionCounts:
    """The counts of one version since an earlier reading."""
    old = before or VersionCounts(version=now.version)
    grown = {name: getattr(now, name) - getattr(old, name) for name in VERSION_COUNTS}
    return VersionCounts(version=now.version, **grown)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLaunch:
    """A launch of the candidate's instances that have not all been seen or refused."""

    #: The order's token; its instances bear it.
    token: str
    offering: str
    #: Instances ordered.
    count: int
    #: When it was ordered, epoch seconds.
    at: float
    #: Instances that have appeared.
    seen: int = 0
    #: Instances that never will.
    refused: int = 0

    @property
    def waiting(self) -> int:
        """Instances still waited for."""
        return self.count - self.seen - self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A rollout from its start on; one that is over stays until the next begins."""

    #: Unique among the rollouts of a service.
    id: str
    #: The version that had all traffic when it began.
    before: str
    candidate: str
    policy: CanaryPolicy = field(default_factory=CanaryPolicy)
    phase: RolloutPhase = RolloutPhase.PREPARING
    #: Number of the step that is prepared or held.
    step: int = 0
    #: Share of the requests that the candidate answers now.
    weight: float = 0.0
    #: When the rollout began, epoch seconds of service time.
    began_at: float
    #: When its phase began.
    since: float
    #: Why it is in its phase, for people.
    reason: str = ""
    #: A person has asked for the promotion: no dwell, no judgement.
    is_hurried: bool = False
    #: Counts of both versions when the share was set, by version.
    counts: tuple[VersionCounts, ...] = ()
    #: Launches that are not answered in full.
    requested: tuple[VersionLaunch, ...] = ()
    #: Launches ordered so far: tokens are made from it.
    launches: int = 0
    #: Until when nothing is launched after a refusal, epoch seconds.
    hold_until: float = float("-inf")
    #: Why AWS or a limit refused the last launch; empty where none was.
    refused: str = ""

    @property
    def is_over(self) -> bool:
        """True once it was promoted or aborted."""
        return self.phase in (RolloutPhase.PROMOTED, RolloutPhase.ABORTED)

    @property
    def share(self) -> float:
        """The share of the step that is prepared or held."""
        return self.policy.steps[self.step]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersions:
    """The versions of one model: what gateways route by and instances are launched for."""

    model: str
    #: The version of all traffic but the candidate's; empty where the service knows no versions.
    stable: str
    rollout: Rollout | None = None
    #: Id of the last command that was carried out.
    command: str = ""

    @property
    def candidate(self) -> str:
        """The version that a rollout is bringing in; empty without one."""
        return "" if self.rollout is None or self.rollout.is_over else self.rollout.candidate

    @property
    def weight(self) -> float:
        """The candidate's share of the requests."""
        return 0.0 if self.rollout is None or self.rollout.is_over else self.rollout.weight

    def is_retired(self, version: str) -> bool:
        """True for a version that takes no requests: it was replaced, or aborted. An unknown one is the stable."""
        return bool(version and self.stable) and version not in (self.stable, self.candidate)

    def is_aborted(self, version: str) -> bool:
        """True for a candidate that was aborted: its answers are not wanted any more."""
        rollout = self.rollout
        return rollout is not None and rollout.phase is RolloutPhase.ABORTED and rollout.candidate == version

    def is_stable(self, version: str) -> bool:
        """True for the stable version; an instance that names none has it."""
        return not version or not self.stable or version == self.stable


class RolloutVerb(StrEnum):
    """A command about a rollout."""

    START = "start"
    PROMOTE = "promote"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCommand:
    """A person's command, as the acting controller finds it in the store."""

    #: Unique: a command is carried out once.
    id: str
    verb: RolloutVerb
    #: The version that is to be started.
    candidate: str = ""
    policy: CanaryPolicy = field(default_factory=CanaryPolicy)
