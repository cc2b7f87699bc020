"""The Cloud port on EC2: what is observed, what orders do, what survives a crash and a throttled AWS."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import FleetSetup, fleet_request, launched_rows, shortfall, unfilled
from mark.aws.ec2.observed import Ec2Row
from mark.aws.errors import REPORTED_AT
from mark.aws.session import Aws
from mark.domain.errors import RetryLater
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import MemberState
from mark.domain.fleet.orders import (
    Drain,
    LaunchFailed,
    LaunchRefused,
    LaunchWithdrawn,
    RebalanceAdvised,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.protocols.events import StateChanged
from tests.aws.builders import (
    OFFERINGS,
    ON_DEMAND,
    SLEEPER,
    SPOT,
    Scene,
    answer,
    asked_for,
    fail,
    fall_short,
    launch,
    scene,
)

SETUP = FleetSetup(service="shop", model="m", run="r1", offerings=OFFERINGS, templates={})


def test_a_launch_is_seen_with_what_it_was_told(there: Scene) -> None:
    there.cloud.submit(launch(2, kind=SPOT.name))
    fleet = there.cloud.observe()

    assert len(fleet) == 2
    for seen in fleet:
        assert (seen.offering, seen.token, seen.role) == (SPOT.name, "t1-1", Role.SERVING)
        assert seen.state is InstanceState.PENDING
        assert seen.launched_at > 0
    raw = there.aws.ec2.describe_instances()["Reservations"][0]["Instances"][0]
    assert raw["InstanceType"] == "c5.large"
    assert raw["InstanceLifecycle"] == "spot"
    tags = {tag["Key"]: tag["Value"] for tag in raw["Tags"]}
    assert tags["mark:service"] == "shop"
    assert tags["mark:run"] == "r1"


def rows_of(there: Scene) -> list[Any]:
    return [row for group in there.aws.ec2.describe_instances()["Reservations"] for row in group["Instances"]]


def test_gateways_are_told_what_is_listed(there: Scene) -> None:
    there.cloud.submit(launch(2))
    assert there.agents.listed == {}
    there.cloud.observe()
    hosts = {row["InstanceId"]: ListedInstance(host=row["PrivateIpAddress"]) for row in rows_of(there)}
    assert there.agents.listed == hosts
    assert len(hosts) == 2


def test_gateways_are_told_of_an_instance_that_runs_before_the_next_tick(there: Scene) -> None:
    there.cloud.submit(launch(1))
    there.cloud.observe()
    first = set(there.agents.listed)
    there.cloud.submit(launch(1, token="t2"))
    assert set(there.agents.listed) == first
    (second,) = {row["InstanceId"] for row in rows_of(there)} - first
    there.send(StateChanged(instance=second, at=1003.0, state="running"))
    there.cloud.poll_events()
    assert set(there.agents.listed) == {*first, second}


def test_agents_say_who_is_ready(there: Scene) -> None:
    there.cloud.submit(launch(3))
    first, second, third = there.ids()
    there.agents.say(first, credits=12.0)
    there.agents.say(second, MemberState.STARTING)
    there.agents.say(third, MemberState.DRAINING, terminates_at=1100.0)
    seen = {instance.id: instance for instance in there.cloud.observe()}

    assert seen[first].state is InstanceState.READY
    assert seen[first].credits == 12.0
    assert seen[second].state is InstanceState.PENDING
    assert seen[third].state is InstanceState.DRAINING
    assert seen[third].terminates_at == 1100.0


def test_what_agents_used_beyond_their_credits_comes_into_the_ledger(there: Scene) -> None:
    there.cloud.submit(launch(1))
    (first,) = there.ids()
    there.agents.say(first, surplus_vcpu_s=400.0)
    there.cloud.observe()
    there.cloud.observe()
    assert [(t.instance, t.surplus_vcpu_s) for t in there.ledger.noted if t.is_reading] == [(first, 400.0)]


def test_another_model_and_service_are_not_seen(there: Scene) -> None:
    there.cloud.submit(launch(1))
    other = scene(again=there, model="other")
    other.cloud.submit(launch(1, kind=SPOT.name))

    assert [instance.offering for instance in there.cloud.observe()] == [ON_DEMAND.name]
    assert [instance.offering for instance in other.cloud.observe()] == [SPOT.name]
    other.cloud.close()


def test_the_same_order_after_a_crash_launches_nothing_twice(there: Scene) -> None:
    fall_short(there.aws, 1, "InsufficientInstanceCapacity")
    there.cloud.submit(launch(3))
    first = there.cloud.drain_facts()
    next_one = scene(again=there)
    next_one.cloud.submit(launch(3))

    assert next_one.ids() == there.ids()
    assert len(next_one.ids()) == 2
    assert next_one.cloud.drain_facts() == first
    assert first == [
        LaunchRefused(
            token="t1-1",
            offering=ON_DEMAND.name,
            count=1,
            cause=RefusalCause.CAPACITY,
            code="InsufficientInstanceCapacity",
            at=1000.0,
        )
    ]
    next_one.cloud.close()


def test_what_was_launched_and_is_never_listed_is_there_for_a_while_and_then_gone(there: Scene) -> None:
    there.cloud.submit(launch(2))
    there.aws.ec2.terminate_instances(InstanceIds=list(there.states()))
    seen = there.cloud.observe()

    assert [(one.token, one.state) for one in seen] == [("t1-1", InstanceState.PENDING)] * 2
    there.clock.at += 119.0
    assert len(there.ids()) == 2
    there.clock.at += 1.0
    there.cloud.observe()
    assert there.ids() == []


def test_a_young_instance_that_a_later_listing_lacks_is_there_until_aws_says_that_it_ended(
    there: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.cloud.submit(launch(2))
    first, second = there.ids()
    there.aws.ec2.terminate_instances(InstanceIds=[second])
    monkeypatch.setattr(there.cloud, "_listed", dict)
    [seen] = there.cloud.observe()
    assert seen.id == first
    there.clock.at = seen.launched_at + 120.0  # AWS's own clock tells that
    there.cloud.observe()
    assert there.ids() == []


def test_what_was_launched_and_lost_while_aws_was_away_is_seen_once(there: Scene) -> None:
    there.cloud.observe()
    there.cloud.submit(launch(1))
    there.aws.ec2.terminate_instances(InstanceIds=list(there.states()))
    there.clock.at += 600.0
    assert len(there.ids()) == 1  # so that nobody waits for it any longer
    assert there.ids() == []


@pytest.mark.parametrize(
    ("code", "lasts"), [("UnauthorizedOperation", True), ("InsufficientInstanceCapacity", False)]
)
def test_what_no_waiting_mends_is_an_error_in_the_log(
    there: Scene, code: str, lasts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fall_short(there.aws, 1, code)
    there.cloud.submit(launch(2))
    [refused] = there.cloud.drain_facts()
    assert isinstance(refused, LaunchRefused)
    assert (refused.code, refused.count) == (code, 1)
    told = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert any(code in line for line in told) == lasts


def test_the_same_token_of_another_run_or_model_is_another_launch(there: Scene) -> None:
    there.cloud.submit(launch(1))
    later = scene(again=there, run="r2")
    later.cloud.submit(launch(1))
    tokens = [instance.token for instance in later.cloud.observe()]

    assert sorted(tokens) == ["r1/t1-1", "t1-1"]
    later.cloud.close()


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("InsufficientInstanceCapacity", 400, RefusalCause.CAPACITY),
        ("MaxSpotInstanceCountExceeded", 400, RefusalCause.QUOTA),
        ("UnauthorizedOperation", 403, RefusalCause.AUTHORIZATION),
        ("InvalidParameterValue", 400, RefusalCause.CONFIGURATION),
    ],
)
def test_a_call_that_launches_nothing_is_a_fact_with_its_cause(
    there: Scene, code: str, status: int, cause: RefusalCause
) -> None:
    fail(there.aws, "CreateFleet", code, status=status)
    there.cloud.submit(launch(4))

    [fact] = there.cloud.drain_facts()
    assert fact == LaunchRefused(token="t1-1", offering=ON_DEMAND.name, count=4, cause=cause, code=code, at=1000.0)
    assert there.cloud.drain_facts() == []


def test_each_pool_that_refuses_is_a_fact_and_what_is_lacking_counts_once() -> None:
    setup = replace(SETUP, subnets=(("us-east-1a", "subnet-1"), ("us-east-1b", "subnet-2")))
    errors = [
        ("UnfulfillableCapacity", {"SubnetId": "subnet-2"}),
        ("InsufficientInstanceCapacity", {"SubnetId": "subnet-2"}),
        ("InsufficientInstanceCapacity", {"SubnetId": "subnet-1"}),
        ("InsufficientInstanceCapacity", {"SubnetId": "subnet-1"}),
        ("InternalError", {"AvailabilityZone": "us-east-1c"}),
    ]
    reply: Any = {
        "Instances": [{"InstanceIds": ["i-1"]}],
        "Errors": [
            {"ErrorCode": code, "LaunchTemplateAndOverrides": {"Overrides": override}} for code, override in errors
        ],
    }
    facts = shortfall(setup, launch(4), reply, 1000.0)

    assert [(fact.cause, fact.code, fact.zone, fact.count) for fact in facts] == [
        (RefusalCause.CAPACITY, "InsufficientInstanceCapacity", "us-east-1a", 3),
        (RefusalCause.CAPACITY, "InsufficientInstanceCapacity", "us-east-1b", 0),
        (RefusalCause.AWS_FAILURE, "InternalError", "us-east-1c", 0),
        (RefusalCause.CAPACITY, "UnfulfillableCapacity", "us-east-1b", 0),
    ]


def test_a_shortfall_that_aws_does_not_explain_is_a_lack_of_capacity() -> None:
    [fact] = shortfall(SETUP, launch(2), {}, 1000.0)  # type: ignore[typeddict-item]
    assert (fact.cause, fact.code, fact.zone, fact.count) == (RefusalCause.CAPACITY, "", None, 2)


def test_a_throttled_launch_is_sent_again_once(there: Scene) -> None:
    failed = fail(there.aws, "CreateFleet", "RequestLimitExceeded", times=2)  # both attempts of one call
    there.cloud.submit(launch(2))
    there.cloud.submit(launch(1, token="t1-2"))
    assert failed["CreateFleet"] == 2
    assert there.states() == {}

    assert len(there.cloud.observe()) == 3
    assert len(there.cloud.observe()) == 3
    assert there.cloud.drain_facts() == []


def test_an_order_that_stays_unsent_is_dropped_when_the_controller_forgets_it(there: Scene) -> None:
    fail(there.aws, "CreateFleet", "RequestLimitExceeded", times=2)
    there.cloud.submit(launch())
    there.clock.at += 601.0

    assert len(there.cloud.observe()) == 0


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 0), (5, 0)])
def test_what_is_withdrawn_of_a_throttled_launch_is_not_sent_again(there: Scene, count: int, left: int) -> None:
    fail(there.aws, "CreateFleet", "RequestLimitExceeded", times=2)
    there.cloud.submit(launch(2))
    there.cloud.submit(withdraw(count))
    assert len(there.cloud.observe()) == left
    assert there.cloud.drain_facts() == [], "an earlier sending may have been heard"
    there.clock.at += 120.0
    assert len(there.cloud.observe()) == left
    [fact] = there.cloud.drain_facts()
    assert isinstance(fact, LaunchWithdrawn)
    assert (fact.token, fact.count) == ("t1-1", 2 - left)


def test_what_is_withdrawn_behind_a_throttled_order_is_not_sent_either(there: Scene) -> None:
    fail(there.aws, "StopInstances", "RequestLimitExceeded", times=2)
    fail(there.aws, "CreateFleet", "RequestLimitExceeded", times=2)
    there.cloud.submit(StopStandby(token="t0-1", reason="r", instances=("i-0123456789abcdef0",)))
    there.cloud.submit(launch(2))
    there.cloud.submit(withdraw(2))
    assert not there.cloud.observe()


@pytest.mark.parametrize("count", [1, 2])
def test_a_withdrawn_launch_whose_answer_was_lost_comes_once(there: Scene, count: int) -> None:
    heard = there.aws.ec2.create_fleet(**fleet_request(there.cloud._setup, launch(2)))
    assert heard["Instances"]
    fail(there.aws, "CreateFleet", "InternalError", times=2)
    there.cloud.submit(launch(2))
    there.cloud.submit(withdraw(count))
    for _ in range(3):
        assert len(there.cloud.observe()) == 2
        there.clock.at += 120.0
    assert there.cloud.drain_facts() == []


def test_what_is_withdrawn_of_a_launch_that_does_not_wait_is_left_alone(there: Scene) -> None:
    there.cloud.submit(launch(2))
    there.cloud.submit(withdraw(2))
    there.clock.at += 120.0
    assert len(there.cloud.observe()) == 2
    assert there.cloud.drain_facts() == []


def withdraw(count: int) -> Withdraw:
    return Withdraw(token="t2-1", reason="r", launch="t1-1", offering=ON_DEMAND.name, count=count)


def test_orders_behind_a_throttled_one_keep_their_turn(there: Scene) -> None:
    there.cloud.submit(launch(1, kind=SLEEPER.name, role=Role.STANDBY))
    [sleeper] = there.ids()
    fail(there.aws, "StopInstances", "RequestLimitExceeded", times=2)
    asked = asked_for(there.aws, "StopInstances", "StartInstances")
    there.cloud.submit(StopStandby(token="t2-1", reason="r", instances=(sleeper,)))
    there.cloud.submit(StartStandby(token="t3-1", reason="r", instances=(sleeper,)))
    there.cloud.submit(launch(1, token="t3-2"))  # launches wait for launches only
    assert len(there.states()) == 2
    assert asked == ["StopInstances"]
    there.cloud.observe()

    assert asked == ["StopInstances", "StopInstances", "StartInstances"]


def test_a_throttled_listing_is_replaced_by_the_last_one_for_a_while(there: Scene) -> None:
    there.cloud.submit(launch())
    before = there.cloud.observe()
    fail(there.aws, "DescribeInstances", "RequestLimitExceeded", times=4)
    there.clock.at += 60.0
    assert there.cloud.observe() == before
    there.clock.at += 61.0

    with pytest.raises(RetryLater):
        there.cloud.observe()


def test_an_agent_that_does_not_end_is_ended(there: Scene) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.agents.say(name)
    there.cloud.submit(Drain(token="t2-1", reason="r", instances=(name,)))
    there.cloud.observe()
    there.clock.at += 599.0
    there.cloud.observe()
    assert there.states() == {name: "running"}
    there.clock.at += 2.0
    there.cloud.observe()

    assert there.states() == {name: "terminated"}


def test_an_instance_that_aws_stops_is_ended_and_costs_no_disk_for_ever(there: Scene) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.agents.say(name)
    there.cloud.observe()
    there.aws.ec2.stop_instances(InstanceIds=[name])
    there.cloud.observe()
    assert there.states() == {name: "stopped"}
    there.clock.at += 601.0
    there.cloud.observe()

    assert there.states() == {name: "terminated"}


def test_a_standby_that_stays_silent_when_woken_is_ended_and_not_put_to_sleep_again(there: Scene) -> None:
    there.cloud.submit(launch(kind=SLEEPER.name, role=Role.STANDBY))
    [name] = there.ids()
    there.agents.say(name)
    there.cloud.observe()
    del there.agents.agents[name]
    there.aws.ec2.stop_instances(InstanceIds=[name])
    there.cloud.observe()
    there.cloud.submit(StartStandby(token="t2-1", reason="r", instances=(name,)))
    there.cloud.observe()
    there.clock.at += 1801.0
    there.cloud.observe()

    assert there.states() == {name: "terminated"}


def test_an_instance_of_another_version_is_outdated(there: Scene) -> None:
    there.cloud.submit(launch(kind=SLEEPER.name, role=Role.STANDBY))
    assert [one.outdated for one in there.cloud.observe()] == [False]
    later = scene(again=there, version="two")
    later.cloud.submit(launch(token="t2-1", kind=SLEEPER.name, role=Role.STANDBY))

    assert sorted(one.outdated for one in later.cloud.observe()) == [False, True]
    later.cloud.close()


def test_terminate_ends_what_is_left_of_a_list(there: Scene) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.cloud.submit(Terminate(token="t2-1", reason="r", instances=("i-00000000000000000", name)))

    assert there.states() == {name: "terminated"}
    assert len(there.cloud.observe()) == 0


def test_standbys_sleep_and_wake(there: Scene) -> None:
    there.cloud.submit(launch(2, kind=SLEEPER.name, role=Role.STANDBY))
    first, second = there.ids()
    there.agents.say(first)
    there.cloud.submit(StopStandby(token="t2-1", reason="r", instances=(first, second)))

    assert there.agents.drained == [first]
    assert there.states() == {first: "running", second: "stopped"}
    del there.agents.agents[first]
    there.aws.ec2.stop_instances(InstanceIds=[first])  # as its systemd does when the agent has left
    assert {i.state for i in there.cloud.observe()} == {InstanceState.STOPPED}
    fail(there.aws, "StartInstances", "RequestLimitExceeded", times=2)
    there.cloud.submit(StartStandby(token="t3-1", reason="r", instances=(first, second)))
    assert there.agents.drained == []  # before the wake, or it might leave again at once
    there.cloud.observe()
    there.agents.say(first)
    states = {i.id: i.state for i in there.cloud.observe()}
    assert states == {first: InstanceState.READY, second: InstanceState.PENDING}


def test_what_powers_itself_off_ends_or_stops_by_its_role(there: Scene) -> None:
    for role, wanted in ((Role.SERVING, "terminate"), (Role.STANDBY, "stop")):
        [version] = there.aws.ec2.describe_launch_template_versions(
            LaunchTemplateName=f"mark-shop-{role.value}", Versions=["$Default"]
        )["LaunchTemplateVersions"]
        assert version["LaunchTemplateData"]["InstanceInitiatedShutdownBehavior"] == wanted


def test_warm_ups_do_not_hold_the_tick(there: Scene) -> None:
    there.cloud.submit(WarmLambda(token="t1-1", reason="r", concurrency=7))
    there.cloud.close()

    assert there.warmed == [7]


@pytest.mark.parametrize(
    ("rails", "words"),
    [
        (Guardrails(max_instances=2, max_usd_per_hour=9.0), "exceed 2"),
        (Guardrails(max_instances=9, max_usd_per_hour=0.2), "USD an hour"),
    ],
)
def test_guardrails_hold_at_the_actuator(moto: None, rails: Guardrails, words: str) -> None:
    there = scene()
    there.cloud.submit(launch(2))
    there.cloud.observe()
    strict = scene(rails, again=there)
    strict.cloud.observe()
    asked = asked_for(there.aws, "CreateFleet")
    strict.cloud.submit(launch(1, token="t2-1"))

    [fact] = strict.cloud.drain_facts()
    assert isinstance(fact, LaunchRefused)
    assert (fact.cause, fact.code) == (RefusalCause.GUARDRAIL, "")
    assert words in fact.detail
    assert asked == []
    strict.cloud.close()
    there.close()


def asleep(rails: Guardrails, count: int) -> tuple[Scene, list[str]]:
    """Standbys that sleep, and a cloud under these guardrails that has looked."""
    there = scene()
    there.cloud.submit(launch(count, kind=SLEEPER.name, role=Role.STANDBY))
    names = there.ids()
    there.cloud.submit(StopStandby(token="t2-1", reason="r", instances=tuple(names)))
    strict = scene(rails, again=there)
    strict.cloud.observe()
    there.cloud.close()
    return strict, names


def wake(names: list[str], token: str = "t3-1") -> StartStandby:
    return StartStandby(token=token, reason="r", instances=tuple(names))


def test_standbys_are_woken_as_far_as_the_spend_allows(moto: None) -> None:
    there, names = asleep(Guardrails(max_instances=9, max_usd_per_hour=2.5 * SLEEPER.usd_per_hour), 3)
    asked = asked_for(there.aws, "CreateFleet")
    there.cloud.submit(wake(names))
    there.cloud.submit(launch(1, token="t3-2", kind=SPOT.name))

    assert [there.states()[name] for name in names] == ["running", "running", "stopped"]
    assert asked == ["CreateFleet"]  # the rest of the tick is sent
    [fact] = there.cloud.drain_facts()
    assert isinstance(fact, LaunchRefused)
    assert (fact.token, fact.offering, fact.count, fact.at) == ("t3-1", SLEEPER.name, 1, 1000.0)
    assert fact.cause is RefusalCause.GUARDRAIL
    assert fact.detail == "waking: 0.1664 USD an hour and 0.0832 more exceed 0.208"
    there.close()


def test_standbys_that_cost_too_much_sleep_on(moto: None) -> None:
    there, names = asleep(Guardrails(max_instances=9, max_usd_per_hour=0.5 * SLEEPER.usd_per_hour), 2)
    there.agents.drained += names
    there.cloud.submit(wake(names))

    assert there.cloud.has_pending_facts  # the controller looks at once
    assert [(fact.count, fact.why) for fact in there.cloud.drain_facts() if isinstance(fact, LaunchRefused)] == [
        (2, "guardrail: waking: one costs 0.0832 USD an hour, the limit is 0.0416")
    ]
    assert set(there.states().values()) == {"stopped"}
    assert there.agents.drained == []  # who sleeps has none to heed
    there.close()


def test_a_standby_that_is_awake_is_woken_again_at_no_cost(moto: None) -> None:
    there, names = asleep(Guardrails(max_instances=9, max_usd_per_hour=SLEEPER.usd_per_hour), 1)
    fail(there.aws, "StartInstances", "RequestLimitExceeded", times=3)  # the single attempt, then boto3's two
    there.cloud.submit(wake(names))
    assert set(there.states().values()) == {"stopped"}
    there.cloud.observe()  # it is sent again

    assert set(there.states().values()) == {"running"}
    there.cloud.submit(wake(names, "t4-1"))
    assert there.cloud.drain_facts() == []
    there.close()


def test_standbys_that_aws_has_no_place_for_are_told_and_the_others_wake(moto: None) -> None:
    there, names = asleep(Guardrails(max_instances=9, max_usd_per_hour=9.0), 3)
    # all at once, then the first alone: each is asked once
    failed = fail(there.aws, "StartInstances", "InsufficientInstanceCapacity", times=2, status=500)
    there.cloud.submit(wake(names))
    assert failed["StartInstances"] == 2

    (refused,) = there.cloud.drain_facts()
    assert isinstance(refused, LaunchRefused)
    assert (refused.offering, refused.count) == (SLEEPER.name, 1)
    assert (refused.cause, refused.code) == (RefusalCause.CAPACITY, "InsufficientInstanceCapacity")
    assert [name for name, state in there.states().items() if state == "stopped"] == [*refused.instances]
    there.close()


def test_one_standby_without_a_place_costs_few_calls_however_many_are_woken(moto: None) -> None:
    there, names = asleep(Guardrails(max_instances=99, max_usd_per_hour=99.0), 8)
    code = "InsufficientInstanceCapacity"
    refused = fail(there.aws, "StartInstances", code, times=99, status=500, about=names[5])
    there.cloud.submit(wake(names))

    assert refused["StartInstances"] == 4  # 8, 4, 2 and the one alone
    assert [name for name, state in there.states().items() if state == "stopped"] == [names[5]]
    there.close()


def test_a_standby_that_may_not_be_started_is_refused_and_the_others_wake(
    moto: None, caplog: pytest.LogCaptureFixture
) -> None:
    there, names = asleep(Guardrails(max_instances=9, max_usd_per_hour=9.0), 3)
    there.agents.drain(names)
    fail(there.aws, "StartInstances", "UnauthorizedOperation", times=99, status=403, about=names[1])
    there.cloud.submit(wake(names))

    (refused,) = there.cloud.drain_facts()
    assert isinstance(refused, LaunchRefused)
    assert (refused.cause, refused.instances) == (RefusalCause.AUTHORIZATION, (names[1],))
    assert refused.zone == "us-east-1a"
    assert there.agents.drained == []
    assert [name for name, state in there.states().items() if state == "stopped"] == [names[1]]
    [told] = errors_of(caplog)
    assert names[1] in told
    assert "deploy again" in told
    there.close()


def test_a_refused_wake_reserves_no_spend(moto: None) -> None:
    there, names = asleep(Guardrails(max_instances=9, max_usd_per_hour=SLEEPER.usd_per_hour), 2)
    fail(there.aws, "StartInstances", "InsufficientInstanceCapacity", status=500, about=names[0])
    there.cloud.submit(wake(names[:1]))
    there.cloud.submit(wake(names[1:], "t4-1"))

    assert there.states()[names[1]] == "running"
    there.close()


def test_an_instance_that_may_not_be_ended_is_told_once_and_the_others_end(
    there: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    there.cloud.submit(launch(3))
    first, second, third = there.ids()
    failed = fail(there.aws, "TerminateInstances", "OperationNotPermitted", times=99, status=400, about=second)
    for token in ("t2-1", "t3-1"):
        there.cloud.submit(Terminate(token=token, reason="r", instances=(first, second, third)))
    there.cloud.observe()

    assert there.states() == {first: "terminated", second: "running", third: "terminated"}
    [told] = errors_of(caplog)
    assert f"AWS refuses to end {second}: " in told
    assert "--no-disable-api-termination" in told
    assert there.cloud.troubles == (told,)
    there.clock.at += 1801.0  # its agent never came
    before = failed["TerminateInstances"]
    for _ in range(3):
        there.cloud.observe()
    assert failed["TerminateInstances"] == before + 1  # once, and then not for a while
    there.aws.waking.terminate_instances(InstanceIds=[second])
    there.cloud.observe()
    assert there.cloud.troubles == ()


def test_a_standby_that_cannot_be_stopped_is_told(there: Scene, caplog: pytest.LogCaptureFixture) -> None:
    there.cloud.submit(launch(1, kind=SLEEPER.name, role=Role.STANDBY))
    [name] = there.ids()
    fail(there.aws, "StopInstances", "UnsupportedOperation", status=400)
    there.cloud.submit(StopStandby(token="t2-1", reason="r", instances=(name,)))

    [told] = errors_of(caplog)
    assert f"AWS refuses to stop {name}" in told
    there.cloud.submit(StopStandby(token="t3-1", reason="r", instances=(name,)))
    assert there.cloud.troubles == ()


def test_a_listing_that_may_not_be_had_is_replaced_by_the_last_one_and_then_ends_the_term_only(
    there: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    REPORTED_AT.clear()
    there.cloud.submit(launch())
    before = there.cloud.observe()
    answer(there.aws.ec2, "DescribeInstances", "UnauthorizedOperation", 403)
    there.clock.at += 60.0
    assert there.cloud.observe() == before
    there.clock.at += 61.0

    with pytest.raises(RetryLater, match="UnauthorizedOperation"):
        there.cloud.observe()
    [told] = errors_of(caplog)
    assert "deploy again" in told


def test_a_zone_that_does_not_sell_the_type_is_left_out_and_not_the_type() -> None:
    of = {"LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": "c5.large", "SubnetId": "subnet-a"}}}
    reply: Any = {"Instances": [], "Errors": [{**of, "ErrorCode": "InvalidFleetConfiguration"}]}
    [fact] = shortfall(ZONED, launch(), reply, 7.0)
    assert (fact.zone, fact.cause) == ("us-east-1a", RefusalCause.CAPACITY)
    nowhere: Any = {"Instances": [], "Errors": [{"ErrorCode": "InvalidFleetConfiguration"}]}
    [fact] = shortfall(ZONED, launch(), nowhere, 7.0)
    assert (fact.zone, fact.cause) == (None, RefusalCause.CONFIGURATION)


OTHER = replace(SPOT, instance_type=replace(SPOT.instance_type, name="c5a.large"))
ZONED = replace(
    SETUP,
    offerings={**OFFERINGS, OTHER.name: OTHER},
    templates={(Role.SERVING, "amd64"): "shop-serving"},
    subnets=(("us-east-1a", "subnet-a"), ("us-east-1b", "subnet-b")),
)


def test_a_launch_asks_for_each_type_in_each_zone_that_it_does_not_leave_out() -> None:
    order = replace(launch(kind=SPOT.name), equivalents=(OTHER.name,), without=((SPOT.name, "us-east-1a"),))
    request = fleet_request(ZONED, order)
    [config] = request["LaunchTemplateConfigs"]
    assert [(one["InstanceType"], one["SubnetId"]) for one in config["Overrides"]] == [
        ("c5.large", "subnet-b"),
        ("c5a.large", "subnet-a"),
        ("c5a.large", "subnet-b"),
    ]
    assert request["SpotOptions"]["AllocationStrategy"] == "price-capacity-optimized"


def test_what_an_answer_names_is_booked_by_the_type_that_came_and_refused_by_type_and_zone() -> None:
    order = replace(launch(3, kind=SPOT.name), equivalents=(OTHER.name,))

    def of(kind: str, subnet: str) -> dict[str, Any]:
        return {"LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": kind, "SubnetId": subnet}}}

    reply: Any = {
        "Instances": [
            {**of("c5a.large", "subnet-b"), "InstanceType": "c5a.large", "InstanceIds": ["i-1"]},
        ],
        "Errors": [
            {**of("c5.large", "subnet-a"), "ErrorCode": "InsufficientInstanceCapacity"},
            {**of("c5a.large", "subnet-a"), "ErrorCode": "InsufficientInstanceCapacity"},
        ],
    }
    rows = launched_rows(ZONED, order, reply, 7.0)
    assert {(row.offering, row.zone, row.token) for row in rows.values()} == {
        (OTHER.name, "us-east-1b", order.token)
    }
    assert [(fact.offering, fact.zone, fact.count) for fact in shortfall(ZONED, order, reply, 7.0)] == [
        (SPOT.name, "us-east-1a", 2),
        (OTHER.name, "us-east-1a", 0),
    ]


@pytest.mark.parametrize("launched", [2, 0])
def test_an_order_of_which_ec2_says_nothing_the_second_time_is_looked_for_by_its_token(
    there: Scene, launched: int
) -> None:
    if launched:
        there.cloud.submit(launch(launched))
    next_one = scene(again=there)
    empty(there.aws)
    next_one.cloud.submit(launch(2))

    assert len(next_one.ids()) == launched
    assert next_one.cloud.drain_facts() == []  # EC2 may not list yet what it launched a moment ago
    next_one.clock.at += SETUP.unlisted_limit_s
    next_one.cloud.observe()
    lacking = [fact.count for fact in next_one.cloud.drain_facts() if isinstance(fact, LaunchRefused)]
    assert lacking == ([] if launched else [2])
    next_one.cloud.close()


def test_what_never_came_is_refused_in_the_zones_that_the_order_asked_and_in_no_other() -> None:
    order = replace(launch(3, kind=SPOT.name), equivalents=(OTHER.name,))
    everywhere = unfilled(ZONED, order, 2, 7.0)
    left_out = unfilled(ZONED, replace(order, without=((SPOT.name, "us-east-1a"),)), 2, 7.0)

    assert [(fact.offering, fact.zone, fact.count, fact.cause) for fact in everywhere] == [
        (SPOT.name, "us-east-1a", 2, RefusalCause.CAPACITY),
        (SPOT.name, "us-east-1b", 0, RefusalCause.CAPACITY),
    ]
    assert [(fact.offering, fact.zone, fact.count) for fact in left_out] == [(SPOT.name, "us-east-1b", 2)]
    assert [fact.zone for fact in unfilled(replace(ZONED, subnets=()), order, 2, 7.0)] == [None]


KEY = "Client.InternalError"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            KEY,
            [LaunchFailed(instance="", offering=ON_DEMAND.name, at=1121.0, code=KEY, detail=f"{KEY}: on launch")],
        ),
        ("Client.UserInitiatedShutdown", []),
        ("Server.SpotInstanceTermination", []),
    ],
)
def test_an_instance_that_ends_before_it_was_ready_is_a_fact_with_awss_reason(
    there: Scene, code: str, said: list[LaunchFailed]
) -> None:
    there.cloud.submit(launch(2))
    ready, dying = there.ids()
    there.agents.say(ready)
    there.cloud.observe()
    there.aws.ec2.terminate_instances(InstanceIds=[ready, dying])
    explain_ends(there.aws, dying, code)
    there.clock.at += 121.0
    there.cloud.observe()
    there.cloud.observe()

    assert there.cloud.drain_facts() == [replace(fact, instance=dying) for fact in said]


def test_an_instance_whose_agent_never_comes_is_ended_and_a_launch_that_failed(there: Scene) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.clock.at += 1801.0
    there.cloud.observe()
    assert there.states() == {name: "terminated"}
    there.cloud.observe()

    [fact] = there.cloud.drain_facts()
    assert isinstance(fact, LaunchFailed)
    assert (fact.instance, fact.detail) == (name, "its agent was not ready within 1800 s")


def test_what_is_ended_before_it_was_ready_did_not_fail(there: Scene) -> None:
    there.cloud.submit(launch(2))
    first, second = there.ids()
    there.cloud.submit(Drain(token="t2-1", reason="r", instances=(first,)))
    there.cloud.submit(Terminate(token="t2-2", reason="r", instances=(second,)))
    there.clock.at += 121.0
    there.cloud.observe()
    assert there.cloud.drain_facts() == []


def test_an_agent_that_hears_of_its_drain_while_it_starts_did_not_fail(there: Scene) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.agents.say(name, MemberState.DRAINING)  # before the controller looks whether it serves
    there.cloud.submit(Drain(token="t2-1", reason="r", instances=(name,)))
    assert there.states() == {name: "running"}
    del there.agents.agents[name]
    there.aws.ec2.terminate_instances(InstanceIds=[name])
    explain_ends(there.aws, name, "Client.InstanceInitiatedShutdown")
    there.clock.at += 121.0
    there.cloud.observe()
    there.cloud.observe()
    assert there.cloud.drain_facts() == []


def explain_ends(there: Aws, name: str, code: str) -> None:
    """EC2 says why an instance ended, where it is asked for by its id."""
    reason = {"Code": code, "Message": f"{code}: on launch"}
    told = {"Reservations": [{"Instances": [{"InstanceId": name, "StateReason": reason}]}]}

    def explain(params: dict[str, Any], **_: Any) -> Any:
        by_id = "instance-id" in params["body"].values()
        return (SimpleNamespace(status_code=200, headers={}), told) if by_id else None

    there.ec2.meta.events.register_first("before-call.ec2.DescribeInstances", explain)


def empty(there: Aws) -> None:
    """EC2 Fleet answers with neither instances nor errors."""
    reply = SimpleNamespace(status_code=200, headers={}), {"Instances": [], "Errors": []}
    there.ec2.meta.events.register_first("before-call.ec2.CreateFleet", lambda **_: reply)


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "ERROR"]


def test_guardrails_count_standbys_that_another_model_is_waking() -> None:
    guard = Guard(Guardrails(max_instances=9, max_usd_per_hour=0.2), OFFERINGS)
    rows = {
        name: Ec2Row(
            id=name,
            model="m",
            offering=SLEEPER.name,
            role=Role.STANDBY,
            token="t",
            state="stopped",
            launched_at=0.0,
        )
        for name in ("i-1", "i-2", "i-3")
    }
    guard.update_inventory("m", rows)

    assert guard.reserve_wake("i-1") is None
    assert guard.reserve_wake("i-2") is None
    assert "USD an hour" in str(guard.reserve_wake("i-3"))
    count, why = guard.reserve("other", launch(1))
    assert count == 0
    assert "USD an hour" in str(why)
    guard.update_inventory("m", rows)  # they sleep on: AWS did not wake them
    assert guard.reserve_wake("i-3") is None
    guard.update_inventory("m", {})
    assert "not there" in str(guard.reserve_wake("i-3"))


def test_guardrails_count_what_was_launched_in_the_same_tick(moto: None) -> None:
    there = scene(Guardrails(max_instances=3, max_usd_per_hour=9.0))
    there.cloud.submit(launch(3))
    there.cloud.submit(launch(2, token="t1-2"))

    assert len(there.cloud.observe()) == 3
    there.cloud.submit(launch(3))  # the same order again asks for no more than it has
    assert [fact.token for fact in there.cloud.drain_facts() if isinstance(fact, LaunchRefused)] == ["t1-2"]
    there.close()


@pytest.mark.parametrize(
    ("rails", "why"),
    [
        (Guardrails(max_instances=10, max_usd_per_hour=9.0), "8 instances and 5 more exceed 10"),
        (
            Guardrails(max_instances=99, max_usd_per_hour=10.0 * ON_DEMAND.usd_per_hour),
            "0.6800 USD an hour and 0.4250 more exceed 0.85",
        ),
    ],
)
def test_an_order_that_does_not_fit_is_cut_to_what_does(moto: None, rails: Guardrails, why: str) -> None:
    there = scene(rails)
    there.cloud.submit(launch(8))
    there.cloud.submit(launch(5, token="t2-1"))

    assert Counter(instance.token for instance in there.cloud.observe()) == {"t1-1": 8, "t2-1": 2}
    assert there.cloud.drain_facts() == [
        LaunchRefused(
            token="t2-1",
            offering=ON_DEMAND.name,
            count=3,
            cause=RefusalCause.GUARDRAIL,
            detail=why,
            at=1000.0,
        )
    ]
    there.close()


def test_what_a_guardrail_and_aws_leave_of_an_order_is_all_told(moto: None) -> None:
    there = scene(Guardrails(max_instances=4, max_usd_per_hour=9.0))
    fall_short(there.aws, by=1, code="InsufficientInstanceCapacity")
    there.cloud.submit(launch(5))
    told = [(fact.count, fact.cause) for fact in there.cloud.drain_facts() if isinstance(fact, LaunchRefused)]
    assert told == [(1, RefusalCause.CAPACITY), (1, RefusalCause.GUARDRAIL)]
    there.close()


def test_a_throttled_order_is_cut_when_it_is_sent(moto: None) -> None:
    there = scene(Guardrails(max_instances=4, max_usd_per_hour=9.0))
    fail(there.aws, "CreateFleet", "RequestLimitExceeded", times=2)
    there.cloud.submit(launch(5))
    assert there.cloud.drain_facts() == []
    assert len(there.cloud.observe()) == 4
    assert [fact.count for fact in there.cloud.drain_facts() if isinstance(fact, LaunchRefused)] == [1]
    there.close()


def test_an_offering_of_which_not_even_one_may_run_is_refused_as_such(moto: None) -> None:
    there = scene(Guardrails(max_instances=9, max_usd_per_hour=0.5 * ON_DEMAND.usd_per_hour))
    there.cloud.submit(launch(2))
    [fact] = there.cloud.drain_facts()
    assert isinstance(fact, LaunchRefused)
    assert (fact.count, fact.cause) == (2, RefusalCause.FORBIDDEN)
    assert fact.detail == "one costs 0.0850 USD an hour, the limit is 0.0425"
    there.close()


def rented(name: str, at: float, model: str = "m") -> dict[str, Ec2Row]:
    return {
        name: Ec2Row(
            id=name,
            model=model,
            offering=ON_DEMAND.name,
            role=Role.SERVING,
            token=name,
            state="pending",
            launched_at=at,
        )
    }


def test_guardrails_count_what_was_launched_since_the_last_pass() -> None:
    guard = Guard(Guardrails(max_instances=3, max_usd_per_hour=9.0), OFFERINGS)
    guard.launched(rented("i-1", 1000.0))
    guard.launched(rented("i-2", 1060.0))
    guard.launched(rented("i-9", 1060.0, "other"))

    def fits(model: str, *there: dict[str, Ec2Row]) -> int:
        guard.update_inventory(model, {name: row for rows in there for name, row in rows.items()})
        order = launch(9, token="t9-9")
        count, _ = guard.reserve("m", order)
        guard.release("m", order)
        return count

    assert fits("m", rented("i-1", 1000.0), rented("i-2", 1060.0)) == 0
    assert fits("m", rented("i-2", 1060.0)) == 1
    assert fits("m") == 2
    assert fits("other") == 3


def test_an_instance_that_is_waited_for_no_more_counts_for_no_guardrail(moto: None) -> None:
    """It ended before a pass listed it."""
    there = scene(rails=Guardrails(max_instances=1, max_usd_per_hour=9.0))
    there.cloud.submit(launch(1))
    (row,) = rows_of(there)
    there.aws.ec2.terminate_instances(InstanceIds=[row["InstanceId"]])
    began = there.clock.at
    for number, waited_s in enumerate((1.0, SETUP.unlisted_limit_s, SETUP.unlisted_limit_s + 1.0)):
        there.clock.at = began + waited_s
        waits = bool(there.cloud.observe().instances)
        there.cloud.submit(launch(1, token=f"t2-{number}"))
        refused = [fact.cause for fact in there.cloud.drain_facts() if isinstance(fact, LaunchRefused)]
        assert refused == ([RefusalCause.GUARDRAIL] if waits else [])
    assert len(rows_of(there)) == 2


def test_guardrails_count_what_another_model_is_asking_for() -> None:
    guard = Guard(Guardrails(max_instances=3, max_usd_per_hour=9.0), OFFERINGS)
    first, second = launch(2), launch(2, token="t1-2")

    assert guard.reserve("m", first) == (2, None)
    assert guard.reserve("m", first) == (2, None)  # the same order again
    assert guard.reserve("other", second) == (1, "2 instances and 2 more exceed 3")
    guard.release("m", first)  # it was refused
    assert guard.reserve("other", second) == (2, None)


def test_messages_that_may_not_be_deleted_end_no_tick(there: Scene) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.send(SpotWarned(instance=name, at=1000.0, terminates_at=1120.0))
    assert len(there.cloud.drain_facts()) == 1
    answer(there.aws.sqs, "DeleteMessageBatch", "QueueDoesNotExist", 400)
    there.cloud.acknowledge()


def test_messages_that_cannot_be_deleted_now_are_deleted_by_the_next_acknowledgement(there: Scene) -> None:
    there.cloud.submit(launch(1, kind=SPOT.name))
    [name] = there.ids()
    there.send(SpotWarned(instance=name, at=1000.0, terminates_at=1120.0))
    assert len(there.cloud.drain_facts()) == 1
    events = there.aws.sqs.meta.events

    def throttled(**_: object) -> None:
        raise ClientError({"Error": {"Code": "Throttling", "Message": "no"}}, "DeleteMessageBatch")

    events.register("before-call.sqs.DeleteMessageBatch", throttled)
    there.cloud.acknowledge()
    events.unregister("before-call.sqs.DeleteMessageBatch", throttled)
    there.cloud.acknowledge()

    last = scene(again=there)
    assert last.inbox.receive(0) == 0
    last.cloud.close()


def test_a_notice_that_comes_twice_is_one_fact(there: Scene) -> None:
    there.cloud.submit(launch(1, kind=SPOT.name))
    [name] = there.ids()
    for _ in range(2):
        there.send(SpotWarned(instance=name, at=1000.0, terminates_at=1120.0))

    advised = RebalanceAdvised(instance=name, at=1000.0)
    there.send(advised)
    notice, recommended = there.cloud.drain_facts()
    assert (notice.kind, recommended) == ("spot-warned", advised)


def test_notices_of_others_are_left_alone(there: Scene) -> None:
    there.send(SpotWarned(instance="i-of-somebody-else", at=1000.0, terminates_at=1120.0))
    there.send(RebalanceAdvised(instance="i-of-somebody-else", at=1000.0))

    assert there.cloud.drain_facts() == []


def test_state_changes_go_to_the_ledger(there: Scene) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.send(StateChanged(instance=name, at=1003.0, state="pending"))
    there.send(StateChanged(instance=name, at=1015.0, state="running"))

    assert there.cloud.drain_facts() == []
    assert [(t.instance, t.state, t.at) for t in there.ledger.noted] == [
        (name, "pending", 1003.0),
        (name, "running", 1015.0),
    ]
    [price] = {t.usd_per_hour for t in there.ledger.noted}
    assert price == OFFERINGS[there.ledger.noted[0].offering].usd_per_hour


def test_states_are_written_down_between_ticks_and_notices_wait_for_one(there: Scene) -> None:
    there.cloud.submit(launch(1, kind=SPOT.name))
    [name] = there.ids()
    notice = SpotWarned(instance=name, at=1000.0, terminates_at=1120.0)
    there.send(notice)
    there.send(StateChanged(instance=name, at=1015.0, state="running"))
    there.cloud.poll_events()
    assert [t.state for t in there.ledger.noted] == ["running"]

    crashed = scene(again=there)  # the notice was heard, but no tick has seen it: it is the next one's
    crashed.cloud.observe()
    crashed.inbox.receive(0)
    assert crashed.cloud.drain_facts() == [notice]
    crashed.cloud.close()


def test_a_ledger_that_is_away_loses_no_transition_and_no_fact(there: Scene) -> None:
    there.cloud.submit(launch(1, kind=SPOT.name))
    [name] = there.ids()
    notice = SpotWarned(instance=name, at=1000.0, terminates_at=1120.0)
    there.send(notice)
    there.send(StateChanged(instance=name, at=1003.0, state="pending"))
    there.ledger.fail_next = RetryLater("away")
    with pytest.raises(RetryLater):
        there.cloud.drain_facts()

    assert there.cloud.drain_facts() == [notice]
    assert [t.state for t in there.ledger.noted] == ["pending"]


def test_the_listing_notes_what_the_queue_lost(there: Scene) -> None:
    there.cloud.observe()
    there.cloud.submit(launch())
    [name] = there.ids()
    there.clock.at += 119.0
    there.cloud.observe()
    assert there.ledger.noted == []
    there.clock.at += 2.0
    there.cloud.observe()
    assert [(t.state, t.at) for t in there.ledger.noted] == [("running", 1000.0)]
    there.aws.ec2.terminate_instances(InstanceIds=[name])
    there.cloud.observe()
    there.clock.at += 121.0
    there.cloud.observe()

    assert [(t.state, t.at) for t in there.ledger.noted] == [("running", 1000.0), ("terminated", 1121.0)]


@pytest.mark.parametrize("told", [True, False], ids=["the queue tells of it", "the queue has lost it"])
def test_the_end_of_what_went_while_nobody_acted_is_written_down(there: Scene, told: bool) -> None:
    there.cloud.submit(launch())
    [name] = there.ids()
    there.send(StateChanged(instance=name, at=1015.0, state="running"))
    there.cloud.drain_facts()
    there.cloud.acknowledge()
    there.aws.ec2.terminate_instances(InstanceIds=[name])
    after = scene(again=there)
    after.clock.at = 1100.0
    after.cloud.observe()
    if told:
        after.send(StateChanged(instance=name, at=1050.0, state="terminated"))
        after.cloud.drain_facts()
    after.clock.at += 121.0
    after.cloud.observe()

    assert [(t.state, t.at) for t in after.ledger.noted] == [
        ("running", 1015.0),
        ("terminated", 1050.0 if told else 1100.0),
    ]
    after.cloud.close()
