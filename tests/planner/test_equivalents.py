"""Whatever comes in place of a planned type carries what was planned, for hardly more, from the same template."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offerings.offering import Market, Offering
from mark.domain.offerings.quota import quota_family
from mark.planner.equivalents import equivalents
from tests.planner.builders import offering

NAMES = ("c5.large", "c5a.large", "c6g.large", "g4dn.xlarge", "m5.large", "m5.xlarge")


@st.composite
def offerings(draw: st.DrawFn, name: str) -> Offering:
    batch = draw(st.integers(1, 4))
    made = offering(
        name,
        rps=draw(st.floats(1.0, 20.0)),
        usd_per_hour=draw(st.floats(0.05, 0.2)),
        batch=batch,
        points={n: draw(st.floats(0.01, 0.2)) for n in range(1, draw(st.integers(batch, 6)) + 1)},
    )
    kind = replace(
        made.instance_type,
        vcpus=draw(st.sampled_from((2, 4))),
        architecture="arm64" if name.startswith("c6g") else "amd64",
        accelerator="T4" if name.startswith("g4dn") else "",
    )
    market, zone = draw(st.sampled_from(tuple(Market))), draw(st.sampled_from(("any", "us-east-1a")))
    return replace(made, instance_type=kind, market=market, zone=zone)


@given(
    planned=offerings("c5.large"),
    others=st.tuples(*(offerings(name) for name in NAMES)),
    factor=st.floats(1.0, 1.5),
)
def test_no_equivalent_is_slower_dearer_of_another_template_or_takes_more_of_a_quota(
    planned: Offering, others: tuple[Offering, ...], factor: float
) -> None:
    found = equivalents(planned, others, factor)
    for item in found:
        assert item.instance_type.name != planned.instance_type.name
        assert item.usd_per_hour <= factor * planned.usd_per_hour
        assert item.capacity_rps >= planned.capacity_rps
        for batch in range(1, planned.batch.max_batch + 1):
            assert item.profile.latency_s(batch) <= planned.profile.latency_s(batch)
        assert item.instance_type.machine == planned.instance_type.machine
        assert (item.market, item.zone) == (planned.market, planned.zone)
        assert item.instance_type.vcpus <= planned.instance_type.vcpus
        one, other = (quota_family(o.instance_type.name, o.market) for o in (item, planned))
        assert one == other
    assert found == equivalents(planned, tuple(reversed(others)), factor)


@given(planned=offerings("c5.large"), factor=st.floats(1.0, 1.5))
def test_the_same_machine_under_another_name_is_an_equivalent(planned: Offering, factor: float) -> None:
    twin = replace(planned, instance_type=replace(planned.instance_type, name="c5a.large"))
    assert equivalents(planned, (planned, twin), factor) == (twin,)
