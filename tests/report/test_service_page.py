"""The page of a service's replays: everything on it can be read, and what its rows lack is named."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mark.domain.billing.costs import CostUsd
from mark.domain.models.objective import Slo
from mark.report.live.service_rehearsal import ServiceComparison
from mark.report.service.placement_plot import MOST_LANES, pictured
from mark.report.service.service_page import MOST_INSTANCES, render_service_notebook, render_service_report
from mark.report.service.service_tables import around_sentence
from mark.simulator.results import ServedCounts
from mark.simulator.services.service_run import ModelRun, ServiceRun
from mark.simulator.services.shared_instances import SharedInstance, Stay
from tests.report.browser import look_at, needs_browser, seen_by_readers

DURATION_S = 7200.0
USD_A_MONTH = DURATION_S / (730 * 3600)
"""In the replayed time."""


def usd(instances: float = 0.0, *, overhead: float = 0.0) -> CostUsd:
    """By the month."""
    return CostUsd(instances=instances * USD_A_MONTH, standby=0.0, lambda_=0.0, overhead=overhead * USD_A_MONTH)


def model(name: str) -> ModelRun:
    return ModelRun(
        model=name,
        slo=Slo(latency_s=0.467, target=0.98),
        served=ServedCounts(instance=100_000, standby=0, lambda_=12, shed=0, in_flight=0),
        attained=0.99989,
        cost=usd(overhead=20.0),
        instances=0.0,
        on_shared=100_000,
        mean_rps=13.9,
        p99_s=0.322,
        notes=(),
    )


def shared(number: int, *, from_s: float, to_s: float) -> SharedInstance:
    """Two models from its start to its end, and one in between."""
    stays = ((0, from_s, to_s), (1, from_s, to_s), (2, from_s + 60.0, to_s - 60.0))
    return SharedInstance(
        name=f"i-{number:06}",
        offering="c5.large:on-demand",
        from_s=from_s,
        to_s=to_s,
        usd=0.085,
        busy=0.57,
        stays=tuple(Stay(model=f"ranker-{model}", from_s=begin, to_s=end) for model, begin, end in stays),
    )


def run(policy: str, *, hosts: float, hosts_usd: float, around_usd: float) -> ServiceRun:
    return ServiceRun(
        policy=policy,
        models=tuple(model(f"ranker-{number}") for number in range(4)),
        bill=(),
        cost=usd(hosts_usd, overhead=80.0 + around_usd),
        around_usd=around_usd * USD_A_MONTH,
        hosts_usd=hosts_usd * USD_A_MONTH,
        hosts=hosts,
        duration_s=DURATION_S,
        shared=tuple(shared(number, from_s=600.0 * number, to_s=DURATION_S) for number in range(3) if hosts),
    )


HEDGED = run("hedged", hosts=1.0, hosts_usd=68.1, around_usd=53.46)


def test_the_part_of_the_total_that_is_in_no_row_is_named() -> None:
    assert around_sentence(HEDGED) == (
        "Not in these rows: 1.0 shared instances, 68.10 USD a month; overhead that all models share, 53.46 USD "
        "a month. A month is 730 h like the 2 h replayed."
    )


@pytest.mark.usefixtures("without_plots")
def test_the_picture_keeps_the_instances_that_ran_longest() -> None:
    many = [shared(number, from_s=30.0 * number, to_s=DURATION_S) for number in range(MOST_LANES)]
    assert pictured(many) == tuple(many[: MOST_LANES // 3])
    page = render_service_report([replace(HEDGED, shared=tuple(many))], command="mark simulate")
    assert f"{MOST_LANES - MOST_LANES // 3} more, those that ran for the shortest time" in page
    assert f"{MOST_LANES - MOST_INSTANCES} more</th>" in page


@cache
def report() -> str:
    runs = [HEDGED, run("lambda-only", hosts=0.0, hosts_usd=0.0, around_usd=0.0)]
    return render_service_report(runs, command="mark simulate --config service.yaml")


@cache
def notebook() -> str:
    runs = (HEDGED, replace(HEDGED, policy="fleet-per-model", commitments_usd=-10 * USD_A_MONTH))
    return render_service_notebook(runs, drawn=True)


@needs_browser
@seen_by_readers
def test_everything_on_the_page_can_be_read(tmp_path: Path, width: int, dark: bool) -> None:
    page = report()
    assert "Run Lambda alone" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "`" not in page
    look = look_at(tmp_path, page, width=width, dark=dark)
    look.check(dark=dark)
    in_their_boxes = {name.split(" by ")[0] for name in look.scrolled}
    assert in_their_boxes == (
        {"Comparison of the policies", "The models", "The shared instances"} if width == 400 else set()
    )


@pytest.mark.usefixtures("without_plots")
def test_a_live_service_stands_beside_its_replay_and_is_nowhere_without_one() -> None:
    live = ServiceComparison(
        total_usd=(1.5, 1.25), parts_usd={}, attained={"<a>": (0.97, 1.0)}, placed=(((), ()),)
    )
    text = render_service_report([HEDGED], command="mark demo", live=live)
    assert "&lt;a&gt;, in time</th><td>97.00 %</td><td>100.00 %</td>" in text
    assert "total +20.0 %, in time at most 3.00 points (&lt;a&gt;)" in text
    assert "Served live" not in render_service_report([HEDGED], command="mark simulate")


@needs_browser
@seen_by_readers
def test_what_each_policy_cost_can_be_read_in_a_notebook(tmp_path: Path, width: int, dark: bool) -> None:
    drawn = notebook()
    page = '<!doctype html><meta name="color-scheme" content="light dark"><body style="margin:0">'

    look_at(tmp_path, page + drawn, width=width, dark=dark).check(dark=dark)
    assert all(name in drawn for name in ("ranker-3", "shared by all", "fleet-per-model"))
