from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mark.report.sweep.document import sweep_document
from mark.report.sweep.pareto import (
    SweptRun,
    by_group,
    cheapest_keeping,
    pareto_front,
    pareto_rows,
    row_label,
    short_names,
)
from mark.report.sweep.sweep_page import render_sweep
from mark.report.sweep.sweep_table import group_headline, pareto_tables

POINTS = st.lists(
    st.tuples(st.integers(0, 6).map(float), st.sampled_from([0.5, 0.9, 0.97, 0.98, 0.99, 1.0])), max_size=25
)


def swept(policy: str = "mark", seed: int = 1, **changed: object) -> SweptRun:
    fields: dict[str, object] = {
        "group": "load", "policy": policy, "settings": (), "seed": seed, "total_usd": 2.0, "serving_usd": 1.5,
        "attained": 0.99, "target": 0.98, "cost_over_reference": 1.5, "cost_over_floor": 1.7,
    }  # fmt: skip
    return SweptRun(**{**fields, **changed})  # type: ignore[arg-type]


def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@given(POINTS)
def test_nothing_on_the_front_is_dominated_and_all_else_is_by_the_front(points):
    front = pareto_front([cost for cost, _ in points], [share for _, share in points])

    chosen = [point for point, on in zip(points, front, strict=True) if on]
    for point, on in zip(points, front, strict=True):
        assert any(dominates(other, point) for other in chosen) != on
        assert not (on and any(dominates(other, point) for other in points))


@given(POINTS, st.randoms(use_true_random=False))
def test_the_order_of_the_points_does_not_matter(points, random):
    def found(given_points):
        front = pareto_front([cost for cost, _ in given_points], [share for _, share in given_points])
        return sorted(point for point, on in zip(given_points, front, strict=True) if on)

    shuffled = list(points)
    random.shuffle(shuffled)
    assert found(shuffled) == found(points)


def test_rows_are_means_over_the_seeds_with_their_range():
    (row,) = pareto_rows([swept(seed=1, total_usd=2.0), swept(seed=2, total_usd=4.0, attained=0.97)], 2)

    assert (row.total_usd.low, row.total_usd.mean, row.total_usd.high) == (2.0, 3.0, 4.0)
    assert row.attained is not None
    assert row.attained.mean == pytest.approx(0.98)
    assert (row.seeds, row.missing, row.front) == ((1, 2), 0, 1)


def test_each_group_has_a_front_of_its_own_from_the_cheapest():
    rows = pareto_rows(
        [
            swept("dear", total_usd=9.0, attained=0.999),
            swept("beaten", total_usd=5.0, attained=0.95),
            swept("cheap", total_usd=1.0, attained=0.96),
            swept("alone", total_usd=50.0, attained=0.1, group="other"),
        ],
        1,
    )

    assert {group: [(row.policy, row.front) for row in members] for group, members in by_group(rows).items()} == {
        "load": [("cheap", 1), ("beaten", 0), ("dear", 2)],
        "other": [("alone", 1)],
    }
    best = cheapest_keeping(rows)
    assert best is not None
    assert best.policy == "dear"


def test_what_nobody_can_rent_and_what_lacks_a_seed_push_nobody_off_the_front():
    rows = pareto_rows(
        [
            *(swept("mark", seed) for seed in (1, 2)),
            *(swept("greedy-oracle", seed, total_usd=1.0, uses_truth=True) for seed in (1, 2)),
            swept("reactive", 1, total_usd=0.5, attained=1.0),
            *(swept("nothing", seed, total_usd=0.1, attained=None) for seed in (1, 2)),
        ],
        2,
    )

    assert {row.policy: row.front for row in rows} == {"mark": 1, "greedy-oracle": 0, "reactive": 0, "nothing": 0}
    best = cheapest_keeping(rows)
    assert best is not None
    assert best.policy == "mark"
    text = printed(rows)
    assert "knows the load to come" in text
    assert "1 of 2 seeds missing" in text


@pytest.mark.usefixtures("without_plots")
def test_a_forecaster_that_failed_is_no_choice_on_the_front():
    bad, good = ((("forecaster", name),) for name in ("bad.py:Raises", "last-value"))
    rows = pareto_rows(
        [
            *(
                swept("hedged", seed, settings=bad, total_usd=1.0, forecasts=10, fallback_forecasts=10)
                for seed in (1, 2)
            ),
            *(swept("hedged", seed, settings=good, forecasts=10) for seed in (1, 2)),
        ],
        2,
    )

    assert [(row.fallback_forecasts, row.forecasts, row.front) for row in rows] == [(20, 20, 0), (0, 20, 1)]
    text = printed(rows)
    assert "last-value stood in 20 of 20 times" in text
    assert "Cheapest that keeps its objective: hedged, forecaster last-value:" in text
    page = render_sweep(rows, facts=[], notes=[], failed=[], command="mark sweep")
    assert page.count("last-value stood in 20 of 20 times") == 1
    assert [row["stood_in"] for row in sweep_document(rows, cells=[], failed=[])["rows"]] == [20, 0]


@pytest.mark.parametrize(
    ("runs", "said"),
    [([swept(seed=1), swept("reactive", seed=1)], "No row has all its seeds yet."),
     ([swept(seed=1), swept(seed=2), swept("reactive", seed=1)], "in time. Seeds are missing in 1 of 2 rows."),
     ([swept(seed=1, attained=0.1), swept(seed=2, attained=0.1), swept("reactive", seed=1)],
      "No row that can be compared kept its objective. Seeds are missing in 1 of 2 rows."),
     ([swept(seed=seed, forecasts=3, fallback_forecasts=1) for seed in (1, 2)],
      "The forecaster failed in every row, and last-value stood in."),
     ([swept(seed=seed, attained=0.1) for seed in (1, 2)], "Nothing that can be rented kept its objective.")],
)  # fmt: skip
def test_the_headline_claims_no_more_than_is_known(runs, said):
    assert group_headline(pareto_rows(runs, 2)).endswith(said)


def test_a_ratio_that_one_seed_lacks_is_no_figure():
    (row,) = pareto_rows([swept(seed=1), swept(seed=2, cost_over_floor=None)], 2)

    assert row.cost_over_floor is None
    assert row.cost_over_reference is not None


def test_keys_are_shortened_where_they_stay_apart():
    assert short_names(["policy.lead_min", "market"]) == {"policy.lead_min": "lead_min", "market": "market"}
    assert short_names(["policy.monitor.seconds", "x.seconds"])["x.seconds"] == "x.seconds"
    row = pareto_rows([swept(settings=(("policy.lead_min", 3), ("market", "spot"), ("forecaster", None)))], 1)[0]
    assert row_label(row) == "mark, lead_min 3, market spot, forecaster default"


def test_the_table_says_what_is_on_the_front_and_what_misses():
    lead = (("policy.lead_min", 3),)
    text = printed(
        pareto_rows([swept(settings=lead), swept("reactive", total_usd=1.0, attained=0.97999), swept("poor")], 1)
    )

    assert "Cheapest that keeps its objective: mark, lead_min 3: 2.00 USD, 99.000 % in time." in text
    assert re.search(r"1 +reactive +- +1\.00 +1\.50 +97\.999 % < 98 % +50 %", text)
    assert re.search(r"2 +mark +3 +2\.00", text)


def test_the_document_has_every_row():
    rows = pareto_rows([swept(settings=(("market", "spot"),)), swept("poor", total_usd=9.0, attained=None)], 2)
    document = sweep_document(rows, cells=[{"policy": "mark"}], failed=[{"label": "x", "reason": "y"}])

    first, second = document["rows"]
    assert (first["policy"], first["settings"], first["missing"]) == ("mark", {"market": "spot"}, 1)
    assert first["total_usd"] == {"mean": 2.0, "low": 2.0, "high": 2.0}
    assert second["attained"] is None
    assert document["cells"] == [{"policy": "mark"}]
    assert document["failed"] == [{"label": "x", "reason": "y"}]


def test_the_page_needs_nothing_else_and_escapes_names():
    rows = pareto_rows([swept(group="<a>&b"), swept("reactive", total_usd=40.0, attained=1.0, group="<a>&b")], 1)
    page = render_sweep(
        rows, facts=[("Model", "m")], notes=["n1"], failed=["cell <x>: died"], command="mark sweep"
    )

    assert "<a>&b" not in page
    assert "&lt;a&gt;&amp;b" in page
    assert "cell &lt;x&gt;: died" in page
    assert page.count("<svg") == 2, "wide and narrow"
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)


@pytest.mark.usefixtures("without_plots")
def test_the_accuracy_of_variants_is_a_figure_of_its_own_where_a_model_has_some():
    rows = pareto_rows([swept(seed=1, accuracy=0.96), swept(seed=2, accuracy=0.98)], 2)
    plain = pareto_rows([swept()], 1)

    for shown in (printed(rows), render_sweep(rows, facts=[], notes=[], failed=[], command="mark sweep")):
        assert "accuracy" in shown
        assert re.search(r"97\.000 %.*96\.000-98\.000 %", shown)
    assert "accuracy" not in printed(plain)
    assert "accuracy" not in render_sweep(plain, facts=[], notes=[], failed=[], command="mark sweep")
    assert sweep_document(rows, cells=[], failed=[])["rows"][0]["accuracy"] == {
        "mean": 0.97,
        "low": 0.96,
        "high": 0.98,
    }
    assert sweep_document(plain, cells=[], failed=[])["rows"][0]["accuracy"] is None


def test_a_page_without_a_figure_to_draw_is_still_a_page():
    page = render_sweep(
        pareto_rows([swept(attained=None)], 1), facts=[], notes=[], failed=[], command="mark sweep"
    )

    assert "Nothing that can be rented kept its objective." in page


def printed(rows) -> str:
    console = Console(file=io.StringIO(), width=200)
    for heading, table in pareto_tables(rows):
        console.print(heading, soft_wrap=True)
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
