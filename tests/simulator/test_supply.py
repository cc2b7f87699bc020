"""What can be rented, and the mean latency that plans may reach."""

from __future__ import annotations

import dataclasses

import pytest

from mark.catalog.load import load_prices, load_profiles, model
from mark.domain.errors import Misconfigured
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import OTHER_CALLS, Market
from mark.policies.supply import OverflowLimits, Supply, find_supply


def supply(name: str, slo: Slo | None = None, **asked: object) -> Supply:
    spec = model(name)
    fields: dict[str, object] = {
        "slo": slo or spec.slo,
        "market": Market.SPOT,
        "prices": load_prices(),
        "profiles": load_profiles(name),
    }
    return find_supply(spec, **(fields | asked))  # type: ignore[arg-type]


def test_half_of_the_objective_is_a_default_and_not_a_promise() -> None:
    found = supply("opennmt-ende")

    assert found.slo.mean_latency_s == found.slo.latency_s == 1.4
    assert "no type answers in half of 1400 ms: plans allow a mean of all of it" in found.warnings


def test_half_that_was_asked_for_is_refused_where_nothing_keeps_it() -> None:
    asked = Slo(latency_s=1.4, target=0.98, mean_latency_s=0.7)

    with pytest.raises(Misconfigured, match="no type keeps a mean latency of 700 ms"):
        supply("opennmt-ende", asked)


def test_a_mean_that_some_type_keeps_stays() -> None:
    asked = Slo(latency_s=1.4, target=0.98, mean_latency_s=0.76)

    found = supply("opennmt-ende", asked, types=("paper",))

    assert found.slo == asked
    assert not [text for text in found.warnings if "half" in text]


def test_the_objective_tells_a_default_from_the_same_mean_asked_for() -> None:
    default, asked = Slo(latency_s=0.6, target=0.98), Slo(latency_s=0.6, target=0.98, mean_latency_s=0.3)

    assert (default.mean_latency_s, asked.mean_latency_s) == (0.3, 0.3)
    assert (default.mean_is_default, asked.mean_is_default) == (True, False)
    assert dataclasses.replace(default, target=0.9).mean_is_default
    assert not dataclasses.replace(default, mean_latency_s=0.2).mean_is_default


def test_where_nothing_serves_the_fastest_types_say_why_and_the_others_are_counted() -> None:
    with pytest.raises(Misconfigured) as said:
        supply("inception-v3", Slo(latency_s=0.005, target=0.98))

    assert "within the objective: c5.4xlarge:spot: no batch keeps the objective of 5 ms" in str(said.value)
    assert str(said.value).endswith("takes 122.4 ms; nor can 6 slower")
    assert len(str(said.value)) < 400


def test_lambda_takes_its_limits_and_can_be_switched_off() -> None:
    usual = supply("inception-v3").overflow
    limited = supply("inception-v3", limits=OverflowLimits(concurrency=50, burst=20, memory_gib=1.5)).overflow
    off = supply("inception-v3", limits=None)

    assert usual is not None
    assert usual.concurrency == 1000 - OTHER_CALLS
    assert limited == dataclasses.replace(usual, concurrency=50 - OTHER_CALLS, burst=20, memory_gib=1.5)
    assert off.overflow is None
    assert off.overflow_excuse is not None
    with pytest.raises(Misconfigured, match=r"a function of 0\.25 GiB: inception-v3 needs 0\.6 GiB"):
        supply("inception-v3", limits=OverflowLimits(memory_gib=0.25))


@pytest.mark.parametrize("name", ["resnet-50", "bert-base"])
def test_a_guess_is_what_the_profile_would_say_if_lambda_were_as_fast_as_the_fastest_cpu(name: str) -> None:
    profiles = load_profiles(name)
    slo = Slo(latency_s=30.0, target=0.98)
    found = supply(name, slo, profiles=profiles)
    assert found.lambda_guess is not None
    on_cpus = [one for one in found.on_demand if not one.instance_type.accelerator]
    fastest = min(on_cpus, key=lambda one: one.profile.latency_s(1))
    assert found.lambda_guess.instance_type == fastest.instance_type.name
    on_lambda = dataclasses.replace(fastest.profile, instance_type="lambda")
    measured = supply(name, slo, profiles=dataclasses.replace(profiles, profiles=(*profiles.profiles, on_lambda)))
    assert measured.overflow is not None
    assert found.lambda_guess.overflow == measured.overflow
    assert measured.lambda_guess is None
    assert supply(name, slo, profiles=profiles, limits=None).lambda_guess is None, "the user wants no Lambda"
