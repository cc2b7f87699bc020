"""Studies of SuperServe: SlackFit keeps the objective with more accuracy than what else keeps it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.simulator.traces.trace import Trace
from mark.studies.study import StudyContext
from mark.studies.superserve.cases import Scope
from mark.studies.superserve.fig8 import superserve_fig8
from mark.studies.superserve.fig9 import superserve_fig9
from mark.studies.superserve.fig10 import PEAK_RPS, compressed_rates, superserve_fig10
from mark.studies.superserve.fig11 import superserve_fig11
from mark.studies.superserve.optimum import optimum_rows
from tests.studies.documents import check_study, value

SHORT = Scope(duration_s=2.0, noises=("none",))


@pytest.mark.slow
def test_figure_8(context: StudyContext) -> None:
    document = check_study(superserve_fig8(context, SHORT))

    slackfit = {"noise": "none", "policy": "slackfit"}
    assert value(document, "least_attained", **slackfit) >= 0.999
    assert value(document, "most_over_cheapest", **slackfit) >= 4
    heaviest = {"lambda_v": 5550, "cv2": 8, **slackfit}
    assert value(document, "attained", **heaviest) >= 0.999
    assert value(document, "over_same_accuracy", **heaviest) >= 2
    assert 0 < value(document, "same_accuracy_bound", **heaviest) <= 1
    assert any("assumed" in text for text in document["assumptions"])
    assert superserve_fig8(context, SHORT).document() == document


def test_small_instances_are_served_nearly_as_well_as_can_be(context: StudyContext) -> None:
    rows = {
        (dict(row.where)["policy"], row.quantity): row.ours for row in optimum_rows(replace(context, seed=5), 4)
    }

    assert all(found is not None and found <= 1 + 1e-9 for found in rows.values())
    mean = rows["slackfit", "of_optimum_mean"]
    assert mean is not None
    assert mean >= 0.95


def test_figure_9(context: StudyContext) -> None:
    document = check_study(superserve_fig9(context, SHORT))

    for tau in (250, 500, 5000):
        where = {"lambda_2": 7400, "tau": tau, "noise": "none", "policy": "slackfit"}
        assert value(document, "attained", **where) >= 0.991
    slow, fast = (
        value(document, "accuracy", lambda_2=7400, tau=tau, noise="none", policy="slackfit") for tau in (250, 5000)
    )
    assert slow > fast


def test_figure_10_takes_the_given_trace_and_says_where_there_is_none(context: StudyContext) -> None:
    rates = 50 + 40 * np.sin(np.arange(7200) / 1146)
    trace = Trace(name="waves", start_at=0.0, bin_s=60.0, rates_rps=rates, whole_counts=False)
    study = superserve_fig10(replace(context, trace=trace), SHORT)
    document = check_study(study)
    assert any("the last day of waves" in text for text in document["assumptions"])
    assert value(document, "attained", noise="none", policy="slackfit") >= 0.999

    stand_in = check_study(superserve_fig10(context, replace(SHORT, duration_s=4.0)))
    assert any("generated" in text for text in stand_in["assumptions"])


def test_a_compressed_day_has_the_published_peak() -> None:
    trace = Trace(
        name="ramp", start_at=0.0, bin_s=60.0, rates_rps=np.arange(2880, dtype=np.float64), whole_counts=False
    )
    rates = compressed_rates(trace, 120.0)
    assert rates.size == 1440
    assert rates.reshape(120, 12).mean(axis=1).max() == pytest.approx(PEAK_RPS)


def test_figure_11(context: StudyContext) -> None:
    document = check_study(superserve_fig11(context, Scope(duration_s=10.0, noises=("none",))))

    assert value(document, "attained", noise="none", policy="slackfit") >= 0.999
    accuracies = [
        value(document, "accuracy", workers=left, noise="none", policy="slackfit") for left in (8, 7, 6, 5, 4)
    ]
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[-1] < accuracies[0]
