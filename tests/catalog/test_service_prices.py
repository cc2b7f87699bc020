"""The shipped table of service prices, and files that somebody wrote."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from mark.catalog.load import load_service_prices
from mark.domain.billing.service_prices import UNITS, ServiceItem
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Evidence, Provenance
from mark.domain.offerings.offering import LambdaOffering

SHIPPED = Path("mark/catalog/data/services_us_east_1_2026-11-22.json")
ENTRY = {"item": "ebs-gp3", "usd": 0.09, "unit": "GiB-month", "date": "2026-11-22", "url": "https://example.com"}


def write(folder: Path, *entries: dict[str, Any], region: str = "eu-west-1") -> Path:
    file = folder / "services.json"
    head = {"format": "mark-service-prices/1", "region": region, "date": "2026-11-22"}
    file.write_text(json.dumps(head | {"prices": list(entries)}))
    return file


def test_every_item_has_a_price_with_its_source() -> None:
    entries = json.loads(SHIPPED.read_text())["prices"]
    assert {entry["item"] for entry in entries} == {item.value for item in ServiceItem}
    assert UNITS.keys() == set(ServiceItem)
    assert all(entry["url"].startswith("https://") and entry["date"] for entry in entries)


def test_prices_of_lambda_are_those_that_its_offerings_have() -> None:
    price = load_service_prices("us-east-1").price
    offering = LambdaOffering(
        latency_s=0.1, provenance=Provenance(evidence=Evidence.ASSUMED, source="a test", formula="x")
    )
    assert offering.usd_per_request == price(ServiceItem.LAMBDA_REQUEST)
    assert offering.usd_per_gib_s == price(ServiceItem.LAMBDA_DURATION)
    assert offering.usd_per_provisioned_gib_s == price(ServiceItem.LAMBDA_PROVISIONED)


def test_a_region_of_ones_own(tmp_path: Path) -> None:
    prices = load_service_prices("eu-west-1", write(tmp_path, ENTRY))
    assert prices.price(ServiceItem.DISK) == 0.09
    with pytest.raises(Misconfigured, match="no price of nlb in eu-west-1: add it, in USD per hour"):
        prices.price(ServiceItem.BALANCER)
    with pytest.raises(Misconfigured, match=r"no price of elasticache-valkey cache.x in eu-west-1"):
        prices.price(ServiceItem.VALKEY_NODE, "cache.x")


@pytest.mark.parametrize(
    ("entries", "mistake"),
    [
        ([ENTRY | {"unit": "GiB"}], "ebs-gp3 is priced by the GiB-month, not by the GiB"),
        ([ENTRY, ENTRY], "price ebs-gp3 stands twice"),
        ([ENTRY | {"usd": 0}], "usd"),
        ([ENTRY | {"url": ""}], "url"),
        ([ENTRY | {"item": "ebs-gp9"}], "item"),
    ],
    ids=["unit", "twice", "free", "no source", "unknown item"],
)
def test_mistakes_of_a_file_are_named(tmp_path: Path, entries: list[dict[str, Any]], mistake: str) -> None:
    with pytest.raises(Misconfigured, match=mistake):
        load_service_prices("eu-west-1", write(tmp_path, *entries))


def test_a_file_of_another_region_and_a_region_without_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="has the prices of eu-west-1, and instances are priced in us-east-1"):
        load_service_prices("us-east-1", write(tmp_path, ENTRY))
    with pytest.raises(Misconfigured, match=r"cost in eu-west-1: .* name the file as `service_prices`") as refused:
        load_service_prices("eu-west-1")
    (command,) = re.findall(r"by `([^`]+)`", str(refused.value))
    copy, source, _ = shlex.split(command)
    made = Path(shutil.copy(source, tmp_path / "services.json"))
    made.write_text(made.read_text().replace('"us-east-1"', '"eu-west-1"'))
    assert copy == "cp"
    assert load_service_prices("eu-west-1", made).region == "eu-west-1"
