"""The bill of the emulated account: of what ran in it, a day late, and by a tag from its activation on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.costs import daily_usd
from mark.aws.session import Aws, AwsSettings
from mark.cloudmodel.lifecycle import Life
from mark.domain.offerings.offering import Market
from mark.emulator.config import LambdaLimits
from mark.emulator.ec2.machine import LaunchSpec, Machine
from mark.emulator.metering import Meter, day_of
from tests.aws.builders import KEYS
from tests.emulator.conftest import TYPES, World, fleet, ids_of, template
from tests.emulator.test_lambda import call, function

DAY_S, BEGAN = 86_400.0, 1_700_006_400.0  # 15 November 2023, 0:00 UTC
FIRST = date(2023, 11, 15)


def stop_clock(world: World, at: float) -> None:
    world.mark("POST", "clock", {"wall_at": 0.0, "service_at": at, "speed": 0.0})


def ask(world: World, **changes: Any) -> list[dict[str, Any]]:
    asked = {
        "TimePeriod": {"Start": FIRST.isoformat(), "End": (FIRST + timedelta(days=3)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": ["AmortizedCost", "UsageQuantity"],
        **changes,
    }
    found: list[dict[str, Any]] = world.client("ce", attempts=1).get_cost_and_usage(**asked)["ResultsByTime"]
    return found


def test_a_day_is_known_a_day_after_its_end_and_a_tag_counts_once_it_is_active(
    start: Callable[..., World],
) -> None:
    world = start(lambdas=LambdaLimits(cold_start_s=0.0))
    stop_clock(world, BEGAN)
    [name] = ids_of(fleet(world, template(world), tags={"mark:service": "shop"}))
    function(world, "echo", MemorySize=1024)
    call(world, "echo")
    stop_clock(world, BEGAN + 60.0)
    world.wait(name, "running")
    running_at = world.instances()[name]["running_at"]
    stop_clock(world, BEGAN + 1.5 * DAY_S)
    with pytest.raises(ClientError, match="DataUnavailableException"):
        ask(world)

    stop_clock(world, BEGAN + 2.5 * DAY_S)  # the first day is known, the second not yet
    groups = [{"Type": "DIMENSION", "Key": key} for key in ("SERVICE", "USAGE_TYPE")]
    first, second, third = ask(world, GroupBy=groups)
    found = {tuple(one["Keys"]): one["Metrics"] for one in first["Groups"]}
    hours = (BEGAN + DAY_S - running_at) / 3600
    box = found["Amazon Elastic Compute Cloud - Compute", "BoxUsage:c5.large"]
    assert float(box["UsageQuantity"]["Amount"]) == pytest.approx(hours)
    assert float(box["AmortizedCost"]["Amount"]) == pytest.approx(0.085 * hours)
    assert float(found["AWS Lambda", "Request"]["UsageQuantity"]["Amount"]) == 1
    assert float(found["AWS Lambda", "Lambda-GB-Second"]["AmortizedCost"]["Amount"]) > 0
    assert (second["Groups"], third["Groups"], first["Estimated"]) == ([], [], True)

    ce, aws = world.client("ce"), Aws(AwsSettings(region="us-east-1", endpoint_url=world.url, credentials=KEYS))
    days = FIRST, FIRST + timedelta(days=4), {"mark:service": "shop"}
    assert set(daily_usd(aws, *days).values()) == {0.0}
    active = [{"TagKey": key, "Status": "Active"} for key in ("mark:service", "unknown")]
    [error] = ce.update_cost_allocation_tags_status(CostAllocationTagsStatus=active)["Errors"]
    assert (error["TagKey"], error["Code"]) == ("unknown", "TagKeysNotFoundException")
    [listed] = ce.list_cost_allocation_tags(TagKeys=["mark:service"])["CostAllocationTags"]
    assert listed["Status"] == "Active"
    stop_clock(world, BEGAN + 40 * DAY_S)
    told = daily_usd(aws, *days)
    assert [round(usd / 0.085 / 24, 3) for usd in told.values()] == [0, 0, 0.5, 1]
    assert [one["Estimated"] for one in ask(world)] == [False] * 3
    aws.close()


def test_what_it_does_not_do_is_refused(world: World) -> None:
    for changes, code in (
        ({"Granularity": "HOURLY"}, "NotEmulated"),
        ({"Metrics": ["Cost"]}, "ValidationException"),
        ({"TimePeriod": {"Start": "2023-11-16", "End": "2023-11-16"}}, "ValidationException"),
        ({"GroupBy": [{"Type": "TAG", "Key": "mark:service"}]}, "NotEmulated"),
    ):
        with pytest.raises(ClientError, match=code):
            ask(world, **changes)


def machine(market: Market, *, launched_at: float) -> Machine:
    spec = LaunchSpec(
        instance_type=TYPES["c5.large"], market=market, image_id="", zone="", subnet_id="", vpc_id=""
    )
    return Machine(
        id="i-1",
        spec=spec,
        address="",
        launched_at=launched_at,
        reservation="",
        tags={},
        shutdown_behavior="terminate",
        life=Life(runs_at=launched_at, ready_at=launched_at, billed_since=launched_at),
        pool="",
    )


@given(
    ran_s=st.floats(0.0, 5 * DAY_S),
    cuts=st.lists(st.floats(BEGAN, BEGAN + 5 * DAY_S), max_size=4),
    market=st.sampled_from(Market),
    taken=st.booleans(),
)
def test_all_that_ran_is_billed_once_whole_and_by_the_day(
    ran_s: float, cuts: list[float], market: Market, taken: bool
) -> None:
    """But for a spot instance that EC2 took within its first hour."""
    meter, one = Meter(lambda *_: 0.1), machine(market, launched_at=BEGAN)
    meter.note_state(one, BEGAN)
    meter.note_state(one, BEGAN)
    one.life = Life(runs_at=BEGAN, ready_at=BEGAN)
    if taken:
        one.reason_code = "Server.SpotInstanceTermination"
    meter.note_state(one, BEGAN + ran_s)
    uses = list(meter.uses(BEGAN + 9 * DAY_S, cuts))
    if taken and ran_s < 3600:
        assert not uses
        return
    assert sum(use.quantity for use in uses) * 3600 == pytest.approx(max(60.0, ran_s), abs=1.0)
    assert sum(use.usd for use in uses) == pytest.approx(0.1 * sum(use.quantity for use in uses))
    for use in uses:
        assert day_of(use.since) == day_of(max(use.since, use.until - 1.0))
        assert not [cut for cut in cuts if use.since < cut < use.until]
