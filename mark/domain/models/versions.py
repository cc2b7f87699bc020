"""Versions of a served model, and the rollout that replaces one by another.

A version is named by the hash of what answers: the model's files and how its backend loads them. The stable one
has all traffic but the share that a rollout gives to its candidate. The moves of a rollout are in
`mark/controller/rollout.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mark.domain.errors import Misconfigured
from mark.domain.figures import share_words
from mark.domain.models.canary_evidence import answers_needed, passing_share

KEPT_VERSIONS = 5
"""Versions of a model that are kept, the last that were put into the store; those in use are kept in any case."""
LONGEST_S = 7 * 86_400.0
"""Most of a share's dwell, of its wait for answers, and of the time for a step's instances."""
MOST_DWELLS = 4
"""A step without enough answers to judge by ends after so many dwells."""


SECOND = "_2"
"""End of the name of a model's second function."""


def shown(version: str) -> str:
    """The part of a version's name that people are shown; programs get all 64 digits."""
    return version[:12]


def functions_of(function: str) -> tuple[str, str]:
    """The two Lambda functions of a model: one answers as its stable version, the other as a candidate."""
    return function, f"{function}{SECOND}"


def outdated_versions(put: Sequence[str], used: Collection[str]) -> tuple[str, ...]:
    """Versions that are kept no longer. put: all that are kept, by when they were put there last, oldest first."""
    return tuple(name for name in put[:-KEPT_VERSIONS] if name not in used)


class RolloutPhase(StrEnum):
    """preparing -> shadowing -> preparing -> dwelling -> preparing ... -> promoted; or -> compared, or -> aborted.

    Without a shadow the first two are left out; without steps it ends as compared.
    """

    #: Instances of the candidate start, until they carry the step's share.
    PREPARING = "preparing"
    #: The candidate is sent a share of what the stable version answers; its answers are compared and dropped.
    SHADOWING = "shadowing"
    #: The candidate answers its share and is compared with the stable version.
    DWELLING = "dwelling"
    #: The candidate is the stable version now.
    PROMOTED = "promoted"
    #: The candidate answers nobody any more.
    ABORTED = "aborted"
    #: The candidate was to be compared alone, and was.
    COMPARED = "compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPolicy:
    """The steps of a rollout, and what ends it."""

    #: Shares of the requests that the candidate answers, rising; the last is 1. None: it is compared alone.
    steps: tuple[float, ...] = (0.05, 0.25, 1.0)
    #: How long each share is held at least, seconds of service time.
    dwell_s: float = 300.0
    #: How long the candidate's instances of one step may take to become ready, seconds of service time.
    ready_within_s: float = 900.0
    #: Answers of the new version before a step may end, however long they take. None: as many as find out a
    #: version that misses twice as often as it may, or what comes in MOST_DWELLS dwells.
    least_answers: int | None = None
    #: Finished requests of a step before its latency is judged; compared answers before a shadow may end.
    least_requests: int = 100
    #: Missed, or failed, requests before a share of them is judged: few, so that a bad version costs few.
    least_missed: int = 10
    #: Aborts where the candidate misses the objective so many times as often as it may, and stable does not.
    burn_rate: float = 10.0
    #: Aborts where the share of failed requests is so much above the stable version's.
    error_share: float = 0.02
    #: Aborts where the mean latency is so many times the stable version's.
    latency_factor: float = 1.5
    #: Share of the requests whose copies the candidate gets before its first step, to be compared; 0: none.
    shadow: float = 0.0
    #: How long answers are compared at least, seconds of service time.
    shadow_dwell_s: float = 300.0
    #: Aborts where more than this share of the compared answers differ; None: never.
    most_differing: float | None = None
    #: Two floats are the same where they differ by no more than this times (1 + the stable version's).
    tolerance: float = 1e-4

    def check(self) -> None:
        """Misconfigured where the steps or the shadow are none, or a time has no end."""
        for name, seconds in (
            ("dwell", self.dwell_s),
            ("ready-within", self.ready_within_s),
            ("shadow-dwell", self.shadow_dwell_s),
        ):
            if not 0.0 <= seconds <= LONGEST_S:
                raise Misconfigured(f"--{name} is at most {LONGEST_S:g} s, a week, not {seconds:g}")
        if self.least_answers is not None and self.least_answers < 1:
            raise Misconfigured(f"--least-answers is 1 or more, not {self.least_answers}")
        if not are_steps(self.steps):
            raise Misconfigured("the steps of a canary rise and end with 100, such as 5,25,100")
        if not 0.0 <= self.shadow <= 1.0:
            raise Misconfigured(
                f"the shadow is a share of the requests, 0 to 100 percent, not {100 * self.shadow:g}"
            )
        if not 0.0 <= self.tolerance < float("inf"):
            raise Misconfigured(f"--tolerance is a number, 0 or more, not {self.tolerance:g}")
        if self.most_differing is not None and not 0.0 <= self.most_differing <= 1.0:
            raise Misconfigured(f"--most-differing is 0 to 100 percent, not {100 * self.most_differing:g}")
        if not self.steps and not self.shadow:
            raise Misconfigured("a rollout without steps compares answers: it needs a shadow, such as --shadow 10")

    def answers_needed(self, target: float) -> int:
        """Answers of the new version before a step may end. target: the objective's."""
        return answers_needed(target) if self.least_answers is None else self.least_answers


def are_steps(steps: Sequence[float]) -> bool:
    """True where shares of the requests are those of a canary: rising, to 1; none, too."""
    return not steps or (steps[-1] == 1.0 and steps[0] > 0.0 and list(steps) == sorted(set(steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCounts:
    """Requests of one version, as gateways counted them; of its shadow, those that no client waits for."""

    version: str
    #: Requests that it answered.
    answered: int = 0
    #: Of these, requests that missed the objective.
    late: int = 0
    #: Requests that it failed.
    failed: int = 0
    #: The sum of the latencies of those that it answered, microseconds.
    latency_us: int = 0
    #: Copies of requests whose two answers were compared.
    compared: int = 0
    #: Of these, those whose answers differ.
    differing: int = 0
    #: Of the compared, those that this version failed.
    shadow_failed: int = 0
    #: Copies that were not compared: it had no room for them, lost them, or was too late.
    shadow_dropped: int = 0
    #: The sums of the latencies of the compared, microseconds: this version's and the stable one's.
    shadow_us: int = 0
    shadowed_us: int = 0
    #: Calls and pings of its Lambda function, and their millionths of a GiB second, as they are billed.
    lambda_calls: int = 0
    lambda_gib_us: int = 0

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

    @property
    def differing_share(self) -> float:
        """Share of the compared answers that differ."""
        return self.differing / self.compared if self.compared else 0.0

    @property
    def mean_shadow_s(self) -> float:
        """Mean latency of the compared answers of this version, seconds; 0 before the first."""
        return self.shadow_us / self.compared / 1e6 if self.compared else 0.0

    @property
    def mean_shadowed_s(self) -> float:
        """Mean latency of the stable version's answers to the same requests, seconds; 0 before the first."""
        return self.shadowed_us / self.compared / 1e6 if self.compared else 0.0


VERSION_COUNTS = (
    "answered", "late", "failed", "latency_us",
    "compared", "differing", "shadow_failed", "shadow_dropped", "shadow_us", "shadowed_us",
    "lambda_calls", "lambda_gib_us",
)  # fmt: skip
"""The counts of `VersionCounts`."""


def counted_since(now: VersionCounts, before: VersionCounts | None) -> VersionCounts:
    """The counts of one version since an earlier reading; none where a store that lost the latest has fewer."""
    old = before or VersionCounts(version=now.version)
    grown = {name: max(0, getattr(now, name) - getattr(old, name)) for name in VERSION_COUNTS}
    return VersionCounts(version=now.version, **grown)


def rollout_sentence(versions: ModelVersions) -> str:
    """The rollout as a sentence: its versions, phase and reason."""
    rollout = versions.rollout
    assert rollout is not None
    return f"version {shown(rollout.candidate)} in place of {shown(rollout.before)}, {rollout.words}"


def evidence_sentence(answers: int, target: float) -> str:
    """What so many answers of a step can tell, for people. target: the objective's."""
    if not answers:
        return "no answer came that tells anything of the version"
    return (
        f"with {answers:,} answers, a version that misses the objective twice as often as it may would pass in "
        f"{share_words(passing_share(answers, target))} of cases"
    )


def shadow_sentence(counts: VersionCounts) -> str:
    """The comparison of a version's answers with the stable one's, in figures, for people."""
    return (
        f"{counts.differing} of {counts.compared} compared differ ({share_words(counts.differing_share, 1)}), "
        f"{counts.shadow_failed} failed, {counts.shadow_dropped} dropped; {1000 * counts.mean_shadow_s:.0f} ms on "
        f"average, the stable version's {1000 * counts.mean_shadowed_s:.0f} ms"
    )


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
    #: Why it is in its phase, for people; it does not name the phase.
    reason: str = ""
    #: A person has asked for the promotion: no dwell, no judgement.
    is_hurried: bool = False
    #: The step's answers missed too often once: it is held once more, and judged by new ones.
    is_doubted: bool = False
    #: What the comparison of answers found, for people; empty before its end.
    verdict: str = ""
    #: Counts of both versions when the share was set, by version.
    counts: tuple[VersionCounts, ...] = ()
    #: Counts of all versions when it began.
    counted_before: tuple[VersionCounts, ...] = ()
    #: Launches that are not answered in full.
    requested: tuple[VersionLaunch, ...] = ()
    #: Launches ordered so far: tokens are made from it.
    launches: int = 0
    #: Until when nothing is launched after a refusal, epoch seconds.
    hold_until: float = float("-inf")
    #: Why AWS or a limit refused the last launch; empty where none was.
    refused: str = ""

    @property
    def words(self) -> str:
        """Its phase and why, for people: `dwelling: answers 5 % of the requests`, `aborted: by command`."""
        return f"{self.phase}: {self.reason}" if self.reason else str(self.phase)

    @property
    def is_over(self) -> bool:
        """True once it was promoted, aborted or compared alone."""
        return self.phase in (RolloutPhase.PROMOTED, RolloutPhase.ABORTED, RolloutPhase.COMPARED)

    @property
    def is_in_shadow(self) -> bool:
        """True until answers have been compared, where they are to be."""
        return self.policy.shadow > 0.0 and not self.verdict and not self.is_hurried

    @property
    def dwell_s(self) -> float:
        """Seconds for which the share is held at least that is held now."""
        return self.policy.shadow_dwell_s if self.is_in_shadow else self.policy.dwell_s

    @property
    def most_held_s(self) -> float:
        """Seconds for which that share is held at most."""
        waits = self.policy.least_answers is not None and not self.is_in_shadow
        return LONGEST_S if waits else MOST_DWELLS * self.dwell_s

    @property
    def share(self) -> float:
        """The share of the step that is prepared or held, or that of the shadow before it."""
        if self.is_hurried:
            return 1.0
        return self.policy.shadow if self.is_in_shadow else self.policy.steps[self.step]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersions:
    """The versions of one model: what gateways route by and instances are launched for."""

    model: str
    #: The version of all traffic but the candidate's; empty where the service knows no versions.
    stable: str
    rollout: Rollout | None = None
    #: Id of the last command that was carried out.
    command: str = ""
    #: Which of the model's two functions (`functions_of`) answers for the stable version: 0 or 1.
    function: int = 0

    def function_of(self, version: str, function: str) -> str:
        """The function that answers for the stable version or the candidate. function: the model's first."""
        is_candidate = bool(version) and version == self.candidate
        return functions_of(function)[self.function ^ is_candidate]

    @property
    def candidate(self) -> str:
        """The version that a rollout is bringing in; empty without one."""
        return "" if self.rollout is None or self.rollout.is_over else self.rollout.candidate

    @property
    def weight(self) -> float:
        """The candidate's share of the requests."""
        return 0.0 if self.rollout is None or self.rollout.is_over else self.rollout.weight

    @property
    def shadow(self) -> float:
        """The share of the requests whose copies the candidate gets."""
        is_on = self.rollout is not None and self.rollout.phase is RolloutPhase.SHADOWING
        return self.rollout.policy.shadow if self.rollout is not None and is_on else 0.0

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutProgress:
    """How far the phase of a rollout is that runs."""

    rollout: Rollout
    #: Counts of the candidate since its phase began.
    candidate: VersionCounts
    #: Seconds since then.
    passed_s: float
    #: Seconds in which an instance boots.
    boot_s: float
    #: The objective's target.
    target: float

    @property
    def answers_needed(self) -> int | None:
        """Answers, or compared answers, for which the share is held; None while instances start."""
        policy = self.rollout.policy
        match self.rollout.phase:
            case RolloutPhase.SHADOWING:
                return policy.least_requests
            case RolloutPhase.DWELLING:
                return policy.answers_needed(self.target)
            case _:
                return None

    @property
    def answers(self) -> int:
        """Answers, or compared answers, of the phase."""
        return self.candidate.compared if self.rollout.is_in_shadow else self.candidate.finished

    @property
    def twice_as_bad_passes(self) -> float | None:
        """Share of cases in which the step that is held is passed by one that misses twice as often as it may."""
        is_judged = self.rollout.phase is RolloutPhase.DWELLING
        return passing_share(self.answers, self.target) if is_judged else None

    @property
    def left_s(self) -> float:
        """Seconds that the phase is expected to last yet: by the time of a boot, or by the rate of the answers."""
        if (needed := self.answers_needed) is None:
            return max(0.0, self.boot_s - self.passed_s)
        dwell_left_s, most_left_s = self.rollout.dwell_s - self.passed_s, self.rollout.most_held_s - self.passed_s
        lacking = max(0, needed - self.answers)
        answers_left_s = lacking * self.passed_s / self.answers if self.answers else most_left_s * (lacking > 0)
        return max(0.0, min(max(dwell_left_s, answers_left_s), most_left_s))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The progress for people: what is waited for and how long it may take, and what the answers can tell."""
        if (needed := self.answers_needed) is None:
            if self.left_s:
                return (f"its instances are ready in about {_rounded(self.left_s)}",)
            most_left_s = max(0.0, self.rollout.policy.ready_within_s - self.passed_s)
            return (
                f"its instances take longer than usual; it is aborted in {_rounded(most_left_s)} without them",
            )
        held = f"{self.answers:,} of {needed:,} answers; the share is held for about {_rounded(self.left_s)} more"
        if self.rollout.phase is RolloutPhase.SHADOWING:
            return (held, shadow_sentence(self.candidate))
        return (held, evidence_sentence(self.answers, self.target)) if self.answers else (held,)


def rollout_progress(
    versions: ModelVersions, counts: Sequence[VersionCounts], *, now: float, boot_s: float, target: float
) -> RolloutProgress | None:
    """The progress of the rollout that runs; None without one.

    counts: by version, since the service began. now: service time.
    """
    rollout = versions.rollout
    if rollout is None or rollout.is_over:
        return None
    before = {one.version: one for one in rollout.counts}
    nothing = VersionCounts(version=rollout.candidate)
    candidate = next((one for one in counts if one.version == rollout.candidate), nothing)
    return RolloutProgress(
        rollout=rollout,
        candidate=counted_since(candidate, before.get(rollout.candidate)),
        passed_s=max(0.0, now - rollout.since),
        boot_s=boot_s,
        target=target,
    )


def _rounded(seconds: float) -> str:
    """A time that is known roughly."""
    for unit, size_s in (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}s"
    return f"{seconds:.0f} s"


def rollout_notes(versions: ModelVersions, progress: RolloutProgress | None) -> tuple[str, ...]:
    """The rollout for `mark status`; empty where there never was one."""
    if versions.rollout is None:
        return ()
    told = () if progress is None else progress.sentences
    return (rollout_sentence(versions), *(f"version {shown(versions.candidate)}: {text}" for text in told))


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
