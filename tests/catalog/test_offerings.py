"""Which types become offerings, which get an Excuse, and Lambda."""

from dataclasses import replace

import pytest

from mark.catalog.load import ProfileSet, load_prices, load_profiles, model
from mark.catalog.offerings import make_lambda, make_offerings, standby_offering
from mark.cloudmodel.world import IDEAL, TYPICAL, World
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import sizes_from_formula
from mark.domain.models.objective import Slo
from mark.domain.models.profile import Evidence, LatencyPoint, Parallelism, Profile, Provenance
from mark.domain.offerings.offering import Market, Offering

PRICES = load_prices()


def offer(name, *, market=Market.ON_DEMAND, extra=(), types=(), spec=None, slo=None, profiles=None):
    spec = spec or model(name)
    offerings, excuses = make_offerings(
        spec,
        slo=slo or spec.slo,
        prices=PRICES,
        profiles=profiles or load_profiles(name, extra),
        market=market,
        types=types,
    )
    return {o.instance_type.name: o for o in offerings}, {e.offering.split(":")[0]: e.reason for e in excuses}


def made(*instance_types, ms=10.0):
    said = Provenance(evidence=Evidence.MEASURED, source="a test")
    points = (LatencyPoint(batch=1, latency_s=ms / 1000),)
    return ProfileSet(
        model="inception-v3",
        profiles=tuple(
            Profile(model="inception-v3", instance_type=name, points=points, provenance=said)
            for name in sorted(instance_types)
        ),
    )


def test_inception_on_demand():
    offerings, excuses = offer("inception-v3", types=("paper",))
    assert sorted(offerings) == ["c5.2xlarge", "c5.4xlarge", "c5.large", "c5.xlarge", "p2.xlarge"]
    assert set(excuses) == {"t2.large", "t2.medium", "t2.micro", "t2.small"}
    assert set(excuses.values()) == {"burstable: stands by only"}
    c5 = offerings["c5.large"]
    assert (c5.usd_per_hour, c5.batch.max_batch, c5.boot_s) == (0.085, 1, 150.0)
    assert c5.capacity_rps == pytest.approx(4.733, abs=5e-4)
    # 150 s from launch to serving, 15 s of them pending and free: 135 s at 0.085 USD/h.
    assert c5.launch_usd == pytest.approx(0.085 * 135 / 3600)
    gpu = offerings["p2.xlarge"]
    assert gpu.batch.max_batch == 8
    assert gpu.capacity_rps == pytest.approx(55.333, abs=5e-3)


def test_spot_costs_the_spot_price_and_may_be_taken_away():
    offerings, _ = offer("inception-v3", market=Market.SPOT)
    assert offerings["c5.large"].usd_per_hour == 0.03485
    assert offerings["c5.large"].name == "c5.large:spot"
    assert offerings["c5.large"].hazard_per_hour > 0


def test_a_type_too_slow_is_excused_with_the_numbers():
    offerings, excuses = offer("opennmt-ende", types=("paper",))
    assert "c5.xlarge" not in offerings
    assert excuses["c5.xlarge"] == "no batch keeps the objective of 1400 ms: the smallest, of 2, takes 1500 ms"
    assert sorted(offerings) == ["c5.2xlarge", "c5.4xlarge", "p2.xlarge"]


def test_named_burstable_types_serve():
    offerings, excuses = offer("inception-v3", extra=("assumed-t3",), types=("t3.medium", "c5.large"))
    assert (sorted(offerings), excuses) == (["c5.large", "t3.medium"], {})
    assert offerings["t3.medium"].profile.provenance.evidence is Evidence.ASSUMED


def test_a_named_type_without_profile_is_an_error():
    with pytest.raises(Misconfigured, match=r"no profile of inception-v3 on m5\.large"):
        offer("inception-v3", types=("m5.large",))
    with pytest.raises(Misconfigured, match=r"unknown instance type 'c5\.larg'"):
        offer("inception-v3", types=("c5.larg",))


def test_types_that_cannot_hold_or_sell_the_model_are_excused():
    profiles = made("c6g.large", "g6.xlarge", "z9.large", "c5.large")
    offerings, excuses = offer("inception-v3", profiles=profiles)
    assert list(offerings) == ["c5.large"]
    assert excuses["c6g.large"] == "arm64, the model runs on amd64"
    assert excuses["g6.xlarge"] == "the model does not use the L4"
    assert excuses["z9.large"] == "no price in the snapshot of us-east-1, 2026-07-20"
    big = replace(model("inception-v3"), memory_gib=8.0)
    assert offer("inception-v3", spec=big, profiles=made("c5.large"))[1] == {
        "c5.large": "4 GiB of memory, the model needs 8"
    }
    gpu_only = replace(model("inception-v3"), cpu=False)
    assert offer("inception-v3", spec=gpu_only, profiles=made("c5.large"))[1] == {
        "c5.large": "no accelerator, the model needs one"
    }
    small = replace(model("inception-v3"), memory_gib=0.2)
    found = offer("inception-v3", spec=small, profiles=made("t2.nano"), types=("t2.nano",), market=Market.SPOT)
    assert found == ({}, {"t2.nano": "no spot price in the snapshot"})


@pytest.mark.parametrize(
    "name", ["ncf", "rm2", "wnd", "mtwnd", "dien", "nasnet", "lstm-ptb", "resnet-50", "bert-base"]
)
def test_every_model_has_an_offering_and_every_type_an_answer(name):
    for market in Market:
        offerings, excuses = offer(name, market=market)
        assert offerings
        assert sorted([*offerings, *excuses]) == sorted(load_profiles(name).instance_types)
        for item in offerings.values():
            assert item.latency_s + item.batch.max_wait_s <= model(name).slo.latency_s + 1e-9


def test_a_standby_wakes_sooner_and_rents_on_demand():
    spec = model("inception-v3")
    found = standby_offering(
        spec, slo=spec.slo, prices=PRICES, profiles=load_profiles(spec.name), instance_type="t2.medium"
    )
    assert (found.name, found.boot_s, found.usd_per_hour) == ("t2.medium:on-demand", 75.0, 0.0464)
    # 75 s, 15 of them pending: 60 s at 0.0464 USD/h.
    assert found.launch_usd == pytest.approx(0.0464 / 60)
    with pytest.raises(Misconfigured, match=r"t2\.micro cannot stand by for inception-v3: no batch keeps"):
        standby_offering(
            spec,
            slo=Slo(latency_s=0.2, target=0.98),
            prices=PRICES,
            profiles=load_profiles(spec.name),
            instance_type="t2.micro",
        )


def test_lambda_in_time():
    spec = model("inception-v3")
    offering, excuse = make_lambda(spec, load_profiles(spec.name), spec.slo)
    assert (offering.latency_s, offering.memory_gib, excuse) == (pytest.approx(0.38), 3.0, None)
    assert offering.usd_per_warm_request == pytest.approx(19.2e-6, rel=1e-4)


def test_lambda_beyond_the_objective_stays_and_says_so():
    spec = model("opennmt-ende")
    offering, excuse = make_lambda(spec, load_profiles(spec.name), spec.slo)
    assert offering.latency_s == pytest.approx(3.1)
    assert excuse.reason == "takes 3100 ms, beyond the objective of 1400 ms: what overflows is late"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory_gib": 10.5}, "needs 10.5 GiB of memory, Lambda has 10 at most"),
        ({"payload_mib": 6.5}, "a request has 6.5 MiB, Lambda takes 6 at most"),
        ({"cpu": False}, "needs an accelerator, Lambda has none"),
    ],
)
def test_a_model_that_does_not_fit_lambda(changes, said):
    spec = replace(model("inception-v3"), **changes)
    offering, excuse = make_lambda(spec, load_profiles(spec.name), spec.slo)
    assert offering is None
    assert excuse.reason == said


def test_a_model_nobody_profiled_on_lambda():
    spec = model("nasnet")
    offering, excuse = make_lambda(spec, load_profiles(spec.name), spec.slo)
    assert (offering, excuse.reason) == (
        None,
        "no profile of nasnet on lambda; `mark profile --as lambda` measures it",
    )


def test_a_type_that_is_in_time_only_when_it_is_idle_takes_one_request_at_a_time() -> None:
    """Where answers vary, whoever comes while one is given would be late: no batch forms."""
    spec = replace(model("inception-v3"), slo=Slo(latency_s=1.4, target=0.98))
    said = Provenance(evidence=Evidence.MEASURED, source="a test")
    points = (LatencyPoint(batch=2, latency_s=1.1),)
    profile = Profile(model=spec.name, instance_type="c5.large", points=points, provenance=said)
    known = ProfileSet(model=spec.name, profiles=(profile,))
    quick = replace(known, profiles=(replace(profile, points=(LatencyPoint(batch=2, latency_s=0.9),)),))
    asked = {"slo": spec.slo, "prices": PRICES, "market": Market.ON_DEMAND, "types": ("c5.large",)}

    def offering(profiles: ProfileSet, world: World) -> Offering:
        ((found,), _) = make_offerings(spec, profiles=profiles, world=world, **asked)
        return found

    assert (offering(known, IDEAL).batch.max_batch, offering(known, IDEAL).capacity_rps) == (2, 2 / 1.1)
    assert (offering(known, TYPICAL).batch.max_batch, offering(known, TYPICAL).capacity_rps) == (1, 1 / 1.1)
    assert offering(quick, TYPICAL).batch.max_batch == 2


def sized(name, spec):
    return replace(model(name), sizes=sizes_from_formula(spec))


def test_a_type_must_answer_the_sizes_that_the_objective_counts():
    small, _ = offer("rm2", spec=sized("rm2", "constant:20"))
    large, excuses = offer("rm2", spec=sized("rm2", "constant:900"))
    assert set(large) < set(small)
    assert "r5n.large" in small
    assert "a request of 900 items" in excuses["r5n.large"]
    assert "beyond the objective" in excuses["r5n.large"]


def test_capacity_counts_requests_of_their_sizes():
    items, requests = (offer("rm2", spec=sized("rm2", f"constant:{n}"))[0]["g4dn.xlarge"] for n in (1, 50))
    assert requests.batch == items.batch
    assert requests.capacity_rps == pytest.approx(items.capacity_rps / 50, rel=0.2)


def test_one_item_each_is_no_size_at_all():
    plain, sized_ = offer("rm2")[0], offer("rm2", spec=sized("rm2", "constant:1"))[0]
    for name, offering in plain.items():
        assert sized_[name].capacity_rps == pytest.approx(offering.capacity_rps)


def test_lambda_takes_no_requests_of_several_items():
    known = load_profiles("inception-v3")
    spec = sized("inception-v3", "constant:2")
    found, excuse = make_lambda(spec, known, spec.slo)
    assert found is None
    assert excuse.reason == "its profile is of one item, a request has up to 2"
    assert make_lambda(sized("inception-v3", "constant:1"), known, spec.slo)[0] is not None


def replicated(instance_type, replicas, threads):
    (one,) = made(instance_type).profiles
    chosen = replace(one, parallelism=Parallelism(replicas, threads))
    return ProfileSet(model="inception-v3", profiles=(chosen,))


def test_a_type_needs_the_processors_and_the_memory_of_its_profile_s_replicas():
    spec = replace(model("inception-v3"), memory_gib=3.0)

    assert "c5.xlarge" in offer("", spec=spec, profiles=replicated("c5.xlarge", 2, 2))[0]
    _, excuses = offer("", spec=spec, profiles=replicated("c5.xlarge", 4, 1))
    assert excuses["c5.xlarge"] == "8 GiB of memory, 4 replicas of the model need 12"
    with pytest.raises(Misconfigured, match=r"4x2 \(replicas x threads\) needs 8 processors, c5.xlarge has 4"):
        offer("", spec=spec, profiles=replicated("c5.xlarge", 4, 2))


def test_requests_with_sizes_are_not_for_replicas_which_divide_single_items():
    spec = replace(model("inception-v3"), sizes=sizes_from_formula("constant:4"))
    _, excuses = offer("", spec=spec, profiles=replicated("c5.xlarge", 2, 2))

    assert "divide a batch of single items, and a request has up to 4" in excuses["c5.xlarge"]
