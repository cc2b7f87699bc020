"""`mark status` in a terminal: fits 100 columns, has no escapes where nobody looks, says what the page says."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from mark.domain.billing.spending import SpendingLimit
from mark.report.live.service_status import (
    CounterfactualStatus,
    LatencyStatus,
    ModelStatus,
    ServiceStatus,
    StoreStatus,
)
from mark.report.live.status_table import status_table
from mark.store.published_status import AssumedLoad, BudgetStatus, ForecasterStatus, PoolStatus
from tests.report.live.fakes import (
    NOW,
    SHARED,
    busy_model,
    empty_model,
    interrupted_model,
    pooled_model,
    sharing_model,
    status,
)


def printed(shown: ServiceStatus, model: str | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100)
    for part in status_table(shown, model=model):
        console.print(part, highlight=False)
    return out.getvalue()


def test_a_pool_says_its_cost_and_sizes_and_what_each_gateway_has() -> None:
    text = " ".join(printed(status(pooled_model())).split())
    assert (
        "0.82 of 0.85 USD/h; chosen for 241.3 items a request, 98 % up to 912, 992 at most "
        "(measured of 12.3 k requests)" in text
    )
    assert "gateway-0 1 g4dn.xlarge:on-demand, 1 r5n.large:on-demand; gateway-1 no agent" in text
    told = replace(pooled_model(), pool=PoolStatus(budget_usd_per_hour=2.0, sizes="kairos", mean_items=1.0))
    text = " ".join(printed(status(told)).split())
    assert "- of 2.00 USD/h; chosen for 1 items a request" in text
    assert "(kairos, of the settings)" in text
    assert not re.search("^gateways", printed(status(busy_model())), re.MULTILINE)


def test_what_runs_beside_is_told_where_a_service_only_observes() -> None:
    beside = CounterfactualStatus(since=NOW - 3600.0, usd=0.31, usd_per_hour=0.3)
    would = (
        "MArk would run 9 c5.large:spot, 9 c5.xlarge:spot for 7.20 USD a day. It would have cost 0.31 USD in 1 h"
    )
    assert f" {would}. " in " ".join(printed(status(busy_model(), counterfactual=beside)).split())
    early = status(busy_model(), counterfactual=replace(beside, usd_per_hour=None))
    assert "would" not in printed(early)
    known = replace(beside, existing_usd_per_hour=2.5, existing_usd=2.5, saved_usd=2.19)
    judged = replace(known, minutes=57, beyond_least=0.00129, beyond_most=0.00421)
    assert (
        f" You run a fleet for 60.00 USD a day, {would}, 2.19 less than yours; of the requests of the last 57 "
        "min, 0.12 % to 0.43 % came beyond what it carried. "
    ) in " ".join(printed(status(busy_model(), counterfactual=judged)).split())


@pytest.mark.parametrize("model", [empty_model(), busy_model(), interrupted_model(), pooled_model()])
def test_fits_100_columns_without_escapes(model: ModelStatus) -> None:
    text = printed(status(model, speed=20.0))
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text


def test_says_what_the_page_says() -> None:
    text = " ".join(printed(status(interrupted_model(), speed=20.0)).split())
    for part in (
        "clock runs 20x and shows", "controller controller-0, last tick 4 s ago",
        "4 spot instances are being taken away",
        "misses its objective", "97.47 %; 127 % of the error budget used", "290/584/812/1171 ms",
        "41.2 requests/s", "Lambda 3,026", "serving 1.95, disks and addresses 0.41, total 2.36",
        "failed (5xx) 3, client's mistake (4xx) 4",
        "failed 3 times since 02:30:30, last 02:40:00: the model failed: ValueError: row 3",
        "launch 1 c5.large:spot: 55.4 requests/s", "note: backend is emulated",
    ):  # fmt: skip
        assert part in text


def test_the_dearest_model_is_told_in_full_and_any_other_on_request() -> None:
    idle = (replace(empty_model(name), usd_per_hour=0.0) for name in ("idle-one", "[b]x"))
    shown = status(*idle, busy_model())
    lines = printed(shown).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("model"))
    assert [line.split()[0] for line in lines[first + 2 : first + 5]] == ["inception-v3", "[b]x", "idle-one"]
    assert lines[first + 5] == (
        "Overhead: 0.15 USD/h for gateways, store, controllers and logs; 1.14 USD/h in all"
    )
    text = "\n".join(lines)
    assert text.count("98 % within") == 1
    assert "launch 1 c5.large:spot" in text
    other = printed(shown, "idle-one")
    assert other.count("98 % within") == 1
    assert "launch" not in other
    assert "--model" not in printed(status(busy_model()))


def test_fleet_has_its_three_views() -> None:
    row = next(line for line in printed(status(busy_model())).splitlines() if line.startswith("c5.large:spot"))
    assert row.split()[:6] == ["c5.large:spot", "10", "1", "9", "9", "ready"]


def test_shared_instances_are_shown_with_their_models_and_their_rent_in_the_sum() -> None:
    shown = status(
        replace(busy_model(), shared_usd=8.0), replace(sharing_model(), usd_per_hour=0.0), shared=SHARED
    )
    lines = printed(shown, "digits").splitlines()
    assert max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    assert "digits 35.2, rm2 8.1" in text
    assert "digits pending, inception-v3" in text
    assert "broken, rm2 leaving" in text
    assert "; 1.41 USD/h in all" in text
    assert "Shared instances: 0.27 USD/h, so far 12.40 USD, 4.40 of it idle" in text
    assert "total 2.36, and 8.00 USD of shared instances" in " ".join(printed(shown, "inception-v3").split())
    assert "Shared instances: 1 spot instance is being taken away, in 80 s." in text
    assert "i-0000000000000003c with rm2: 35.2 requests/s" in text


def test_what_was_only_assumed_is_said_to_be() -> None:
    began = 1_770_000_000.0
    trained = ForecasterStatus(forecaster="ridge", from_=began - 3600.0, until=began)
    model = replace(empty_model(), assumed=AssumedLoad(rps=40.0, until=began), trained=trained)
    text = " ".join(printed(status(model)).split())
    assert "assumed 40 requests/s (expected_rps), nothing seen yet" in text
    assert "ridge, trained on 60 min of an assumed 40 requests/s, before any traffic (first)" in text

    later = replace(trained, why="schedule", from_=began - 1800.0, until=began + 5400.0)
    asked = replace(busy_model(), assumed=model.assumed, trained=later)
    text = " ".join(printed(status(asked)).split())
    assert "nothing seen yet" not in text
    assert "ridge, trained on 2 h until 04:10, 30 min of them assumed (on schedule)" in text


def test_markup_in_names_is_text() -> None:
    model = busy_model("[red]x[/red]")
    fleet = replace(model.fleet, planned={"[link=x]y": 1})
    text = printed(status(replace(model, notes=("[bold]n[/bold]",), fleet=fleet)))
    for part in ("[red]x[/red]", "[bold]n[/bold]", "[link=x]y"):
        assert part in text


def test_a_store_that_is_away_is_said_first() -> None:
    away = ServiceStatus(service="mark", now=0.0, store=StoreStatus(reachable=False))
    assert printed(away).splitlines()[2].startswith("! The store is unreachable")


@pytest.mark.parametrize(
    ("limited_by", "said"),
    [
        (SpendingLimit.NONE, ""),
        (SpendingLimit.FLOOR, "One instance a model stays"),
        (SpendingLimit.PAUSE, "Nothing is rented"),
    ],
)
def test_a_budget_that_is_reached_is_said_first(limited_by: SpendingLimit, said: str) -> None:
    told = BudgetStatus(
        day_usd=51.25,
        month_usd=310.0,
        daily_usd=50.0,
        limited_by=limited_by,
        reasons=("51.25 USD spent this day, the budget is 50",),
    )
    text = " ".join(printed(status(busy_model(), budget=told)).split())
    assert "spent 51.25 of 50.00 USD today, 310.00 USD this month" in text
    assert f"! 51.25 USD spent this day, the budget is 50. {said}".strip() in text


def test_without_a_budget_nothing_is_said_of_it() -> None:
    told = BudgetStatus(day_usd=1.0, month_usd=1.0)
    said = printed(status(busy_model(), budget=told))
    assert said.replace("1.00 USD this month so far.\n", "") == printed(status(busy_model()))


def test_answers_that_stream_have_a_row_of_first_bytes_and_an_objective_that_says_so() -> None:
    model = busy_model()
    first = LatencyStatus(mean=90.0, p50=80.0, p95=120.0, p98=130.0, p99=140.0)
    streams = replace(model, first_byte_ms=first, objective=replace(model.objective, measured="first_byte"))
    text = " ".join(printed(status(streams)).split())
    assert "first byte p50/p95/p98/p99 80/120/130/140 ms" in text
    assert "98 % begin within 600 ms" in text
    assert "first byte" not in printed(status(model))
