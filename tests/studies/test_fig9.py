"""Figure 9: MArk loses nothing, standbys are woken, and the script is the paper's."""

from __future__ import annotations

from typing import Any

import pytest

from mark.studies.fig9 import Fig9Parameters, mark_fig9
from mark.studies.published import LOST_SHARES, SPOT_FLEET
from mark.studies.study import Study, StudyContext
from tests.studies.documents import check_study, value

SHORT = Fig9Parameters(surges=(1.0,), base_rps=150.0, surge_run_s=1500.0, history_s=3600.0)
WITH, WITHOUT = "with standbys", "without standbys"


@pytest.fixture(scope="module")
def study(calm_context: StudyContext) -> Study:
    return mark_fig9(calm_context, SHORT)


@pytest.fixture(scope="module")
def document(study: Study) -> dict[str, Any]:
    return check_study(study)


def test_fleet_and_losses_are_the_papers(document: dict[str, Any]) -> None:
    for share in LOST_SHARES:
        lost = f"{share:.0%}"
        assert value(document, "fleet", lost=lost, system=WITH) == SPOT_FLEET
        assert value(document, "taken", lost=lost, system=WITH) == round(share * SPOT_FLEET)


def test_mark_loses_nothing(document: dict[str, Any]) -> None:
    rows = [row for row in document["rows"] if row["quantity"] == "unanswered"]
    lost = {row["system"] for row in rows if row["ours"]}
    assert lost < {row["system"] for row in rows}
    assert lost <= {"SageMaker"}  # its queue has a limit: what could only be late is refused


def test_standbys_are_woken_where_there_are_some(document: dict[str, Any]) -> None:
    woken = [value(document, "woken", lost=f"{share:.0%}", system=WITH) for share in LOST_SHARES]
    assert all(count > 0 for count in woken)
    assert woken == sorted(woken)
    assert not any(value(document, "woken", lost=f"{share:.0%}", system=WITHOUT) for share in LOST_SHARES)


def test_standbys_spare_lambda(document: dict[str, Any]) -> None:
    for share in LOST_SHARES:
        lost = f"{share:.0%}"
        spared = value(document, "lambda_share", lost=lost, system=WITH)
        assert spared < value(document, "lambda_share", lost=lost, system=WITHOUT)


def test_surge_is_answered_within_the_objective(document: dict[str, Any]) -> None:
    assert value(document, "attained_after", case="+100%", system="MArk-ondemand") >= 0.98
    assert value(document, "launches", case="+100%", system="MArk-ondemand") > 0


def test_a_forecast_of_the_calm_day_never_sees_the_surge(document: dict[str, Any]) -> None:
    blind = "MArk-ondemand, LSTM of a calm day"
    calm = value(document, "launches", case="+100%", system=blind)
    assert calm < value(document, "launches", case="+100%", system="MArk-ondemand"), "the first fleet alone"
    seen = value(document, "lambda_share", case="+100%", system="MArk-ondemand")
    assert value(document, "lambda_share", case="+100%", system=blind) > seen


def test_latency_over_time(study: Study, document: dict[str, Any]) -> None:
    minutes = [
        row["minute"]
        for row in document["rows"]
        if row.get("minute") is not None and row.get("lost") == "80%" and row["quantity"] == "mean_ms"
    ]
    assert sorted(set(minutes)) == list(range(int(SHORT.spot_run_s // 60)))
    names = {plot.name for plot in study.series}
    assert names == {"mark-fig9-surge-100", *(f"mark-fig9-lost-{share * 100:.0f}" for share in LOST_SHARES)}
    for plot in study.series:
        assert all(len(curve.x) == len(curve.y) for curve in plot.curves)
