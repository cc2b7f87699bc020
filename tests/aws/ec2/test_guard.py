"""Guardrails count spot instances at the prices of now, never at less than they can cost."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.observed import Ec2Row
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import SpotPrice
from tests.aws.builders import OFFERINGS, ON_DEMAND, SPOT

ZONES = ("a", "b", "c")
EXACT = 1e-6
Prices = Mapping[str, float]

prices = st.fixed_dictionaries({zone: st.floats(0.001, 0.5) for zone in ZONES})
launches = st.tuples(
    st.integers(1, 6), st.booleans(), st.lists(st.sampled_from(ZONES), min_size=6, max_size=6), st.booleans()
)


def known(by_zone: Prices) -> dict[str, SpotPrice]:
    return {SPOT.name: SpotPrice(by_zone=by_zone, dearest=max(by_zone.values()))}


def row(name: str, offering: str, zone: str) -> Ec2Row:
    return Ec2Row(
        id=name,
        model="m",
        offering=offering,
        role=Role.SERVING,
        token=name,
        state="running",
        launched_at=0.0,
        zone=zone,
    )


def cost(there: list[tuple[str, str]], by_zone: Prices) -> float:
    """What instances cost in the zones that they are in, USD an hour."""
    return sum(by_zone[zone] if name == SPOT.name else ON_DEMAND.usd_per_hour for name, zone in there)


@given(
    limit=st.floats(0.05, 2.0),
    hours=st.lists(st.tuples(prices, st.lists(launches, max_size=4)), min_size=1, max_size=4),
)
def test_no_launch_takes_what_runs_above_the_limit_in_whichever_zones_it_comes(
    limit: float, hours: list[tuple[Prices, list[tuple[int, bool, list[str], bool]]]]
) -> None:
    """Prices change each hour; new instances are listed with their zone, or not yet."""
    guard = Guard(Guardrails(max_instances=1000, max_usd_per_hour=limit), OFFERINGS)
    there: list[tuple[str, str]] = []  # offering and true zone
    for by_zone, orders in hours:
        guard.update_prices(known(by_zone))
        for count, spot, zones, listed in orders:
            offering = SPOT if spot else ON_DEMAND
            if guard.forbidden_reason(offering.name) is not None:
                continue
            token = f"t{len(there)}"
            order = Launch(token=token, reason="r", offering=offering.name, count=count)
            granted, _ = guard.reserve("m", order)
            there += [(offering.name, zone) for zone in zones[:granted]]
            rows = {
                f"{token}-{number}": row(f"{token}-{number}", offering.name, zone if listed else "")
                for number, zone in enumerate(zones[:granted])
            }
            guard.launched(rows)
            guard.release("m", order)
            if granted:
                assert cost(there, by_zone) <= limit + EXACT


def test_a_zone_that_is_known_counts_with_its_own_price_and_one_that_is_not_with_the_dearest() -> None:
    guard = Guard(Guardrails(max_instances=9, max_usd_per_hour=1.0), OFFERINGS)
    guard.update_prices(known({"a": 0.1, "b": 0.3}))
    guard.update_inventory("m", {"i-1": row("i-1", SPOT.name, "a"), "i-2": row("i-2", SPOT.name, "")})
    count, why = guard.reserve("m", Launch(token="t", reason="r", offering=SPOT.name, count=3))
    assert count == 2, "0.1 and 0.3 run, and 0.3 each may come"
    assert why is not None
    assert why.startswith("0.4000 USD an hour and 0.9000 more exceed 1")


def test_an_offering_whose_dearest_zone_is_above_the_limit_is_forbidden_while_it_is() -> None:
    guard = Guard(Guardrails(max_instances=9, max_usd_per_hour=0.2), OFFERINGS)
    assert guard.forbidden_reason(SPOT.name) is None
    guard.update_prices(known({"a": 0.1, "b": 0.3}))
    assert guard.forbidden_reason(SPOT.name) == "one costs 0.3000 USD an hour, the limit is 0.2"
    guard.update_prices(known({"a": 0.1, "b": 0.15}))
    assert guard.forbidden_reason(SPOT.name) is None


def test_an_unknown_offering_counts_as_the_dearest_at_the_prices_of_now() -> None:
    guard = Guard(Guardrails(max_instances=9, max_usd_per_hour=1.0), OFFERINGS)
    guard.update_prices(known({"a": 0.9}))
    guard.update_inventory("m", {"i-1": row("i-1", "gone:spot", "a")})
    count, why = guard.reserve("m", Launch(token="t", reason="r", offering=SPOT.name, count=1))
    assert count == 0
    assert why == "0.9000 USD an hour and 0.9000 more exceed 1"


def test_no_launch_takes_what_runs_above_the_vcpus_or_gpus_of_the_cap() -> None:
    per_one = ON_DEMAND.instance_type.vcpus
    order = Launch(token="t", reason="r", offering=ON_DEMAND.name, count=5)
    guard = Guard(Guardrails(max_instances=99, max_vcpus=3.0 * per_one), OFFERINGS)
    guard.update_inventory("other", {"i-1": row("i-1", ON_DEMAND.name, "a")})
    assert guard.reserve("m", order) == (2, f"{per_one} vCPUs and {5 * per_one} more exceed {3 * per_one}")
    assert Guard(Guardrails(max_instances=99, max_vcpus=per_one - 1.0), OFFERINGS).forbidden_reason(ON_DEMAND.name)
    assert Guard(Guardrails(max_instances=99, max_gpus=1.0), OFFERINGS).reserve("m", order) == (5, None)
