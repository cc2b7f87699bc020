"""The shipped snapshot against its source, and the invariants of any price file."""

import csv
import json

import pytest

from mark.catalog.load import load_prices
from mark.domain.errors import Misconfigured
from scripts.build_catalog import MORE_TYPES
from tests.tables import rows

C5 = {
    "instance_type": "c5.large",
    "vcpus": 2,
    "memory_gib": 4,
    "architecture": "amd64",
    "on_demand_usd_per_hour": 0.085,
    "spot_usd_per_hour": 0.035,
    "spot_interruption_percent_per_month": 2.5,
}


def write(folder, *types, **changes):
    document = {
        "format": "mark-prices/1",
        "region": "us-east-1",
        "date": "2026-01-01",
        "sources": {"on_demand": "a test"},
        "types": list(types),
    }
    path = folder / "prices.json"
    path.write_text(json.dumps(document | changes))
    return path


def test_every_row_of_the_source_is_there(data_dir):
    source = [*rows(data_dir / "catalog" / "ec2_us_east_1.csv"), *csv.DictReader(MORE_TYPES.splitlines())]
    prices = load_prices()
    assert sorted(row["instance_type"] for row in source) == [item.name for item in prices.types]
    for row in source:
        item = prices.instance_type(row["instance_type"])
        assert (item.vcpus, item.memory_gib) == (int(row["vcpus"]), float(row["memory_gib"]))
        assert item.architecture == (row["arch"] or "amd64")
        assert item.accelerator.lower() == row["accelerator"].lower()
        assert item.accelerator_count == int(row["accelerator_count"] or 0)
        assert item.on_demand_usd_per_hour == float(row["on_demand_usd_per_hour"])
        spot = row["spot_usd_per_hour_est_2025"]
        assert item.spot_usd_per_hour == (float(spot) if spot else None)


def test_every_accelerator_has_its_memory_and_a_part_of_one_has_that_part():
    prices = load_prices()
    for item in prices.types:
        assert bool(item.accelerator) == (item.accelerator_memory_gib is not None), item.name
    whole = prices.instance_type("g6.xlarge").accelerator_memory_gib
    parts = {name: prices.instance_type(f"g6f.{name}").accelerator_memory_gib for name in ("large", "2xlarge")}
    assert parts == {"large": pytest.approx(whole / 8, abs=0.01), "2xlarge": pytest.approx(whole / 4, abs=0.01)}


def test_interruption_rates_are_midpoints_of_their_buckets():
    prices = load_prices()
    rates = {
        name: prices.instance_type(name).spot_interruption_rate for name in ("c5.large", "t3.xlarge", "p2.xlarge")
    }
    assert rates == {"c5.large": 0.025, "t3.xlarge": 0.125, "p2.xlarge": 0.225}
    assert prices.instance_type("t2.nano").spot_interruption_rate is None


def test_credits_of_burstable_types_follow_the_guide():
    prices = load_prices()
    burstable = [item for item in prices.types if item.credits]
    assert {item.name.split(".")[0] for item in burstable} == {"t2", "t3", "t3a", "t4g"}
    for item in burstable:
        assert item.credits.earn_per_hour == pytest.approx(item.vcpus * item.credits.baseline * 60)
        assert item.credits.max_balance == pytest.approx(24 * item.credits.earn_per_hour)
    t2, t3, t4g = (prices.instance_type(name).credits for name in ("t2.2xlarge", "t3.xlarge", "t4g.small"))
    assert (t2.earn_per_hour, t2.max_balance, t2.launch_credits) == (81.6, 1958.4, 240.0)
    assert (t2.keeps_when_stopped, t2.unlimited) == (False, False)
    assert (t3.earn_per_hour, t3.max_balance, t3.launch_credits) == (96.0, 2304.0, 0.0)
    assert (t3.keeps_when_stopped, t3.unlimited, t3.surplus_usd_per_vcpu_hour) == (True, True, 0.05)
    assert t4g.surplus_usd_per_vcpu_hour == 0.04


def test_the_snapshot_says_where_and_when():
    prices = load_prices()
    assert (prices.region, prices.date) == ("us-east-1", "2026-07-20")
    assert "zz_generated.pricing_aws.go" in prices.source
    assert "estimate" in prices.source


def test_an_unknown_type_gets_the_nearest_name():
    with pytest.raises(Misconfigured, match=r"unknown instance type 'c5\.larg'; did you mean 'c5\.large'"):
        load_prices().instance_type("c5.larg")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"on_demand_usd_per_hour": 0},
            "the type c5.large: on_demand_usd_per_hour should be greater than 0, not 0",
        ),
        ({"spot_usd_per_hour": 0.09}, "c5.large: spot price above on-demand price"),
        ({"on_demand_usd_per_hour": float("nan")}, "finite"),
        ({"colour": "red"}, "the type c5.large: unknown key 'colour'"),
        ({"accelerator": "T4"}, "needs its count"),
        ({"accelerator_memory_gib": 16}, "memory of an accelerator, and none is named"),
        ({"spot_interruption_percent_per_month": 100}, "less than 100"),
    ],
)
def test_a_broken_row_is_one_line_that_names_it(tmp_path, changed, said):
    path = write(tmp_path, C5 | changed)
    with pytest.raises(Misconfigured, match=said) as caught:
        load_prices(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_type_stands_once(tmp_path):
    with pytest.raises(Misconfigured, match=r"c5\.large stands twice"):
        load_prices(write(tmp_path, C5, C5))


def test_a_file_that_is_not_there_or_not_json(tmp_path):
    with pytest.raises(Misconfigured, match="cannot be read"):
        load_prices(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": ')
    with pytest.raises(Misconfigured, match="not readable as JSON"):
        load_prices(broken)


def test_a_user_s_prices_are_read(tmp_path):
    prices = load_prices(write(tmp_path, C5))
    assert [item.name for item in prices.types] == ["c5.large"]
    assert prices.source == "on_demand: a test"
