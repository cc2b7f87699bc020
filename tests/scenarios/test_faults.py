"""A service with faults drawn over its AWS calls: nothing lost, nothing orphaned, nothing ordered twice.

Each seed is the life of a service on the emulated account (`service_world.py`), from its start to its end, with
the faults that the seed draws (`drawn_faults.py`). A seed that fails says so, with its faults; the environment
variable `MARK_FAULT_SEEDS` replays it, or lives any others: `MARK_FAULT_SEEDS=17` or `=100:200`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from mark.aws.provision import end_instances
from mark.controller.journal import read_journal
from mark.controller.replay_check import mismatches
from mark.domain.demand import UNIT_S
from mark.domain.errors import MarkError
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import Launch
from mark.domain.models.versions import CanaryPolicy, RolloutCommand, RolloutVerb
from mark.emulator.ec2.machine import MachineState
from mark.store.connect import Link, connect
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import ROLLOUT_COMMAND
from tests.scenarios.drawn_faults import CALM_S, MINUTE_S, QUIET_S, Draw, drawn, rate_at, told
from tests.scenarios.emulated_account import remove_templates
from tests.scenarios.service_world import CANDIDATE, KEYS, MODEL, START_AT, ServiceWorld, service_world

DEFAULT, ALL = 1, 21
"""Lives of the default suite and of all: some ten faults, and more than 200."""
FOUND = (27,)
"""Seeds that found something: an instance that a listing had, and the next one, which lagged, had not."""
UPDATED_AT, RELEASED_AT = 24 * MINUTE_S, 10 * MINUTE_S
NOTICED_AT, TAKEN_AT = 17 * MINUTE_S, 21 * MINUTE_S
CANARY = CanaryPolicy(steps=(0.25, 1.0), dwell_s=60.0, least_answers=50)
SETTLES = 10
DESTROYS, BETWEEN_S = 20, 30.0
"""Attempts of a destroy, whose stacks take minutes to go, and what lies between two."""


def seeds() -> list[object]:
    asked = os.environ.get("MARK_FAULT_SEEDS", "")
    if asked:
        first, _, end = asked.partition(":")
        return list(range(int(first), int(end or int(first) + 1)))
    return [
        *range(DEFAULT),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(DEFAULT, ALL), *FOUND)),
    ]


@pytest.fixture(scope="module")
def link(redis: EmbeddedRedis) -> Iterator[Link]:
    made = connect(redis.url)
    yield made
    made.close()


@pytest.mark.parametrize("seed", seeds())
def test_a_life_with_the_faults_of_a_seed(link: Link, seed: int) -> None:
    live(link, drawn(seed))


def live(link: Link, draw: Draw) -> None:
    """One life; the service is as it should be after a quiet hour, and gone after its end."""
    with service_world(link, rate_at, seed=draw.seed) as world, told(draw, world):
        befall(world, draw)
        world.run(START_AT + RELEASED_AT)
        release(world)
        world.run(START_AT + NOTICED_AT)
        interrupt(world, 0.3)
        world.run(START_AT + TAKEN_AT)
        interrupt(world, 0.2)
        world.run(START_AT + UPDATED_AT)
        update(world)
        world.run(START_AT + CALM_S)
        world.run(START_AT + QUIET_S, 60.0)
        settle(world)
        check_journal(world)
        check_orders(world)
        destroy(world, draw)


def befall(world: ServiceWorld, draw: Draw) -> None:
    """Have the faults happen at their times."""
    for one in draw.troubles:
        world.account.trouble(one, since=START_AT)
    for at, fault in draw.disturbances:
        world.account.clock.at(START_AT + at, lambda _, fault=fault: world.account.disturb(fault))  # type: ignore[misc]
    world.account.lags = [(START_AT + begins, START_AT + ends, lag) for begins, ends, lag in draw.lags]
    world.account.late = [(START_AT + begins, START_AT + ends, lag) for begins, ends, lag in draw.late]
    world.account.silent = [(START_AT + TAKEN_AT - 1.0, START_AT + TAKEN_AT + 1.0)]
    world.dies_at = [START_AT + draw.killed_at]


def release(world: ServiceWorld) -> None:
    """A person starts a rollout of the model's next version."""
    command = RolloutCommand(id="1", verb=RolloutVerb.START, candidate=CANDIDATE, policy=CANARY)
    ROLLOUT_COMMAND.write(world.store, command, MODEL)


def interrupt(world: ServiceWorld, share: float) -> None:
    """AWS takes a part of the spot instances back."""
    machines = world.account.machines
    machines.interrupt(machines.victims(share, machines.ready_spot()))


def update(world: ServiceWorld) -> None:
    """A deploy: what is launched from now on runs another version of the agent; the controller is a new one."""
    world.put_resources("2")
    if world.process is not None:
        world.process.close()
    world.kill("updated")


def settle(world: ServiceWorld) -> None:
    """Check at the next minutes, too: standbys of before the update are still replaced, one at a time."""
    for _ in range(SETTLES - 1):
        try:
            return check_quiet(world)
        except AssertionError:
            world.run(world.wall.at + MINUTE_S, MINUTE_S)
    return check_quiet(world)


def check_quiet(world: ServiceWorld) -> None:
    """After the quiet hour: what there is, is what is planned, tagged, owned, serves, and is seen by everybody."""
    account, process = world.account, world.process
    assert process is not None
    controller = process.controller
    assert controller is not None
    alive = {one.id: one for one in account.alive()}
    drains = {name.decode() for name in world.link.call("SMEMBERS", KEYS.drains[0])}
    awake = {name for name, one in alive.items() if one.state is not MachineState.STOPPED}
    assert not drains & awake, "drained instances are gone, or asleep"
    versions = world.store.versions(MODEL)
    assert versions is not None
    assert versions.rollout is None or versions.rollout.is_over, versions.rollout
    ordered = orders(world)
    by_token = Counter[str]()
    for one in account.ever.values():
        tags = one.tags
        assert tags["mark:service"] == "shop", tags
        assert tags["mark:model"] == MODEL, tags
        by_token[tags["mark:token"]] += 1
    unknown = by_token.keys() - ordered.keys() - {token for token in by_token if token.startswith("r1-")}
    assert not unknown, f"orders of nobody: {unknown}"
    twice = {token: count for token, count in by_token.items() if count > account.asked[token]}
    assert not twice, f"launched twice: {twice}"
    there, planned = Counter[str](), Counter[str]()
    for one in alive.values():
        assert one.life.terminates_at is None, f"{one.id} has a notice for an hour"
        if one.tags["mark:role"] == Role.SERVING.value:
            there[one.offering] += 1
            assert versions.is_stable(one.tags.get("mark:model-version", "")), f"{one.id} is retired"
            agent = world.agents.running.get(one.id)
            assert agent is not None, f"{one.id} has no process"
            assert agent.serving, f"{one.id} does not serve"
    assert controller.state.plan is not None
    for count in controller.state.plan.counts:
        planned[count.offering] += count.count
    assert +there == +planned
    assert {instance.id for instance in controller.fleet} == alive.keys()
    assert controller.state.requested == (), controller.state.requested
    assert not process.controller_troubles, process.controller_troubles
    assert not [one for one in account.messages.values() if one.shown_at < world.wall.at - 600.0], (
        "unread messages"
    )


def check_journal(world: ServiceWorld) -> None:
    """Every request is counted once, and the journal gives the same orders again."""
    traffic, sent = world.store.traffic(MODEL), world.sent
    assert (world.store.arrived(MODEL), traffic.instance, traffic.lambda_) == (
        sent["arrived"],
        sent["instance"],
        sent["lambda_"],
    )
    lines = [list(world.store.journal_lines(MODEL, number)) for number in world.store.journal_segments(MODEL)]
    for segment in lines:
        different = [*mismatches(*read_journal(segment))]
        assert not different, different[0]
    units = [tick.seen.demand for tick in world.journal() if tick.seen.demand is not None]
    begins = [unit.start_at for unit in units]
    assert begins == [begins[0] + UNIT_S * place for place in range(len(begins))], "a minute of load is missing"
    assert sum(unit.count for unit in units) == sum(
        round(5.0 * rate_at(at + 5.0 * window)) for at in begins for window in range(12)
    )


def check_orders(world: ServiceWorld) -> None:
    """Nothing is ordered twice under two names: no launch takes an offering above what was planned for it.

    At the tick before or at this one: a launch that waits is sent again before the tick plans, withdrawn after it.
    """
    for (_, was_stable, before, was_planned), (at, stable, there, planned) in pairwise(world.fleets):
        if stable != was_stable:  # the whole fleet is another one, which the rollout launched
            continue
        for name, count in there.items():
            most = max(was_planned[name], planned[name])
            assert count <= max(before[name], most), f"{count} {name} at {at - START_AT:.0f} s, {most} planned"


def orders(world: ServiceWorld) -> dict[str, int]:
    """Instances that each launch of the journal asked for, by its token."""
    return {
        order.token: order.count for tick in world.journal() for order in tick.orders if isinstance(order, Launch)
    }


def destroy(world: ServiceWorld, draw: Draw) -> None:
    """As `mark destroy` does, again and again while AWS fails: controllers end, then templates, then instances."""
    began_at = world.wall.at
    if world.process is not None:
        world.process.close()
    world.process = None
    for one in draw.destroyed:
        world.account.trouble(one, since=began_at)
    remove_templates()
    there = world.aws()
    for _ in range(DESTROYS):
        try:
            end_instances(there, "shop")
        except MarkError as error:
            world.said.append((world.wall.at, f"destroy: {error}"))
        world.wall.at += BETWEEN_S
        world.account.pass_time()
        world.agents.act()
    there.close()
    assert not [one.id for one in world.account.alive()], "instances outlive their service"
