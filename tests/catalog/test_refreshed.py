"""Prices told now over a snapshot: what is not told stays, and the file is read back as it was written."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.load import load_prices
from mark.catalog.refreshed import Quotes, age_days, format_prices, refresh

FLOOR = load_prices()
DAY = date(2026, 11, 21)
PRICES = st.dictionaries(
    st.sampled_from([item.name for item in FLOOR.types]), st.floats(1e-4, 100, allow_nan=False), max_size=8
)


def quotes(on_demand=None, spot=None, region="us-east-1"):
    return Quotes(region=region, day=DAY, on_demand=on_demand or {}, spot=spot or {})


@given(on_demand=PRICES, spot=PRICES)
def test_what_is_told_counts_and_all_else_stays(on_demand, spot):
    found = refresh(FLOOR, quotes(on_demand, spot))
    assert [item.name for item in found.types] == [item.name for item in FLOOR.types]
    assert found.date == "2026-11-21"
    for item, before in zip(found.types, FLOOR.types, strict=True):
        wanted = on_demand.get(item.name, before.on_demand_usd_per_hour)
        assert item.on_demand_usd_per_hour == pytest.approx(wanted, abs=1e-8)
        if item.spot_usd_per_hour is not None:
            told = spot.get(item.name, before.spot_usd_per_hour)
            assert item.spot_usd_per_hour == pytest.approx(min(told, wanted), abs=1e-8)
        else:
            assert item.name not in spot


def test_a_written_file_is_read_back(tmp_path):
    found = refresh(FLOOR, quotes({"c5.large": 0.09}, {"c5.large": 0.02}))
    path = tmp_path / "prices.json"
    path.write_text(format_prices(found))
    again = load_prices(path)
    assert again.types == found.types
    assert (again.region, again.date) == ("us-east-1", "2026-11-21")
    assert "for 1 of" in again.source
    assert FLOOR.date in again.source


def test_another_region_has_the_types_that_are_quoted_there():
    found = refresh(FLOOR, quotes({"c5.large": 0.1}, region="eu-central-1"))
    assert [item.name for item in found.types] == ["c5.large"]
    assert found.region == "eu-central-1"
    assert found.types[0].spot_usd_per_hour is None


def test_age_counts_days():
    assert age_days(FLOOR, date(2026, 7, 30)) == 10
    assert age_days(FLOOR, date(2020, 1, 1)) == 0
