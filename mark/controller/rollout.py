"""The moves of a rollout, pure: a new version of a model takes over from the stable one in steps.

All transitions of `Rollout.phase` are here. At each step the candidate's instances for the step's share become
ready first; then it gets that share of the requests, holds it for a dwell, and is judged against the stable
version. The stable version keeps its whole fleet until the promotion, so that an abort gives it all traffic at
once. Before the first step there may be a shadow: the candidate gets copies of requests, for a dwell of its own,
and its answers are compared. Every phase has an end: what never becomes ready, or is not done in time, is aborted,
as is what a budget or a pause leaves no money for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from mark.domain.figures import share_words
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Drain, Launch, LaunchRefused, Order
from mark.domain.models.canary_evidence import most_missed
from mark.domain.models.versions import (
    LONGEST_S,
    MOST_DWELLS,
    ModelVersions,
    Rollout,
    RolloutCommand,
    RolloutPhase,
    RolloutVerb,
    VersionCounts,
    VersionLaunch,
    counted_since,
    evidence_sentence,
    shadow_sentence,
    shown,
)
from mark.domain.offerings.offering import Offering

REQUEST_TIMEOUT_S = 600.0
"""A launch that has not been seen for so long is forgotten, and ordered anew."""
HOLD_S = 60.0
"""After a refused launch nothing is launched for so long."""
HEARD_S = 30.0
"""After a promotion the old instances drain once each gateway has heard of it; they look twenty times a second."""
LEAST_CARRIED = 0.5
"""A candidate that answers less than this part of its share is too slow for what its instances are to carry."""
LIMITED = "a budget is reached or the service is paused: no second fleet is rented"
NOTICED = 0.01
"""A mean latency that is longer by less than this part of the objective is no fault: of a few milliseconds noise
makes twice as many."""
EXACT = 1e-9
"""Most that rounding adds to a whole number of instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSeen:
    """Observation of one move."""

    #: When, epoch seconds of service time.
    now: float
    #: All instances of the model, of all versions.
    fleet: FleetView
    #: Requests by version since the service began.
    counts: tuple[VersionCounts, ...] = ()
    #: The objective's target, a share.
    target: float
    #: The latency objective, seconds.
    objective_s: float
    #: What is launched where the stable version has no instance of its own; empty: nothing can be.
    fallback: str = ""
    #: So many of these carry what shared instances take of the stable version.
    shared: int = 0
    #: Refused launches of the candidate's since the last move.
    refused: tuple[LaunchRefused, ...] = ()
    #: False while a budget or a pause lets no second fleet be rented.
    may_launch: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutMove:
    """The versions after a move, and the orders to submit once these are stored."""

    versions: ModelVersions
    orders: tuple[Order, ...] = ()


def obey(
    versions: ModelVersions, command: RolloutCommand, now: float, counts: tuple[VersionCounts, ...] = ()
) -> ModelVersions:
    """The versions after a person's command; one carried out before, or without an object, changes nothing.

    counts: requests by version since the service began.
    """
    if command.id == versions.command:
        return versions
    versions, rollout = replace(versions, command=command.id), versions.rollout
    if rollout is not None and not rollout.is_over:
        return replace(versions, rollout=_commanded(rollout, command.verb, now))
    is_new = versions.stable and command.candidate != versions.stable
    if command.verb is not RolloutVerb.START or not is_new:
        return versions
    begun = Rollout(
        id=command.id,
        before=versions.stable,
        candidate=command.candidate,
        policy=command.policy,
        began_at=now,
        since=now,
        counted_before=counts,
    )
    return replace(versions, rollout=replace(begun, reason=_preparing(begun.share)))


def _commanded(rollout: Rollout, verb: RolloutVerb, now: float) -> Rollout:
    """A rollout that runs after a command; there is one at a time."""
    match verb:
        case RolloutVerb.START:
            return rollout
        case RolloutVerb.ABORT:
            return aborted(rollout, now, "by command")
        case RolloutVerb.PROMOTE:
            last = max(0, len(rollout.policy.steps) - 1)
            since = rollout.since if rollout.phase is RolloutPhase.PREPARING else now
            hurried = replace(rollout, is_hurried=True, step=last, phase=RolloutPhase.PREPARING, since=since)
            return replace(hurried, reason="to be promoted by command")
        case _:
            assert_never(verb)


def advance(versions: ModelVersions, seen: RolloutSeen) -> RolloutMove:
    """One move: at most one change of phase, launches that the step lacks, and drains of retired versions."""
    rollout = versions.rollout
    if rollout is not None and not rollout.is_over:
        rollout = _answered(rollout, seen)
        rollout = _moved(rollout, versions.stable, seen)
        if rollout.phase is RolloutPhase.PROMOTED:
            versions = replace(versions, stable=rollout.candidate, function=1 - versions.function)
        rollout, launches = _launches(rollout, versions, seen)
        versions = replace(versions, rollout=rollout)
    else:
        launches = ()
    return RolloutMove(versions=versions, orders=(*launches, *_drains(versions, seen)))


def aborted(rollout: Rollout, now: float, reason: str) -> Rollout:
    """The rollout ended: the stable version has all traffic again."""
    return replace(
        rollout, phase=RolloutPhase.ABORTED, weight=0.0, since=now, reason=reason, requested=(), counts=()
    )


def unsubmitted(rollout: Rollout | None, versions: ModelVersions) -> tuple[Launch, ...]:
    """Launches that may have been lost in a crash: their tokens make them safe to submit again."""
    if rollout is None or rollout.is_over:
        return ()
    return tuple(_launch(item, versions.candidate, "ordered before a takeover") for item in rollout.requested)


def needed(rollout: Rollout, stable: Counter[str], seen: RolloutSeen) -> dict[str, int]:
    """Instances of the candidate per offering that carry its step's share of what the stable version has."""
    whole = stable + Counter({seen.fallback: seen.shared})
    if not whole and seen.fallback:
        whole[seen.fallback] = 1
    return {name: math.ceil(rollout.share * count - EXACT) for name, count in sorted(whole.items())}


def fallback_of(offerings: Iterable[Offering], shared_rps: float) -> tuple[str, int]:
    """The cheapest offering for what shared instances take of a model, and how many; one carries no load at all.

    shared_rps: requests/s that they may take. The name is empty where nothing can be rented.
    """
    rented = [(math.ceil(shared_rps / one.capacity_rps), one) for one in offerings if one.usd_per_hour > 0]
    if not rented:
        return "", 0
    count, found = min(rented, key=lambda pair: (max(1, pair[0]) * pair[1].usd_per_hour, pair[1].name))
    return found.name, count


def _serving(fleet: FleetView, version: str, versions_stable: str) -> list[Instance]:
    """Serving instances of a version that stay."""
    is_stable = version == versions_stable
    return [
        i
        for i in fleet
        if i.role is Role.SERVING and i.stays and (i.version == version or (is_stable and not i.version))
    ]


def _counted(instances: Iterable[Instance], *, ready: bool = False) -> Counter[str]:
    return Counter(i.offering for i in instances if not ready or i.state is InstanceState.READY)


def _answered(rollout: Rollout, seen: RolloutSeen) -> Rollout:
    """Take what appeared, was refused or is overdue out of what is waited for."""
    there = Counter(i.token for i in seen.fleet)
    refused = Counter[str]()
    for fact in seen.refused:
        refused[fact.token] += fact.count
    left = [
        replace(item, seen=max(item.seen, there[item.token]), refused=item.refused + refused[item.token])
        for item in rollout.requested
        if item.at > seen.now - REQUEST_TIMEOUT_S
    ]
    rollout = replace(rollout, requested=tuple(item for item in left if item.waiting > 0))
    if not seen.refused:
        return rollout
    return replace(rollout, hold_until=seen.now + HOLD_S, refused=seen.refused[-1].why)


def _moved(rollout: Rollout, stable: str, seen: RolloutSeen) -> Rollout:
    """The next phase, where the one that it is in is over."""
    policy, now = rollout.policy, seen.now
    is_held = rollout.phase in (RolloutPhase.SHADOWING, RolloutPhase.DWELLING)
    if not seen.may_launch or now >= rollout.began_at + _longest_s(rollout):
        return aborted(rollout, now, "not done in time" if seen.may_launch else LIMITED)
    usual, new = _counts_since_its_share(rollout, stable, seen.counts)
    # the share stays while the next step's instances start, and so does the judgement
    fault = None
    if rollout.phase is RolloutPhase.SHADOWING:
        fault = judge_shadow(rollout, new)
    elif rollout.weight and not rollout.is_hurried:
        fault = judge(rollout, usual, new, seen.target, seen.objective_s)
    if fault is not None:
        return aborted(rollout, now, fault)
    # the stable version's fleet may grow all the time: a share that is held waits for none that boots there
    wanted = needed(rollout, _counted(_serving(seen.fleet, stable, stable), ready=is_held), seen)
    ready = _counted(_serving(seen.fleet, rollout.candidate, stable), ready=True)
    lacking = {name: count for name, count in wanted.items() if ready[name] < count}
    if wanted and not lacking:
        if is_held:
            return _held(rollout, usual, new, stable, seen)
        return _promoted(rollout, now) if rollout.is_hurried else _given_its_share(rollout, seen)
    patience_s = policy.ready_within_s + (rollout.most_held_s if is_held else 0.0)
    if now >= rollout.since + patience_s:
        return aborted(rollout, now, _never_ready(rollout, lacking, ready))
    return rollout


def _given_its_share(rollout: Rollout, seen: RolloutSeen) -> Rollout:
    """The candidate gets the share that its instances carry, or copies of it."""
    if rollout.is_in_shadow:
        reason = f"gets copies of {share_words(rollout.share)} of the requests, whose answers are compared"
        return replace(rollout, phase=RolloutPhase.SHADOWING, since=seen.now, reason=reason, counts=seen.counts)
    return replace(
        rollout,
        phase=RolloutPhase.DWELLING,
        weight=max(rollout.weight, rollout.share),
        since=seen.now,
        reason=f"answers {share_words(rollout.share)} of the requests",
        counts=seen.counts,
    )


def _counts_since_its_share(
    rollout: Rollout, stable: str, counts: tuple[VersionCounts, ...]
) -> tuple[VersionCounts, VersionCounts]:
    """Counts of the stable version and of the candidate since the share was set."""
    now = {one.version: one for one in counts}
    before = {one.version: one for one in rollout.counts}
    usual, new = (
        counted_since(now.get(name, VersionCounts(version=name)), before.get(name))
        for name in (stable, rollout.candidate)
    )
    return usual, new


def _held(rollout: Rollout, usual: VersionCounts, new: VersionCounts, stable: str, seen: RolloutSeen) -> Rollout:
    """Go on where the dwell of a share that is carried is over. usual, new: counts of both versions."""
    policy, now, held_s = rollout.policy, seen.now, seen.now - rollout.since
    known, needed_answers = new.finished, policy.answers_needed(seen.target)
    if rollout.is_in_shadow:
        known, needed_answers = new.compared, policy.least_requests
    is_over = held_s >= rollout.most_held_s
    if held_s < rollout.dwell_s or not (known >= needed_answers or is_over):
        too_slow = judge_carried(rollout, usual, new) if held_s >= MOST_DWELLS * rollout.dwell_s else None
        return rollout if too_slow is None else aborted(rollout, now, too_slow)
    if rollout.is_in_shadow:
        return _compared(rollout, new, now)
    if (fault := judge_carried(rollout, usual, new)) is not None:
        return aborted(rollout, now, fault) if held_s >= MOST_DWELLS * rollout.dwell_s else rollout
    if policy.least_answers is not None and known < needed_answers:
        return aborted(rollout, now, f"{known:,} of {needed_answers:,} answers came within a week")
    whole = {one.version: one for one in rollout.counted_before}.get(stable)
    before = next((counted_since(one, whole) for one in seen.counts if one.version == stable), usual)
    if (fault := judge_step(_control(before, usual, new), new, seen.target)) is not None:
        # misses come in bursts, which the test does not know: one bad stretch is no proof, a second one is
        return aborted(rollout, now, fault) if rollout.is_doubted else _doubted(rollout, seen, fault)
    return _next_step(rollout, now, evidence_sentence(known, seen.target))


def _doubted(rollout: Rollout, seen: RolloutSeen, fault: str) -> Rollout:
    """The same step once more, judged by what comes from now on."""
    reason = f"{fault}; the step is held once more"
    return replace(rollout, is_doubted=True, since=seen.now, counts=seen.counts, reason=reason)


def judge_step(stable: VersionCounts, candidate: VersionCounts, target: float) -> str | None:
    """Why the candidate misses the objective more often than it may, for people; None where it is not known to.

    It may miss as often as the target allows, or as the stable version did. stable: as `_control` has it;
    candidate: counts of the step that ends. The counts are looked at once: `judge` looks again and again, for what
    is much worse.
    """
    allowed = max(1.0 - target, stable.missed_share)
    if not candidate.finished or candidate.missed <= most_missed(candidate.finished, allowed):
        return None
    return (
        f"misses too often: {candidate.missed:,} of its {candidate.finished:,} requests missed the objective "
        f"({share_words(candidate.missed_share, 1)}); {share_words(1.0 - target, 1)} may, and "
        f"{share_words(stable.missed_share, 1)} of the stable version's did"
    )


def _control(before: VersionCounts, usual: VersionCounts, candidate: VersionCounts) -> VersionCounts:
    """The stable version's counts since the rollout began, or those of the same step where it missed more often.

    A bad minute is no fault of the candidate where both versions had it. A step counts only where the stable
    version gave most of its answers: the few of a last step are those that the candidate did not take in time.
    """
    is_known = usual.finished >= candidate.finished
    return usual if is_known and usual.missed_share > before.missed_share else before


def judge_carried(rollout: Rollout, stable: VersionCounts, candidate: VersionCounts) -> str | None:
    """Why the candidate carries too little of its share, for people; None where it is not known to.

    What its instances do not admit in time the stable version answers: none of that counts against the candidate.
    """
    requests = stable.finished + candidate.finished
    expected = rollout.weight * requests
    if expected < rollout.policy.least_requests or candidate.finished >= LEAST_CARRIED * expected:
        return None
    answered = candidate.finished / requests
    return (
        f"too slow for its share: it answered {share_words(answered, 1)}, not {share_words(rollout.weight)}, "
        "of the requests, its instances did not take the others in time"
    )


def _next_step(rollout: Rollout, now: float, evidence: str) -> Rollout:
    """The step after one whose dwell is over. evidence: what its answers could tell."""
    step = rollout.step + 1
    if step == len(rollout.policy.steps):
        return _promoted(rollout, now, f"; {evidence}")
    text = f"{_preparing(rollout.policy.steps[step])}; {evidence}"
    return replace(rollout, phase=RolloutPhase.PREPARING, step=step, since=now, reason=text, is_doubted=False)


def _compared(rollout: Rollout, candidate: VersionCounts, now: float) -> Rollout:
    """The first step, or the end of a rollout that has none, once answers were compared for the dwell."""
    verdict = shadow_verdict(rollout, candidate)
    if (fault := judge_shadow(rollout, candidate, least_differing=1)) is not None:
        return aborted(replace(rollout, verdict=verdict), now, fault)
    after = replace(rollout, verdict=verdict, since=now, counts=())
    if not rollout.policy.steps:
        return replace(after, phase=RolloutPhase.COMPARED, reason=verdict, requested=())
    reason = f"{verdict}; {_preparing(after.share)}"
    return replace(after, phase=RolloutPhase.PREPARING, reason=reason)


def judge_shadow(rollout: Rollout, candidate: VersionCounts, *, least_differing: int | None = None) -> str | None:
    """Why the candidate's answers differ too often, for people; None where they are not known to.

    candidate: counts since copies were sent. least_differing: differing answers before their share is judged; the
    policy's where it is None.
    """
    most = rollout.policy.most_differing
    least = rollout.policy.least_missed if least_differing is None else least_differing
    if most is None or candidate.differing < least or candidate.differing_share <= most:
        return None
    return f"answers differ: {shadow_sentence(candidate)}"


def shadow_verdict(rollout: Rollout, candidate: VersionCounts) -> str:
    """The outcome of a comparison, for people."""
    if candidate.compared < rollout.policy.least_requests:
        word = "too few answers to judge by"
    elif candidate.differing_share <= (rollout.policy.most_differing or 0.0):
        word = "answers agree"
    else:
        word = "answers differ"
    return f"{word}: {shadow_sentence(candidate)}"


def judge(
    rollout: Rollout, stable: VersionCounts, candidate: VersionCounts, target: float, objective_s: float
) -> str | None:
    """Why the candidate is worse than the stable version, for people; None where it is not known to be.

    stable, candidate: counts since the share was set. target: share of the requests that must be in time.
    objective_s: their latency objective.
    """
    policy = rollout.policy
    budget = max(1.0 - target, EXACT)
    burn = candidate.missed_share / budget
    # of a low target so many times the budget is more than all: halfway to that is bad enough
    too_many = min(policy.burn_rate * budget, (1.0 + budget) / 2.0)
    is_burning = candidate.missed_share >= too_many and candidate.missed_share > stable.missed_share
    if is_burning and candidate.missed >= policy.least_missed:
        return (
            f"burn rate {burn:.1f}: {share_words(candidate.missed_share, 1)} of its requests missed the "
            f"objective, {share_words(stable.missed_share, 1)} of the stable version's"
        )
    is_failing = candidate.failed_share > stable.failed_share + policy.error_share
    if is_failing and candidate.failed >= policy.least_missed:
        return (
            f"error share: {share_words(candidate.failed_share, 1)} of its requests failed, "
            f"{share_words(stable.failed_share, 1)} of the stable version's"
        )
    slow_s = max(policy.latency_factor * stable.mean_latency_s, stable.mean_latency_s + NOTICED * objective_s)
    is_known = min(stable.answered, candidate.answered) >= policy.least_requests
    if is_known and candidate.mean_latency_s > slow_s:
        return (
            f"latency: {1000 * candidate.mean_latency_s:.0f} ms on average, the stable version's "
            f"{1000 * stable.mean_latency_s:.0f} ms"
        )
    return None


def _promoted(rollout: Rollout, now: float, evidence: str = "") -> Rollout:
    return replace(
        rollout,
        phase=RolloutPhase.PROMOTED,
        weight=1.0,
        since=now,
        reason=f"has all traffic{evidence}",
        requested=(),
        counts=(),
    )


def _longest_s(rollout: Rollout) -> float:
    """After this time a rollout ends whatever happens: each step may have lost its instances once."""
    policy = rollout.policy
    hold_s = MOST_DWELLS * policy.dwell_s if policy.least_answers is None else LONGEST_S
    held_s = [hold_s] * len(policy.steps) + [MOST_DWELLS * policy.shadow_dwell_s] * (policy.shadow > 0.0)
    return 2.0 * sum(policy.ready_within_s + one for one in held_s)


def _preparing(share: float) -> str:
    return f"starts instances for {share_words(share)} of the requests"


def _never_ready(rollout: Rollout, lacking: Mapping[str, int], ready: Counter[str]) -> str:
    are = ", ".join(f"{ready[name]} of {count} {name}" for name, count in lacking.items())
    why = f" (the last launch was refused: {rollout.refused})" if rollout.refused else ""
    return f"not ready within {rollout.policy.ready_within_s:g} s: {are or 'no offering to launch'}{why}"


def _launches(rollout: Rollout, versions: ModelVersions, seen: RolloutSeen) -> tuple[Rollout, tuple[Launch, ...]]:
    """Launch what the step's share lacks."""
    if rollout.is_over or seen.now < rollout.hold_until:
        return rollout, ()
    stable = _counted(_serving(seen.fleet, versions.stable, versions.stable))
    have = _counted(_serving(seen.fleet, rollout.candidate, versions.stable))
    for item in rollout.requested:
        have[item.offering] += item.waiting
    orders, asked = [], list(rollout.requested)
    number = rollout.launches
    for name, count in needed(rollout, stable, seen).items():
        if (missing := count - have[name]) > 0:
            number += 1
            item = VersionLaunch(token=f"r{rollout.id}-{number}", offering=name, count=missing, at=seen.now)
            asked.append(item)
            orders.append(
                _launch(
                    item, rollout.candidate, f"{share_words(rollout.share)} of version {shown(rollout.candidate)}"
                )
            )
    return replace(rollout, requested=tuple(asked), launches=number), tuple(orders)


def _launch(item: VersionLaunch, candidate: str, reason: str) -> Launch:
    return Launch(token=item.token, reason=reason, offering=item.offering, count=item.count, version=candidate)


def _drains(versions: ModelVersions, seen: RolloutSeen) -> tuple[Drain, ...]:
    """Drain what serves for a version that takes no requests any more.

    What an aborted one bounces, the stable one takes; what an old one bounces, nobody does.
    """
    rollout = versions.rollout
    if rollout is not None and rollout.phase is RolloutPhase.PROMOTED and seen.now < rollout.since + HEARD_S:
        return ()
    names = tuple(
        i.id for i in seen.fleet if i.role is Role.SERVING and i.stays and versions.is_retired(i.version)
    )
    if not names:
        return ()
    reason = f"their version is retired; {shown(versions.stable)} is the stable one"
    return (Drain(token=f"v{shown(versions.stable)}-{names[0]}", reason=reason, instances=names),)
