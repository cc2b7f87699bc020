"""The file of commitments: what it says is counted, and bad ones are one line that says what to do."""

from __future__ import annotations

import json
import math
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from mark.catalog.commitment_file import file_of, load_commitments
from mark.config.carried import carried_settings, carry_files
from mark.config.footprint import footprint_of
from mark.config.settings import load_settings
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import Misconfigured
from tests.domain.commitments.test_commitments import CAPACITY, OWNED, PRICES

PAGE = Path(__file__).parents[2] / "docs" / "saving.md"
PLAN = {"name": "a", "kind": "compute", "usd_per_hour": 1.0}


def written(folder: Path, **changes: object) -> Path:
    path = folder / "owned.json"
    path.write_text(json.dumps({"format": "mark-commitments/1", "savings_plans": [PLAN], **changes}))
    return path


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "owned.json"
    path.write_text(text)
    found = load_commitments(path)
    assert [plan.name for plan in found.plans] == ["all", "c5"]
    assert found.usd_per_hour == pytest.approx(0.3 + 0.8 + 2 * 0.107 + 0.054)
    assert found.assumed == ("c5",)
    assert [(item.name, item.count, item.zone) for item in found.capacity_reservations] == [
        ("kept", 3.0, "us-east-1b")
    ]
    assert found.plans[0].ends_at == pytest.approx(found.plans[0].starts_at + 365 * 86_400.0)


def test_a_service_counts_its_share(tmp_path: Path) -> None:
    found = load_commitments(written(tmp_path, share=0.25))
    assert found.plans[0].usd_per_hour == 0.25
    assert found.plans[0].discount_on(Compute.LAMBDA) == 0.12


@given(OWNED, CAPACITY)
def test_a_file_that_is_written_reads_as_what_it_was_written_of(owned: Commitments, kept) -> None:
    whole = [replace(item, count=math.ceil(item.count), zone=f"us-east-1{item.zone[-1]}") for item in kept]
    owned = replace(owned, capacity_reservations=tuple(whole), zones=1)
    held = owned.share(1.0)  # what is left with nothing is left out
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "owned.json"
        path.write_text(json.dumps(file_of(held)))
        assert load_commitments(path).with_prices(PRICES) == held


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"share": 0}, "share"),
        ({"savings_plans": [{**PLAN, "kind": "ec2-instance"}]}, "names its family"),
        ({"savings_plans": [{**PLAN, "usd_per_hour": -1}]}, "usd_per_hour"),
        ({"savings_plans": [{**PLAN, "years": 2}]}, "years"),
        ({"savings_plans": [PLAN, PLAN]}, "two commitments are called a"),
        ({"reserved": []}, "reserved"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    with pytest.raises(Misconfigured) as found:
        load_commitments(written(tmp_path, **changes))
    assert why in str(found.value)
    assert "\n" not in str(found.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot read the commitments"):
        load_commitments(tmp_path / "none.json")


def test_settings_name_it_from_their_folder_and_it_goes_to_the_account(tmp_path: Path) -> None:
    written(tmp_path)
    config = tmp_path / "mark.yaml"
    config.write_text("model: inception-v3\naccount: {commitments: owned.json}\n")
    settings = load_settings(config, {})
    assert footprint_of(settings).commitments.usd_per_hour == 1.0
    told, files = carry_files(settings, ())
    there = carried_settings(told.model_dump_json(), files, tmp_path / "there")
    assert footprint_of(there).commitments == footprint_of(settings).commitments
