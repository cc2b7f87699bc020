"""The live run beside its replay: differences."""

import json
from typing import Any

import pytest

from mark.report.live.rehearsal import agreement, comparison_document
from mark.report.live.service_status import ModelStatus
from mark.report.runs.run_documents import simulate_document
from tests.report.fakes import fake_run
from tests.report.live.fakes import busy_model, empty_model

RUN = fake_run(duration_s=630)
ORDERS = {(0, "launch", "c5.large:spot"): 5, (1, "launch", "c5.large:spot"): 7, (1, "drain", ""): 2}
OTHER_ORDERS = {(0, "launch", "c5.large:spot"): 8, (1, "launch", "c5.large:spot"): 4, (1, "drain", ""): 2}


def compared(live: ModelStatus | None = None, **changed: Any) -> dict[str, Any]:
    replayed = simulate_document([RUN])["runs"][0] | changed
    return comparison_document(live or busy_model(), replayed, live_orders=ORDERS, replayed_orders=OTHER_ORDERS)


def test_each_figure_is_live_replayed_and_their_difference() -> None:
    document = compared()
    total = document["cost_usd"]["total"]
    assert total["live"] == 2.3617
    assert total["replayed"] == pytest.approx(RUN.result.cost.total)
    assert total["difference"] == pytest.approx(2.3617 - RUN.result.cost.total)
    assert document["requests"]["live"] == 118_330 + 2_100 + 3_026 + 17 + 3 + 4
    assert document["requests"]["replayed"] == RUN.result.requests
    assert document["cold_start_rate"]["live"] == pytest.approx(7 / 3104)
    json.dumps(document, allow_nan=False)


def test_orders_are_summed_but_compared_by_ten_minutes() -> None:
    document = compared()
    launched = next(row for row in document["orders"] if row["kind"] == "launch")
    assert (launched["live"], launched["replayed"], launched["difference"]) == (12, 12, 0)
    assert document["orders_most_apart"] == 3


def test_what_is_not_known_has_no_difference() -> None:
    document = compared(empty_model())
    assert document["attained"]["difference"] is None
    assert document["cold_start_rate"]["live"] == 0.0


def test_the_agreement_is_said_in_one_sentence() -> None:
    cost = {"instances": 1.7, "standby": 0.0, "lambda": 0.1, "serving": 1.8, "overhead": 0.4, "total": 2.2}
    slo = {"latency_ms": 600.0, "target": 0.98, "attained": 0.99}
    assert agreement(compared(cost_usd=cost, slo=slo, cold_start_rate=0.0)) == (
        "Live against its replay: total +7.3 %, serving +8.3 %, standby -, in time +0.66 points, "
        "cold starts +0.23 points; orders in any ten minutes at most 3 instances apart."
    )
    assert "in time -," in agreement(compared(empty_model()))
