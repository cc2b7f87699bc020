"""Variants in policies: what plans count on, what may answer, and requests for variants that cannot be met."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.catalog.load import load_variants, model
from mark.cloudmodel.world import TYPICAL
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.dispatch.central.policy import CentralRule
from mark.dispatch.policy import Routing
from mark.dispatch.rules import CentralDispatch, parse_rule, rule_names
from mark.dispatch.variants.qos import QosRule
from mark.dispatch.variants.serving import VariantDispatch
from mark.dispatch.variants.slackfit import VariantRule
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import sizes_from_formula
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.policies.assemble import Assembly, profiles_and_variants
from mark.policies.bundles import STATIC_PEAK
from mark.policies.spec import PolicySpec, VariantWishes


def spec(name: str = "supernet", **wishes: object) -> PolicySpec:
    known = model(name)
    return PolicySpec(
        model=known,
        slo=known.slo,
        market=Market.ON_DEMAND,
        footprint=footprint_of(Settings()),
        variants=VariantWishes(**wishes),  # type: ignore[arg-type]
    )


def counted(asked: PolicySpec) -> set[str]:
    """Variants of the profiles that plans count on."""
    return {profile.variant for profile in profiles_and_variants(asked)[0].profiles}


def test_plans_count_on_the_most_accurate_variant_or_on_that_of_the_floor_or_on_the_fixed_one():
    table = load_variants("supernet")
    assert table is not None
    assert counted(spec()) == {table.names[-1]}
    floor = table.variants[4]
    assert counted(spec(accuracy_floor=floor.accuracy)) == {table.names[table.floor_number(floor.accuracy)]}
    assert counted(spec(dispatch=VariantDispatch(VariantRule.FIXED, table.names[2]))) == {table.names[2]}


def test_a_model_without_variants_is_as_before_and_nothing_may_be_asked_of_them():
    profiles, serving = profiles_and_variants(spec("inception-v3"))
    assert serving is None
    assert {profile.variant for profile in profiles.profiles} == {"base"}
    assert profiles == profiles_and_variants(replace(spec("inception-v3"), variants=None))[0]
    with pytest.raises(
        Misconfigured, match=r"inception-v3 has no variants, which the accuracy floor \(--accuracy-floor, "
    ):
        profiles_and_variants(spec("inception-v3", accuracy_floor=0.9))
    with pytest.raises(Misconfigured, match="has no variants, which the dispatch rule maxacc is about"):
        profiles_and_variants(spec("inception-v3", dispatch=VariantDispatch(VariantRule.MAXACC)))


@pytest.mark.parametrize(
    ("latency_s", "counted_on"),
    # with the noise of the typical world more accurate variants are too slow for 8 ms
    [(0.036, "d4-3-e0.75-w1"), (0.008, "d2-2-e0.75-w1")],
)
def test_a_fleet_that_is_sized_once_counts_on_the_most_accurate_variant_that_keeps_the_objective(
    latency_s: float, counted_on: str
):
    asked = spec(accuracy_floor=0.95)
    assembly = Assembly(replace(asked, slo=Slo(latency_s=latency_s, target=0.98), world=TYPICAL))
    history = Demand(end_at=3600.0, mean_rps=(100.0,) * 60, max_rps=(120.0,) * 60)

    bundle = assembly.bundle(STATIC_PEAK, assembly.ingredients(history))

    assert {offering.profile.variant for offering in bundle.controller.offerings} == {counted_on}


def test_what_packs_pods_takes_no_variants():
    assembly = Assembly(spec())
    history = Demand(end_at=3600.0, mean_rps=(100.0,) * 60, max_rps=(120.0,) * 60)
    with pytest.raises(Misconfigured, match="kubernetes-packed packs no pods"):
        assembly.bundle("kubernetes-packed", assembly.ingredients(history))


def test_what_no_variant_can_keep_is_refused():
    with pytest.raises(Misconfigured, match=r"no variant of supernet has an accuracy of 0\.999"):
        profiles_and_variants(spec(accuracy_floor=0.999))
    with pytest.raises(Misconfigured, match="huge"):
        profiles_and_variants(spec(dispatch=VariantDispatch(VariantRule.FIXED, "huge")))
    sized = spec()
    sized = replace(sized, model=replace(sized.model, sizes=sizes_from_formula("constant:3")))
    with pytest.raises(Misconfigured, match="its requests are of one item"):
        profiles_and_variants(sized)


@pytest.mark.parametrize("name", [name for name in rule_names() if not name.endswith(("VARIANT", "SIZE"))])
def test_every_rule_is_read_as_it_is_written(name: str):
    assert str(parse_rule(name)) == name


def test_a_rule_of_one_variant_names_it_and_an_unknown_rule_is_refused():
    assert parse_rule("fixed:small") == VariantDispatch(VariantRule.FIXED, "small")
    assert parse_rule("central:fixed:small") == VariantDispatch(VariantRule.FIXED, "small", is_central=True)
    for text in ("central:weighted", "central:kairos"):
        with pytest.raises(Misconfigured, match="stands before a rule that chooses variants"):
            parse_rule(text)
    assert parse_rule("weighted") is Routing.WEIGHTED
    assert parse_rule("drs:64") == CentralDispatch(CentralRule.DRS, 64)
    assert str(parse_rule("drs:64")) == "drs:64"
    for text in ("drs", "drs:", "drs:0", "drs:many"):
        with pytest.raises(Misconfigured, match=r"needs the size .* such as drs:64"):
            parse_rule(text)
    assert parse_rule("qos-rl") == VariantDispatch(QosRule.LEARNED)
    for text in ("fixed", "fixed:", "slackfi"):
        with pytest.raises(Misconfigured, match="unknown dispatch rule"):
            parse_rule(text)
