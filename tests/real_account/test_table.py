"""The table of a run: assumed beside measured, what to set, expected beside billed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mark.config.footprint import footprint_of
from mark.config.settings import load_settings, settings_anywhere
from mark.controller.journal import Tick
from mark.controller.state import Observation
from mark.deployment.synth import check_settings
from mark.domain.billing.costs import FleetUsage
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import SpotWarned, StartStandby
from mark.domain.offerings.offering import Market
from mark.domain.offerings.times import LAUNCH, WAKE
from mark.live.models import make_live_models
from scripts.real_account.journal import expected_usd, measured
from scripts.real_account.run import Run, Way
from scripts.real_account.settings import MOST_USD_A_DAY, run_settings
from scripts.real_account.table import ENOUGH, Part, Quantity, advised, bill_table, by_part, snippet, table
from tests.accounting.test_journal_stats import HEADER
from tests.controller.builders import LARGE, SMALL, instances
from tests.deployment.test_trial import DIGITS, EMULATED
from tests.deployment.test_trial import settings as settings_of

SECONDS = st.floats(0.1, 5000.0)


def quantity(*measured_s: float, setting: str = "launch") -> Quantity:
    return Quantity(
        name="launch to serving",
        assumed="150 s",
        where="simulate.launch",
        measured_s=measured_s,
        spread=WAKE if setting == "wake" else LAUNCH,
        setting=setting,
    )


@given(st.lists(SECONDS, min_size=1, max_size=3 * ENOUGH))
def test_what_is_set_holds_what_was_seen_and_loads(found: list[float]) -> None:
    one = quantity(*found)
    times = advised(one)
    assert times is not None
    assert min(found) <= times.median_s <= max(found)
    assert times.p95_s >= times.median_s
    if len(found) < ENOUGH:
        assert times.p95_s >= max(found)
        assert times.p95_s / times.median_s >= LAUNCH.p95_s / LAUNCH.median_s * (1 - 1e-9)
    else:
        assert times.p95_s <= max(found)
    launch = load_settings(yaml.safe_load(snippet([one])), {}).simulate.launch
    assert launch is not None
    assert abs(launch.median_s - times.median_s) <= 0.006 * times.median_s


def test_rows_say_what_was_not_measured_and_advise_nothing_for_it() -> None:
    nothing = Quantity(name="cold start", assumed="2.9 s", where="LambdaOffering", measured_s=())
    text = table([quantity(100.0, 200.0, 300.0), nothing])
    assert "| launch to serving | 150 s | simulate.launch | 200 s | 280 s | 3 |" in text
    assert "| cold start | 2.9 s | LambdaOffering | not measured |  | 0 |" in text
    assert snippet([nothing, quantity()]) == ""
    assert snippet([quantity(60.0, setting="wake")]) == "simulate:\n  wake: {median_s: 60, p95_s: 88}"


USAGES = st.dictionaries(
    st.tuples(
        st.sampled_from(["AWS Lambda", "Amazon Elastic Compute Cloud - Compute", "EC2 - Other", "Tax"]),
        st.sampled_from(["BoxUsage:t3.small", "SpotUsage:t3.small", "EUC1-SpotUsage:c5.large", "EBS:Volume"]),
    ),
    st.floats(0.0, 100.0),
)


@given(USAGES)
def test_each_usage_is_in_one_part_of_the_bill(billed: dict[tuple[str, str], float]) -> None:
    found = by_part(billed)
    assert set(found) == set(Part)
    assert abs(sum(found.values()) - sum(billed.values())) < 1e-6


def test_the_bill_says_how_far_it_is_off() -> None:
    billed = by_part(
        {("Amazon Elastic Compute Cloud - Compute", "EUC1-SpotUsage:c5.large"): 0.011, ("Tax", ""): 0.5}
    )
    text = bill_table({Part.SPOT: 0.01}, billed)
    assert "| spot instances | 0.0100 | 0.0110 | +10% |" in text
    assert "| all else | 0.0000 | 0.5000 | not expected |" in text


def tick(now: float, *there: Instance, **more: object) -> Tick:
    orders = more.pop("orders", ())
    seen = Observation(now=now, demand=None, forecast=None, fleet=FleetView(instances=there), **more)  # type: ignore[arg-type]
    return Tick(seen=seen, orders=orders, notes=())  # type: ignore[arg-type]


def test_a_journal_tells_times_and_what_the_fleet_used() -> None:
    """A spot instance boots, gets its notice and ends; a standby on demand is woken meanwhile."""
    states = InstanceState
    [one] = instances(1, SMALL)
    [sleeper] = instances(1, LARGE, role=Role.STANDBY)
    [booting, serving] = (replace(one, launched_at=0.0, state=state) for state in (states.PENDING, states.READY))
    [asleep, waking, woken] = (
        replace(sleeper, id="s-1", launched_at=0.0, state=state)
        for state in (states.STOPPED, states.PENDING, states.READY)
    )
    warned = SpotWarned(instance=one.id, at=199.0, terminates_at=319.0)
    wake = StartStandby(token="t", reason="", instances=("s-1",))
    found = measured(
        HEADER,
        [
            tick(10.0, booting),
            tick(150.0, serving, asleep),
            tick(200.0, serving, asleep, facts=(warned,), orders=(wake,)),
            tick(210.0, serving, waking),
            tick(270.0, woken),
            tick(300.0),
        ],
    )
    assert found.times_s("launch") == (80.0,)
    assert found.times_s("wake") == (40.0,)
    assert found.notices_s == (1.0,)
    assert (found.began_at, found.ended_at) == (10.0, 300.0)
    by_instance = {one.instance: 0.0 for one in found.usage.usages}
    for usage in found.usage.usages:
        by_instance[usage.instance] += usage.ended_at - usage.started_at
    assert by_instance[one.id] == 255.0  # from the end of its pending time to the tick that saw it gone
    assert by_instance["s-1"] == 135.0 + 90.0  # until the first look that saw it asleep, and from its wake on
    assert all(usage.usd_per_hour for usage in found.usage.usages), "a standby's price is known, too"


def test_the_run_is_a_trial_on_spot_that_ends_soon() -> None:
    today = date(2027, 1, 1)
    made = run_settings(settings_of(EMULATED, DIGITS), fits=lambda _: True, today=today)
    made = load_settings(json.loads(settings_anywhere(made)), {})
    [served] = made.service.serve
    assert (served.model, served.market) == ("digits", Market.SPOT)
    check_settings(made)  # a deploy takes them
    [model] = make_live_models(made)
    assert model.bundle.controller.standby is not None
    assert {one.name for one in model.served.offerings} == {"t3.small:spot", "t3.small:on-demand"}
    assert (made.rollout.nodes, made.rollout.ends_on, made.budget.daily_usd) == (
        1,
        date(2027, 1, 3),
        MOST_USD_A_DAY,
    )
    expected = expected_usd(FleetUsage(usages=(), asleep_s=0.0, running_s=0.0), footprint_of(made), 3600.0)
    assert 0 < expected[Part.ON_DEMAND] < sum(expected.values()) < 0.1


def test_a_run_that_has_not_ended_has_no_bill(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no run that has ended"):
        Run(tmp_path, Way()).bill()
