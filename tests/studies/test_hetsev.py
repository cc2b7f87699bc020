"""Studies of HetSev: shared GPUs beside Kubernetes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mark.catalog.pairs import load_pairs
from mark.domain.errors import Misconfigured
from mark.simulator.rng import stream
from mark.studies.hetsev.cases import Scope, pairs_of
from mark.studies.hetsev.fig5 import hetsev_fig5
from mark.studies.hetsev.fig6 import hetsev_fig6
from mark.studies.hetsev.fig7 import hetsev_fig7
from mark.studies.hetsev.rules import cheapest_objective, hetsev_rules, random_state
from mark.studies.study import StudyContext
from tests.planner.hetsev.hetsev_optimum import optimal_actions
from tests.studies.documents import check_study, value

SHORT = Scope(length=0.1, states=200)
TINY = Scope(length=0.03)


def test_figure_5_has_both_systems_and_readings(context: StudyContext) -> None:
    document = check_study(hetsev_fig5(context, SHORT))
    case = {"QPS counts": "requests", "serving": "figure 1"}
    assert value(document, "throughput_gain", **case) > 0
    assert value(document, "most_instances", **case, system="Kubernetes") <= 16
    assert value(document, "rented_usd", **case, system="HetSev") > 0


@pytest.mark.slow
def test_figure_5_gains_where_kubernetes_runs_out_of_gpus(context: StudyContext) -> None:
    document = check_study(hetsev_fig5(context))
    case = {"QPS counts": "requests", "serving": "figure 1"}
    assert value(document, "most_instances", **case, system="Kubernetes") == 16
    assert value(document, "most_instances", **case, system="HetSev") > 16
    assert value(document, "throughput_gain", **case) > 1.5


def test_figure_6_keeps_to_18_instances(context: StudyContext) -> None:
    document = check_study(hetsev_fig6(context, SHORT))
    for row in document["rows"]:
        assert row["quantity"] != "most_instances" or row["ours"] <= 18


@pytest.mark.slow
def test_figure_6_follows_the_load_with_short_windows(context: StudyContext) -> None:
    document = check_study(hetsev_fig6(context))
    assert value(document, "violated_5s_percent", load="open", system="HetSev, 15 s") <= 4.0
    assert value(document, "violated_5s_percent", load="clients", system="HetSev") <= 4.0
    same = {value(document, "cost", load="clients", system=name) for name in ("HetSev", "HetSev, lambda 0")}
    assert len(same) == 1


def test_figure_7_has_both_accountings(context: StudyContext) -> None:
    document = check_study(hetsev_fig7(context, SHORT))
    assert value(document, "mean_gain", load="clients", system="Kubernetes") == 1.0
    assert value(document, "mean_gain", load="clients", system="HetSev") > 1.79
    assert value(document, "rented_usd", load="clients", system="HetSev") > 0


@pytest.mark.slow
def test_figure_7_keeps_the_objective_with_clients(context: StudyContext) -> None:
    document = check_study(hetsev_fig7(context))
    assert value(document, "least_attained", load="clients", system="HetSev") >= 0.98
    assert value(document, "most_gain", load="clients", system="HetSev") >= 2.15
    assert value(document, "rented_gain", load="clients", system="HetSev") > 1


def test_the_heuristic_is_near_the_program_and_a_price_is_no_worse(context: StudyContext) -> None:
    document = check_study(hetsev_rules(context, Scope(states=1_000)))
    assert 0 <= value(document, "mean_gap_percent", program="grow only") <= 5.0
    for model in ("resnet-101", "resnet-152"):
        priced, forbidden = (
            value(document, "slowdown_percent", model=model, rule=rule) for rule in ("priced", "anti-affinity")
        )
        assert priced <= forbidden


def test_the_optimum_over_random_states_is_the_program_s() -> None:
    rng = stream(3, "states")
    for turn in range(20):
        state, grow_only = random_state(rng), bool(turn % 2)
        best = state.objective(optimal_actions(state, grow_only=grow_only))
        assert cheapest_objective(state, grow_only=grow_only) == pytest.approx(best, abs=1e-6)


def test_a_pairs_file_changes_the_slowdowns(context: StudyContext, tmp_path: Path) -> None:
    shipped = load_pairs("hetsev")
    slow = [
        {"model": model, "beside": beside, "slowdown": 2.0, "evidence": "measured", "source": "here"}
        for model, beside in shipped.slowdowns
    ]
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps({"format": "mark-pairs/1", "pairs": slow}))
    slower = check_study(hetsev_fig5(replace(context, pairs=file), TINY))
    usual = check_study(hetsev_fig5(context, TINY))
    case = {"QPS counts": "requests", "serving": "figure 1", "system": "HetSev"}
    assert value(slower, "mean_ms", **case) > value(usual, "mean_ms", **case)

    file.write_text(json.dumps({"format": "mark-pairs/1", "pairs": slow[:1]}))
    with pytest.raises(Misconfigured, match="has no pair resnet-50 beside ssd-resnet50: measure it, and add"):
        pairs_of(file)
    file.write_text(json.dumps({"format": "mark-pairs/1", "pairs": [slow[0], slow[0]]}))
    with pytest.raises(Misconfigured, match="stands twice"):
        pairs_of(file)
