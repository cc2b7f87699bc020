"""Named sets of instance types: who is in them, and that nothing retired is rented unless it is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.load import load_models, load_prices, load_profiles, shipped_sets
from mark.catalog.offerings import make_offerings
from mark.catalog.type_sets import TYPE_SETS, check_types, is_retired
from mark.config.policies import chosen_policies
from mark.config.served import DEFAULT_SERVE
from mark.config.settings import Settings
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market
from mark.policies.assemble import Assembly

PRICES = load_prices()
RETIRED = {item.name for item in PRICES.types if is_retired(item)}
EVERYTHING = tuple(name for name in shipped_sets() if name.startswith("assumed-"))


def offered(name, *types, extra=EVERYTHING, market=Market.ON_DEMAND):
    spec = load_models()[name]
    found, excuses = make_offerings(
        spec, slo=spec.slo, prices=PRICES, profiles=load_profiles(name, extra), market=market, types=types
    )
    return {item.instance_type.name for item in found}, {
        item.offering.split(":")[0]: item.reason for item in excuses
    }


def test_current_types_are_the_default_and_a_retired_one_says_why_it_is_left_out():
    for name in load_models():
        assert offered(name) == offered(name, "current")
    assert offered("inception-v3")[1]["p2.xlarge"].startswith("retired by AWS: rented only where it is named")


def test_a_retired_type_that_is_named_serves():
    assert offered("inception-v3", "p2.xlarge", "cpu")[0] >= {"p2.xlarge", "c5.large"}


def test_what_a_set_leaves_out_says_which_set():
    assert offered("resnet-50", "cpu")[1]["g5.xlarge"] == "not among the types of cpu"
    assert offered("resnet-50", "cpu", "paper")[1]["g5.xlarge"] == "not among the types of cpu or paper"


@pytest.mark.parametrize("market", Market)
@pytest.mark.parametrize("name", sorted(load_models()))
def test_no_default_rents_or_keeps_a_retired_type(name, market):
    settings = Settings(model=name, market=market, profiles=EVERYTHING)
    assembly = Assembly(chosen_policies(settings))
    given = assembly.ingredients(Demand(end_at=3600.0, mean_rps=(10.0,) * 60, max_rps=(20.0,) * 60))
    standbys = [policy.offering for policy in (given.standby, given.surge_standby) if policy]

    rented = {item.instance_type.name for item in (*given.offerings, *given.on_demand, *standbys)}
    assert rented
    assert not rented & RETIRED


def test_no_model_of_the_default_service_rents_a_retired_type():
    named = {name for entry in DEFAULT_SERVE if entry.offerings for name in entry.offerings.types}

    assert named
    assert not named & (RETIRED | {"paper"})


@given(names=st.lists(st.sampled_from([*TYPE_SETS, "c5.large", "p2.xlarge", "g4dn.xlarge"]), min_size=1))
def test_several_names_offer_what_each_offers(names):
    each = set().union(*(offered("inception-v3", name)[0] for name in names))
    found, excused = offered("inception-v3", *names)

    assert found == each
    assert not found & set(excused)


def test_an_unknown_set_gets_the_nearest_name():
    with pytest.raises(Misconfigured, match="unknown instance type 'curent'; did you mean 'current'"):
        check_types(("curent",), PRICES)
