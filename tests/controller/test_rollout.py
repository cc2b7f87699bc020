"""A rollout's moves: a share is given once it can be carried, and an abort gives everything back at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.rollout import (
    HEARD_S,
    REQUEST_TIMEOUT_S,
    RolloutSeen,
    advance,
    fallback_of,
    judge,
    obey,
    unsubmitted,
)
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import Drain, Launch, LaunchRefused, Order, RefusalCause
from mark.domain.models.versions import (
    LONGEST_S,
    CanaryPolicy,
    ModelVersions,
    Rollout,
    RolloutCommand,
    RolloutPhase,
    RolloutVerb,
    VersionCounts,
    counted_since,
)
from tests.planner.builders import offering

OLD, NEW = "aaaa", "bbbb"
POLICY = CanaryPolicy(dwell_s=60.0, ready_within_s=300.0, least_requests=10)
START = RolloutCommand(id="1", verb=RolloutVerb.START, candidate=NEW, policy=POLICY)
ABORT = RolloutCommand(id="2", verb=RolloutVerb.ABORT)
PROMOTE = RolloutCommand(id="3", verb=RolloutVerb.PROMOTE)
STEP_S = 10.0


def running(version: str, count: int, *, offering: str = "small", token: str = "t") -> list[Instance]:
    return [
        Instance(
            id=f"i-{version}-{offering}-{number}",
            offering=offering,
            state=InstanceState.READY,
            version=version,
            token=token,
        )
        for number in range(count)
    ]


@dataclass
class World:
    """A fleet that does what it is told: an instance is ready `boots` moves after its launch, or never."""

    versions: ModelVersions = field(default_factory=lambda: ModelVersions(model="m", stable=OLD))
    stable: list[Instance] = field(default_factory=lambda: running(OLD, 4))
    launched: list[tuple[Instance, int]] = field(default_factory=list)
    boots: int = 2
    now: float = 1000.0
    moves: int = 0
    answered: dict[str, int] = field(default_factory=dict)
    late_share: dict[str, float] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    differing_share: float = 0.0
    compared: int = 0
    shadowed_moves: int = 0
    #: share of its requests that the candidate admits; the stable version answers the others
    admits: float = 1.0
    #: instances of its own that carry what shared ones take
    shared: int = 0

    @property
    def fleet(self) -> FleetView:
        booted = [
            replace(one, state=InstanceState.READY if self.moves >= at else InstanceState.PENDING)
            for one, at in self.launched
        ]
        return FleetView(instances=tuple(i for i in (*self.stable, *booted) if i.id not in self.drained))

    @property
    def counts(self) -> tuple[VersionCounts, ...]:
        return tuple(
            VersionCounts(
                version=name,
                answered=count,
                late=round(count * self.late_share.get(name, 0.0)),
                compared=self.compared * (name == NEW),
                differing=round(self.compared * self.differing_share) * (name == NEW),
            )
            for name, count in sorted(self.answered.items())
        )

    @property
    def rollout(self) -> Rollout:
        assert self.versions.rollout is not None
        return self.versions.rollout

    def ready(self, version: str) -> int:
        return sum(i.version == version and i.state is InstanceState.READY for i in self.fleet)

    def command(self, command: RolloutCommand) -> None:
        self.versions = obey(self.versions, command, self.now)

    def move(
        self, *, rps: float = 10.0, refused: tuple[LaunchRefused, ...] = (), may_launch: bool = True
    ) -> Sequence[Order]:
        self.now += STEP_S
        self.moves += 1
        weight = self.versions.weight
        self.compared += round(rps * STEP_S * self.versions.shadow)
        self.shadowed_moves += self.versions.shadow > 0
        new = weight * self.admits
        for name, share in ((self.versions.stable, 1 - new), (self.versions.candidate, new)):
            self.answered[name] = self.answered.get(name, 0) + round(rps * STEP_S * share)
        seen = RolloutSeen(
            now=self.now,
            fleet=self.fleet,
            counts=self.counts,
            target=0.98,
            objective_s=1.0,
            fallback="small",
            shared=self.shared,
            refused=refused,
            may_launch=may_launch,
        )
        made = advance(self.versions, seen)
        self.versions = made.versions
        for order in made.orders:
            if isinstance(order, Launch):
                assert order.version == self.rollout.candidate
                self.launched += [
                    (
                        Instance(
                            id=f"i-{order.token}-{number}",
                            offering=order.offering,
                            state=InstanceState.PENDING,
                            version=order.version,
                            token=order.token,
                        ),
                        self.moves + self.boots,
                    )
                    for number in range(order.count)
                ]
            else:
                assert isinstance(order, Drain)
                self.drained.update(order.instances)
        return made.orders

    def until_over(self, most: int = 5000, rps: float = 10.0) -> None:
        for _ in range(most):
            if self.rollout.is_over:
                return
            self.move(rps=rps)
        raise AssertionError("a rollout that never ends")


def test_it_goes_by_steps_and_the_new_version_is_the_stable_one_at_last() -> None:
    world = World()
    world.command(START)
    weights = []
    while not world.rollout.is_over:
        world.move()
        weights.append(world.versions.weight)
    assert list(dict.fromkeys(weights[:-1])) == [0.0, 0.05, 0.25, 1.0]
    assert (world.rollout.phase, world.versions.stable) == (RolloutPhase.PROMOTED, NEW)
    assert world.ready(NEW) == 4
    promoted_at = world.now
    while world.ready(OLD):
        world.move()
    assert world.now == promoted_at + HEARD_S, "gateways hear of it before the old instances go"


@given(
    stable=st.integers(0, 12),
    other=st.integers(0, 3),
    boots=st.integers(0, 40),
    steps=st.lists(st.floats(0.01, 0.99), unique=True, max_size=4).map(lambda some: (*sorted(some), 1.0)),
    late=st.floats(0, 1),
    order=st.sampled_from([None, ABORT, PROMOTE]),
    at=st.integers(0, 60),
    lost_at=st.integers(0, 60),
    shared=st.integers(0, 3),
)
def test_shares_are_carried_before_they_are_given_and_every_rollout_ends(
    *,
    stable: int,
    other: int,
    boots: int,
    steps: tuple[float, ...],
    late: float,
    order: RolloutCommand | None,
    at: int,
    lost_at: int,
    shared: int,
) -> None:
    own = [*running(OLD, stable), *running(OLD, other, offering="large")]
    world = World(stable=own, boots=boots, shared=shared)
    world.late_share[NEW] = late
    world.command(replace(START, policy=replace(POLICY, steps=steps)))
    for number in range(5000):
        before, was_over = world.versions.weight, world.rollout.is_over
        if order is not None and number == at:
            world.command(order)
            assert order is not ABORT or world.versions.weight == 0.0, "an abort waits for nothing"
        if number == lost_at:
            world.launched = world.launched[1:]
        orders = world.move()
        drained = {name for one in orders if isinstance(one, Drain) for name in one.instances}
        new = [i for i in world.fleet if i.version == NEW and i.state is InstanceState.READY]
        ready = {name: sum(i.offering == name for i in new) for name in ("small", "large")}
        gained = world.versions.weight > before or (world.rollout.phase is RolloutPhase.PROMOTED and not was_over)
        if gained:
            share = world.rollout.share
            small = stable + shared
            assert ready["small"] >= (math.ceil(share * small - 1e-9) if small or other else 1)
            assert ready["large"] >= math.ceil(share * other - 1e-9)
        if world.rollout.phase is not RolloutPhase.PROMOTED:
            assert world.ready(OLD) == stable + other, "the stable version shrinks only after the promotion"
            assert world.versions.stable == OLD
        else:
            assert world.versions.stable == NEW
            assert not {i.id for i in world.fleet if i.version == NEW} & drained
        if world.rollout.phase is RolloutPhase.ABORTED:
            assert world.versions.weight == 0.0
            assert not any(isinstance(one, Launch) for one in orders)
        if world.rollout.is_over and not [i for i in world.fleet if world.versions.is_retired(i.version)]:
            return
    raise AssertionError("a rollout that never ends")


def test_what_shared_instances_take_is_carried_by_whatever_does_it_most_cheaply() -> None:
    small, large = (
        offering(name, usd_per_hour=usd, rps=rps) for name, usd, rps in (("small", 1.0, 4.0), ("large", 3.5, 20.0))
    )
    asked = (0.0, 4.0, 8.0, 20.0, 21.0)
    found = [fallback_of([small, large], rps) for rps in asked]
    assert found == [(small.name, 0), (small.name, 1), (small.name, 2), (large.name, 1), (small.name, 6)]
    assert fallback_of([], 8.0) == ("", 0)


def test_a_version_that_never_becomes_ready_is_aborted_and_its_instances_go() -> None:
    world = World(boots=10_000)
    world.command(START)
    world.until_over()
    assert world.rollout.phase is RolloutPhase.ABORTED
    assert "0 of 1 small" in world.rollout.reason
    world.move()
    assert world.ready(OLD) == len(world.fleet) == 4


@pytest.mark.parametrize("command", [None, PROMOTE])
@pytest.mark.parametrize("moves", [1, 4, 15])
def test_a_pause_or_a_budget_that_is_reached_leaves_no_instance_of_the_new_version(
    moves: int, command: RolloutCommand | None
) -> None:
    world = World()
    world.command(START)
    for _ in range(moves):
        world.move()
    if command is not None:
        world.command(command)
    world.stable.clear()  # as its controller sees to
    world.move(may_launch=False)
    assert (world.rollout.phase, world.versions.stable) == (RolloutPhase.ABORTED, OLD)
    assert "paused" in world.rollout.reason
    assert not world.fleet


def test_refusals_are_told_and_waited_for() -> None:
    world = World(boots=10_000)
    world.command(START)
    [launch] = world.move()
    world.launched.clear()
    no = LaunchRefused(token=launch.token, offering="small", count=1, cause=RefusalCause.QUOTA, at=0, code="Limit")
    assert not world.move(refused=(no,))
    world.until_over()
    assert "Limit" in world.rollout.reason


def test_a_worse_version_is_aborted_by_burn_rate_errors_or_latency() -> None:
    rollout = Rollout(id="1", before=OLD, candidate=NEW, policy=POLICY, began_at=0.0, since=0.0)
    good = VersionCounts(version=OLD, answered=1000, late=5, latency_us=50_000_000)

    def verdict(**counts: int) -> str | None:
        return judge(rollout, good, VersionCounts(version=NEW, **counts), 0.98, 1.0)

    assert verdict(answered=100, late=1, latency_us=6_000_000) is None
    assert "burn rate" in (verdict(answered=100, late=21, latency_us=5_000_000) or "")
    assert "error share" in (verdict(answered=190, failed=12, latency_us=10_000_000) or "")
    assert "latency" in (verdict(answered=100, latency_us=9_000_000) or "")
    assert verdict(answered=5, failed=9) is None, "too few to judge by"
    assert verdict(failed=10) is not None, "a version that only fails is known at once"
    assert verdict(answered=9, latency_us=90_000_000) is None
    both = replace(good, late=500)
    assert (
        judge(rollout, both, VersionCounts(version=NEW, answered=100, late=40, latency_us=5_000_000), 0.98, 1.0)
        is None
    )


@given(target=st.floats(0.5, 0.999))
def test_a_candidate_that_misses_nearly_all_burns_whatever_the_target(target: float) -> None:
    rollout = Rollout(id="1", before=OLD, candidate=NEW, policy=CanaryPolicy(), began_at=0.0, since=0.0)
    good = VersionCounts(version=OLD, answered=10_000, latency_us=1_000_000_000)

    def verdict(missed: int) -> str | None:
        new = VersionCounts(version=NEW, answered=10_000, late=missed, latency_us=1_000_000_000)
        return judge(rollout, good, new, target, 1.0)

    assert "burn rate" in (verdict(9_000) or "")
    assert verdict(int(10_000 * (1.0 - target))) is None, "within the objective"


@pytest.mark.parametrize("admits", [0.0, 0.1, 0.4])
def test_a_candidate_that_leaves_most_of_its_share_to_the_stable_version_is_not_promoted(admits: float) -> None:
    """Its instances admit what they answer in time: one that is too slow may answer well, and next to nothing."""
    world = World(admits=admits)
    world.command(START)
    world.until_over()
    assert world.rollout.phase is RolloutPhase.ABORTED
    assert "of the requests, its instances did not take the others in time" in world.rollout.reason
    assert world.ready(OLD) == 4


def test_a_candidate_that_answers_most_of_its_share_goes_on_and_few_requests_say_nothing() -> None:
    world = World(admits=0.7)
    world.command(START)
    world.until_over()
    assert world.rollout.phase is RolloutPhase.PROMOTED
    quiet = World(admits=0.0)
    quiet.command(START)
    for _ in range(5000):
        quiet.move(rps=0.001)
    assert quiet.rollout.phase is RolloutPhase.PROMOTED


def test_a_version_that_misses_twice_as_often_as_it_may_is_aborted_where_the_answers_can_tell() -> None:
    for late, phase in ((0.04, RolloutPhase.ABORTED), (0.02, RolloutPhase.PROMOTED)):
        world = World(late_share={NEW: late})
        world.command(START)
        world.until_over(rps=100.0)
        assert world.rollout.phase is phase
        assert ("misses too often" in world.rollout.reason) == (phase is RolloutPhase.ABORTED)
    assert (
        "answers, a version that misses the objective twice as often as it may would pass" in world.rollout.reason
    )


def test_one_bad_stretch_holds_a_step_once_more_and_is_no_proof() -> None:
    world = World()
    world.command(START)
    while world.rollout.phase is not RolloutPhase.DWELLING:
        world.move(rps=100.0)
    calm = world.answered[NEW]
    while not world.rollout.is_doubted:
        count = world.answered[NEW]
        world.late_share[NEW] = 0.1 * (count - calm) / max(1, count)
        world.move(rps=100.0)
        assert world.rollout.step == 0
    assert "misses too often" in world.rollout.reason
    bad = world.late_share[NEW] * world.answered[NEW]
    while not world.rollout.is_over:
        world.late_share[NEW] = bad / world.answered[NEW]
        world.move(rps=100.0)
    assert world.rollout.phase is RolloutPhase.PROMOTED


@pytest.mark.parametrize("late_old", [0.1, 0.0])
def test_a_version_is_not_aborted_for_a_bad_time_that_the_stable_one_had_as_well(late_old: float) -> None:
    world = World()
    world.command(START)
    while (world.rollout.step, world.rollout.phase) != (1, RolloutPhase.DWELLING):
        world.move(rps=100.0)
    calm = dict(world.answered)
    while world.rollout.phase is RolloutPhase.DWELLING:
        for name, late in ((OLD, late_old), (NEW, 0.1)):
            count = world.answered[name]
            world.late_share[name] = late * (count - calm[name]) / count
        world.move(rps=100.0)
    assert ("misses too often" in world.rollout.reason) == (late_old == 0.0)


@pytest.mark.parametrize(("rps", "held_s"), [(400.0, 60.0), (100.0, 160.0), (10.0, 240.0)])
def test_a_step_lasts_until_its_answers_can_tell_or_for_four_dwells(rps: float, held_s: float) -> None:
    world, held = World(), []
    world.command(START)
    for _ in range(100):
        world.move(rps=rps)
        if world.rollout.step:
            break
        held += [world.now] * (world.rollout.phase is RolloutPhase.DWELLING)
    assert world.now - held[0] == held_s, "781 answers of 5 % of the requests"


def test_a_share_is_held_for_the_answers_that_are_asked_for_and_for_a_week_at_most() -> None:
    policy = replace(POLICY, steps=(0.5, 1.0), least_answers=50)
    world, quiet = World(), World()
    world.command(replace(START, policy=policy))
    while not world.rollout.step and world.moves < 100:
        world.move(rps=0.2)  # one answer of each version
    assert world.moves >= 50, "for many dwells"
    assert "with 50 answers, a version that misses the objective twice" in world.rollout.reason
    quiet.command(replace(START, policy=policy))
    while not quiet.rollout.is_over and quiet.moves < 1000:
        quiet.now += 3600.0 * (quiet.rollout.phase is RolloutPhase.DWELLING)
        quiet.move(rps=0.0)
    assert (quiet.rollout.phase, quiet.versions.stable) == (RolloutPhase.ABORTED, OLD)
    assert quiet.rollout.reason == "0 of 50 answers came within a week"
    assert LONGEST_S < quiet.now - quiet.rollout.began_at < 1.1 * LONGEST_S


def test_a_stable_fleet_that_grows_all_the_while_is_replaced() -> None:
    world = World(boots=15)
    world.command(replace(START, policy=CanaryPolicy()))
    for number in range(1000):
        if world.rollout.is_over:
            break
        if number % 24 == 23:  # every four minutes, and each boots for two and a half
            name = f"i-{OLD}-more-{number}"
            booting = Instance(id=name, offering="small", state=InstanceState.PENDING, version=OLD, token="t")
            world.launched.append((booting, world.moves + world.boots))
        world.move()
    assert world.rollout.phase is RolloutPhase.PROMOTED
    assert world.now - world.rollout.began_at < 3600


def test_lost_instances_of_the_last_step_are_waited_for_and_for_no_longer_than_they_may_take() -> None:
    world = World()
    world.command(START)
    while world.versions.weight < 1.0:
        world.move()
    world.launched, world.boots = world.launched[1:], 12
    while world.rollout.phase is RolloutPhase.DWELLING:
        assert world.rollout.weight == 1.0
        world.move()
    assert world.rollout.phase is RolloutPhase.PROMOTED
    assert world.ready(NEW) == 4

    gone = World()
    gone.command(START)
    while gone.versions.weight < 1.0:
        gone.move()
    gone.launched, gone.boots = [], 10_000
    gone.until_over()
    assert gone.rollout.phase is RolloutPhase.ABORTED
    assert "0 of 4 small" in gone.rollout.reason


def test_a_candidate_is_judged_while_the_next_step_s_instances_start() -> None:
    world = World()
    world.command(START)
    while world.versions.weight < 0.25:
        world.move()
    world.boots = 10_000
    while world.rollout.phase is RolloutPhase.DWELLING:
        world.move()
    assert (world.rollout.phase, world.versions.weight) == (RolloutPhase.PREPARING, 0.25)
    world.late_share[NEW] = 1.0
    since = world.now
    world.until_over()
    assert "burn rate" in world.rollout.reason
    assert world.now - since < POLICY.ready_within_s


def test_commands_are_carried_out_once_and_only_where_they_mean_something() -> None:
    world = World()
    world.command(ABORT)
    assert world.versions.rollout is None
    world.command(START)
    begun = world.rollout
    world.command(START)
    world.command(replace(START, id="4", candidate="cccc"))
    assert world.rollout == begun, "one at a time"
    world.command(ABORT)
    world.command(replace(ABORT, id="5"))
    assert world.rollout.phase is RolloutPhase.ABORTED
    world.command(replace(START, id="6", candidate=OLD))
    assert world.rollout.phase is RolloutPhase.ABORTED, "it is the stable version already"


def test_a_few_milliseconds_are_no_longer_latency() -> None:
    rollout = Rollout(id="1", before=OLD, candidate=NEW, began_at=0.0, since=0.0, policy=POLICY)
    usual, slow = (
        VersionCounts(version=name, answered=1000, latency_us=1000 * mean_us)
        for name, mean_us in ((OLD, 2_000), (NEW, 6_000))
    )
    assert judge(rollout, usual, slow, 0.98, 2.0) is None
    assert judge(rollout, usual, slow, 0.98, 0.1) is not None


def test_a_candidate_has_the_function_that_is_free_and_keeps_it_when_it_is_promoted() -> None:
    world, asked = World(), []
    for number, (verb, names) in enumerate(
        ((ABORT, ("f_2", "f")), (PROMOTE, ("f_2", "f_2")), (ABORT, ("f", "f_2")), (PROMOTE, ("f", "f")))
    ):
        stable = world.versions.stable
        candidate = f"{number:012x}"
        world.command(replace(START, id=f"s{number}", candidate=candidate))
        world.move()
        before = world.versions.function_of(candidate, "f")
        assert {before, world.versions.function_of(stable, "f")} == {"f", "f_2"}
        world.command(replace(verb, id=f"e{number}"))
        world.until_over()
        asked.append((before, world.versions.function_of(world.versions.stable, "f")))
        assert asked[-1] == names


def test_a_promotion_by_command_waits_for_the_instances_alone() -> None:
    world = World()
    world.command(START)
    world.move()
    world.command(PROMOTE)
    moves = world.moves
    world.until_over()
    assert world.rollout.phase is RolloutPhase.PROMOTED
    assert world.ready(NEW) == 4
    assert world.moves - moves <= 2 + world.boots


def test_launches_of_a_crashed_controller_are_submitted_again_under_their_tokens() -> None:
    world = World(boots=10_000)
    world.command(START)
    [launch] = world.move()
    world.launched.clear()
    [again] = unsubmitted(world.versions.rollout, world.versions)
    assert replace(again, reason="") == replace(launch, reason="")
    assert not world.move(), "it is still waited for"


def test_counts_that_a_store_has_lost_are_not_taken_from_a_version() -> None:
    before = VersionCounts(version=NEW, answered=100, late=5, failed=7, latency_us=900)
    now = VersionCounts(version=NEW, answered=90, late=6, failed=2, latency_us=1000)
    assert counted_since(now, before) == VersionCounts(version=NEW, late=1, latency_us=100)


SHADOW = replace(POLICY, shadow=0.5, shadow_dwell_s=100.0)


def shadowed(policy: CanaryPolicy, *, differing: float = 0.0, rps: float = 10.0, boots: int = 2) -> World:
    """A world whose rollout begins with a shadow, until it is over."""
    world = World(boots=boots, differing_share=differing)
    world.command(replace(START, policy=policy))
    for _ in range(5000):
        if world.rollout.is_over:
            return world
        world.move(rps=rps)
        assert world.versions.shadow in (0.0, policy.shadow)
        if world.versions.shadow:
            assert world.versions.weight == 0.0, "copies come before the first step"
            assert world.ready(NEW) >= math.ceil(policy.shadow * 4 - 1e-9), "and once they can be carried"
    raise AssertionError("a rollout that never ends")


def test_answers_are_compared_before_the_first_step() -> None:
    world = shadowed(SHADOW)
    assert world.rollout.phase is RolloutPhase.PROMOTED
    assert world.rollout.verdict.startswith("answers agree: 0 of ")
    assert world.shadowed_moves == 10, "for the dwell"


def test_a_rollout_without_steps_ends_with_a_verdict_and_its_instances_go() -> None:
    world = shadowed(replace(SHADOW, steps=()), differing=0.2)
    assert (world.rollout.phase, world.versions.stable) == (RolloutPhase.COMPARED, OLD)
    assert world.rollout.reason == world.rollout.verdict
    assert world.rollout.verdict.startswith("answers differ: 100 of 500 compared differ (20.0 %)")
    world.move()
    assert (world.ready(NEW), world.ready(OLD)) == (0, 4)
    few = shadowed(replace(SHADOW, steps=()), rps=0.0)
    assert few.rollout.verdict.startswith("too few answers to judge by")
    assert few.shadowed_moves == 40, "four dwells, without answers"


@pytest.mark.parametrize(
    ("most", "differing", "aborts"), [(0.1, 0.2, True), (0.0, 0.01, True), (0.2, 0.1, False), (None, 1.0, False)]
)
def test_too_many_differing_answers_abort(most: float | None, differing: float, aborts: bool) -> None:
    world = shadowed(replace(SHADOW, most_differing=most), differing=differing)
    assert (world.rollout.phase is RolloutPhase.ABORTED) == aborts
    assert ("answers differ" in world.rollout.reason) == aborts
    assert world.versions.stable == (OLD if aborts else NEW)


@given(
    st.floats(0, 1),
    st.sampled_from([0.01, 0.3, 1.0]),
    st.booleans(),
    st.sampled_from([None, ABORT, PROMOTE]),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_every_shadow_ends_and_costs_no_client(
    differing: float, share: float, alone: bool, order: RolloutCommand | None, at: int, lost_at: int
) -> None:
    world = World(differing_share=differing)
    steps = () if alone else POLICY.steps
    policy = replace(SHADOW, shadow=share, most_differing=0.5, steps=steps)
    world.command(replace(START, policy=policy))
    for number in range(5000):
        if order is not None and number == at:
            world.command(order)
            assert world.versions.shadow == 0.0, "a command ends the comparison at once"
        if number == lost_at:
            world.launched = world.launched[1:]
        world.move()
        assert not (world.versions.shadow and world.versions.weight)
        if world.rollout.is_over:
            break
    ends = {RolloutPhase.ABORTED, RolloutPhase.COMPARED if alone else RolloutPhase.PROMOTED}
    assert world.rollout.phase in ends | ({RolloutPhase.PROMOTED} if order is PROMOTE else set())
    assert world.versions.stable == (NEW if world.rollout.phase is RolloutPhase.PROMOTED else OLD)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (CanaryPolicy(dwell_s=math.nan), "--dwell"),
        (CanaryPolicy(ready_within_s=1e9), "--ready-within"),
        (CanaryPolicy(shadow_dwell_s=-1.0), "--shadow-dwell"),
        (CanaryPolicy(steps=(0.5,)), "5,25,100"),
        (CanaryPolicy(steps=(0.5, 0.5, 1.0)), "5,25,100"),
        (CanaryPolicy(steps=(0.0, 1.0)), "5,25,100"),
        (CanaryPolicy(steps=(0.5, 2.0)), "5,25,100"),
        (CanaryPolicy(steps=()), "--shadow 10"),
        (CanaryPolicy(shadow=math.nan), "0 to 100"),
        (CanaryPolicy(tolerance=math.nan), "--tolerance"),
        (CanaryPolicy(tolerance=math.inf), "--tolerance"),
        (CanaryPolicy(most_differing=math.nan), "--most-differing"),
        (CanaryPolicy(shadow=1.5), "0 to 100"),
        (CanaryPolicy(shadow=-1.0), "0"),
    ],
)
def test_steps_rise_to_all_a_shadow_is_a_share_and_times_end(policy: CanaryPolicy, says: str) -> None:
    with pytest.raises(Misconfigured, match=says):
        policy.check()


def test_instances_without_a_version_are_the_stable_one_s() -> None:
    world = World(stable=running("", 4, offering="large"))
    world.command(START)
    [launch] = world.move()
    assert isinstance(launch, Launch)
    assert (launch.offering, launch.count) == ("large", 1)


def test_a_launch_that_never_appears_is_asked_for_again() -> None:
    world = World()
    world.command(replace(START, policy=replace(POLICY, ready_within_s=2 * REQUEST_TIMEOUT_S)))
    made = []
    while len(made) < 2 and not world.rollout.is_over:
        made += [(world.now, order) for order in world.move()]
        world.launched.clear()
    (first_at, first), (second_at, second) = made
    assert isinstance(first, Launch)
    assert isinstance(second, Launch)
    assert second_at - first_at == REQUEST_TIMEOUT_S
