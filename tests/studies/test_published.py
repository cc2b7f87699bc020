"""The published numbers are what the tables and the text of the paper say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.studies import published
from mark.studies.published import BATCHING, MODELS, ONDEMAND, SAGEMAKER, SPOT, SYSTEMS, TABLE5, TEXT_RATIO
from tests.tables import rows

LSTM_TEXT, LSTM_TABLE = 6.64, 6.54


def name(model: str) -> str:
    return model.replace("_", "-")


def test_table5(published_dir: Path) -> None:
    found = {
        (name(row["model"]), row["system"]): (row["ec2_usd"], row["lambda_usd"], row["total_usd"])
        for row in rows(published_dir / "mark_table5_cost.csv")
    }
    assert {key: tuple(float(v) if v else None for v in values) for key, values in found.items()} == {
        key: (cost.ec2_usd, cost.lambda_usd, cost.total_usd) for key, cost in TABLE5.items()
    }


@pytest.mark.parametrize(
    ("item", "system"), [("cost reduction MArk-ondemand", ONDEMAND), ("cost reduction MArk-spot", SPOT)]
)
def test_ratios_of_the_text(published_dir: Path, item: str, system: str) -> None:
    row = next(row for row in rows(published_dir / "mark_other_numbers.csv") if row["item"] == item)
    assert [float(v) for v in row["value"].split(";")] == [TEXT_RATIO[model, system] for model in MODELS]


def test_claims_and_script(published_dir: Path) -> None:
    said = {row["item"]: row for row in rows(published_dir / "mark_other_numbers.csv")}
    assert float(said["latency reduction max MArk-ondemand"]["value"]) == published.LATENCY_CUT_PERCENT[ONDEMAND]
    assert float(said["latency reduction max MArk-spot"]["value"]) == published.LATENCY_CUT_PERCENT[SPOT]
    surges = tuple(float(v) / 100 for v in said["surge test"]["value"].split(";"))
    assert surges == published.SURGES
    lost = tuple(float(v) / 100 for v in said["spot interruption test"]["value"].split(";"))
    assert lost == published.LOST_SHARES
    assert f"of {published.SPOT_FLEET} instances" in said["spot interruption test"]["unit"]
    assert f"minute {published.SURGE_MINUTE}" in said["surge test"]["note"]
    assert f"notice in minute {published.NOTICE_MINUTE}" in said["spot interruption test"]["note"]
    assert f"ready in minute {published.REPLACED_MINUTE}" in said["spot interruption test"]["note"]


def test_batching(published_dir: Path) -> None:
    for row in rows(published_dir / "mark_models_slo_batching.csv"):
        ours = BATCHING[name(row["model"])]
        assert (ours.gpu_batch or "", ours.cpu_batch) == (
            int(row["p2_xlarge_n_batch"]) if row["p2_xlarge_n_batch"] else "",
            int(row["cpu_n_batch"]),
        )
        assert (ours.gpu_wait_ms or "") == (
            float(row["p2_xlarge_w_batch_ms"]) if row["p2_xlarge_w_batch_ms"] else ""
        )


def test_every_case_has_a_cost_and_the_one_contradiction_is_kept() -> None:
    assert set(TABLE5) == {(model, system) for model in MODELS for system in SYSTEMS}
    assert TEXT_RATIO["lstm-ptb", SPOT] == LSTM_TEXT
    assert round(published.table_ratio("lstm-ptb", SPOT), 2) == LSTM_TABLE
    assert published.table_ratio("nasnet", SAGEMAKER) == 1.0
