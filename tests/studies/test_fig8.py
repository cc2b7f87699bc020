"""Figure 8 under MMPP: the objective is what the paper claims of it."""

from __future__ import annotations

import pytest

from mark.studies.fig8 import Fig8Parameters, mark_fig8
from mark.studies.published import ONDEMAND, SAGEMAKER, SPOT
from mark.studies.study import StudyContext
from tests.studies.documents import check_study, value

SHORT = Fig8Parameters(models=("inception-v3",), duration_s=1800.0, history_s=3600.0, unit_rps=30.0)


def test_levels_are_of_the_long_run_mean() -> None:
    assert Fig8Parameters(levels=(1.0, 3.0), stays_s=(300.0, 100.0)).mean_level == 1.5


def test_document(context: StudyContext) -> None:
    study = mark_fig8(context, SHORT)
    document = check_study(study)
    assert mark_fig8(context, SHORT).document() == document, "the same seed"
    ours = value(document, "mean_ms", model="inception-v3", system=ONDEMAND)
    rival = value(document, "mean_ms", model="inception-v3", system=SAGEMAKER)
    cut = value(document, "mean_cut_percent", model="inception-v3", system=ONDEMAND)
    assert cut == pytest.approx(100 * (1 - ours / rival))
    claims = {r["quantity"] for r in document["rows"] if r["claim"]}
    assert claims == {"attained"}, "the paper's cuts of latency are of the Twitter load"
    assert value(document, "attained", model="inception-v3", system=SPOT) >= 0.98
    assert all(row["published"] is None for row in document["rows"])
    assert list(study.figures()) == ["mark-fig8-inception-v3"]
    assert study.figures()["mark-fig8-inception-v3"].startswith("<?xml")
