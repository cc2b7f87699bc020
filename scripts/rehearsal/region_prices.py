"""Prices of a region that MArk ships none of, as a reader of docs/deploy.md writes them.

No price list is at hand here: the files say that they are a rehearsal's, and have the prices that are shipped.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from mark.catalog.load import load_prices
from mark.catalog.refreshed import format_prices
from scripts.rehearsal.page import HOUSE

CATALOG = HOUSE / "mark" / "catalog" / "data"
PRICES, SERVICES = "prices.json", "services.json"


def lay_prices(folder: Path, region: str) -> None:
    """Write both files into the folder."""
    lay_instance_prices(folder, region)
    lay_service_prices(folder, region)


def lay_instance_prices(folder: Path, region: str) -> None:
    """Write the prices of instances."""
    made = replace(load_prices(), region=region, source="a rehearsal: shipped prices of another region")
    (folder / PRICES).write_text(format_prices(made), encoding="utf-8")


def lay_service_prices(folder: Path, region: str) -> None:
    """Write the prices of all else."""
    [shipped] = CATALOG.glob("services_us_east_1_*.json")
    document = json.loads(shipped.read_text(encoding="utf-8")) | {"region": region}
    (folder / SERVICES).write_text(json.dumps(document), encoding="utf-8")
