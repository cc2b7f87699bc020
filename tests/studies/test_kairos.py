"""Studies of Kairos: pools within the budget, and Kairos over what serves otherwise."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from mark.planner.kairos.pool_search import search_pools
from mark.simulator.engine.compiled import CentralKernel
from mark.studies.kairos.cases import MODELS, SYSTEM, Case, Scope, case
from mark.studies.kairos.fig8 import kairos_fig8
from mark.studies.kairos.fig9 import PUBLISHED, kairos_fig9
from mark.studies.kairos.fig10 import kairos_fig10
from mark.studies.kairos.fig11 import kairos_fig11
from mark.studies.kairos.fig12 import kairos_fig12
from mark.studies.kairos.fig13 import kairos_fig13, kairos_fig14
from mark.studies.kairos.fig16 import kairos_fig15, kairos_fig16
from mark.studies.study import StudyContext
from tests.studies.documents import check_study, value

SHORT = Scope(models=("rm2",), queries=1_000, seeds=1)
SMALL = Scope(models=("rm2",), queries=600, seeds=1, budget_usd_per_hour=1.2)


def published_case(model: str, kernel: CentralKernel, queries: int = 20_000) -> Case:
    return case(model, Scope(queries=queries, seeds=1), kernel=kernel, seed=0)


def test_the_shipped_tables_are_the_published_ones(published_dir: Path, central_kernel: CentralKernel) -> None:
    table = published_case("ncf", central_kernel).table
    with (published_dir / "kairos_latency_profile.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "ncf"]

    assert len(rows) == 400
    for row in rows:
        found = table.latency_ms(row["instance_type"], int(row["batch_size"]))
        assert found == pytest.approx(float(row["total_mean_ms"]))


def test_prices_are_those_of_table_4(published_dir: Path, central_kernel: CentralKernel) -> None:
    with (published_dir / "kairos_prices.csv").open(encoding="utf-8", newline="") as file:
        published = {row["instance_type"]: float(row["on_demand_usd_per_hour"]) for row in csv.DictReader(file)}
    ours = published_case("rm2", central_kernel).space.usd_per_hour

    assert dict(ours) == {name: published[name] for name in ours}
    assert len(ours) == 4


def test_the_space_and_the_best_bounds_are_the_published_ones(
    published_dir: Path, central_kernel: CentralKernel
) -> None:
    """From measured latencies, not from the authors' rounded inputs: within 3 %."""
    with (published_dir / "kairos_upper_bound_summary.csv").open(encoding="utf-8", newline="") as file:
        published = {row["model"]: row for row in csv.DictReader(file)}
    for model in MODELS:
        ranked = published_case(model, central_kernel).space.ranked
        assert len(ranked) == int(published[model]["configs_within_budget"])
        assert ranked.bound_qps[0] == pytest.approx(float(published[model]["best_upper_bound_qps"]), rel=0.03)


def test_figure_8(context: StudyContext) -> None:
    study = kairos_fig8(context, SHORT)
    document = check_study(study)

    for arrivals in ("poisson", "integer"):
        assert value(document, "ratio", model="rm2", arrivals=arrivals) > 1.5
        # So few queries end before the pool is in balance; the full study stays below the bound.
        assert value(document, "of_bound", model="rm2", arrivals=arrivals) <= 1.1
    assert all(row["published"] is None for row in document["rows"])
    assert list(study.figures()) == ["kairos-fig8-rm2"]
    assert kairos_fig8(context, SHORT).document() == document


def test_figure_9(context: StudyContext) -> None:
    document = check_study(kairos_fig9(context, SMALL))

    rivals = set(SYSTEM.values()) - {"Kairos", "oracle"}
    assert all(value(document, "kairos_over_it", model="rm2", system=rival) > 1 for rival in rivals)
    assert value(document, "kairos_over_it", model="rm2", system="oracle") < 1
    assert all(value(document, "qps", model="rm2", system=name) > 0 for name in PUBLISHED.values())


def test_figure_10(context: StudyContext) -> None:
    """A rival's search measures as many pools or more: its bound, which is Kairos', prunes less."""
    document = check_study(kairos_fig10(context, SMALL))

    counts = {row["system"]: row["ours"] for row in document["rows"] if row["quantity"] == "evaluations"}
    assert set(counts) == set(SYSTEM.values()) - {"oracle"}
    assert counts["Kairos"] == min(counts.values())


def test_figure_11(context: StudyContext) -> None:
    document = check_study(kairos_fig11(context, SMALL, runs=2))

    counts = {row["search"]: row["ours"] for row in document["rows"] if row["quantity"] == "evaluations"}
    assert set(counts) == {"kairos+", "random", "genetic", "annealing", "bayesian"}
    assert counts["kairos+"] == min(counts.values())


def test_figures_13_and_14(context: StudyContext) -> None:
    document = check_study(kairos_fig13(context, SMALL))
    shares = [row["ours"] for row in document["rows"] if row["quantity"] == "of_bound"]
    assert len(shares) <= 20
    assert value(document, "best_bound_rank", model="rm2") <= 10
    assert 0.8 <= value(document, "chosen_over_best", model="rm2") <= 1

    document = check_study(kairos_fig14(context, SMALL))
    of_bound = {row["system"]: row["ours"] for row in document["rows"] if row["quantity"] == "of_bound"}
    assert set(of_bound) == set(SYSTEM.values())
    assert of_bound["Kairos"] > max(of_bound["Ribbon (fcfs)"], of_bound["Clockwork"])


def test_figure_12(context: StudyContext) -> None:
    """The pool changes, and the one of before serves less."""
    document = check_study(kairos_fig12(context, replace(SMALL, models=("dien",))))

    assert value(document, "of_best", model="dien", pool="Kairos+ at its end") == 1
    assert value(document, "of_best", model="dien", pool="Kairos, chosen again") > 0.8
    assert any("normal:" in text for text in document["assumptions"])


@pytest.mark.slow
def test_figures_15_and_16(context: StudyContext) -> None:
    asked = replace(SHORT, queries=2_000)
    for study, cases in (
        (kairos_fig15, ("as in figure 8", "objective + 20 %", "budget x 4")),
        (kairos_fig16, ("as in figure 8", "noise of 5 %", "latencies learned", "large Gaussian sizes")),
    ):
        document = check_study(study(context, asked))
        assert min(value(document, "ratio", model="rm2", case=name) for name in cases) > 1.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "over_homogeneous"), [("ncf", 1.80), ("rm2", 2.05), ("wnd", 1.28), ("mtwnd", 1.30), ("dien", 1.45)]
)
def test_the_pool_at_the_published_budget(
    central_kernel: CentralKernel, model: str, over_homogeneous: float
) -> None:
    found = published_case(model, central_kernel)
    search = search_pools(found.space.ranked, found.evaluate)
    chosen_qps = found.qps(found.chosen)

    assert chosen_qps >= over_homogeneous * found.homogeneous_qps()
    assert chosen_qps >= 0.93 * search.best_qps
    assert search.best_rank < 10
    assert len(search.ranks) <= 10
