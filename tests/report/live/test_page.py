"""What the status page says about a status: words, banners, fleet, chart; and that nothing in it is markup."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.hourly_spend import HourSpend
from mark.domain.alerts import AlarmStatus, AlertsStatus
from mark.domain.load.traffic import FailureKind
from mark.report.live.chart import Stretch, load_chart, rate_ticks, time_ticks
from mark.report.live.formatting import (
    banners,
    budget_of,
    fleet_rows,
    format_budget,
    format_clock,
    format_failure,
    format_hourly,
    format_month,
    format_plan_times,
    format_span,
    objective_quantile,
)
from mark.report.live.service_status import (
    ControllerStatus,
    FleetStatus,
    ModelStatus,
    ReplaysStatus,
    ServiceStatus,
    StoreStatus,
)
from mark.report.live.status_page import LivePage
from mark.store.published_status import (
    ArchiveStatus,
    BudgetStatus,
    ComparedCost,
    FailedReplay,
    LoadSeries,
    PlanStatus,
)
from tests.report.live.fakes import NOW, busy_model, empty_model, instance, interrupted_model, pooled_model, status
from tests.report.outline import outline

EVIL = "<script>alert('x')</script>\"'&"


@pytest.fixture(scope="module")
def live_page() -> LivePage:
    return LivePage()


def poisoned(value: Any) -> Any:
    """Every text and every name of an offering replaced by markup; what the status's form needs stays."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: poisoned(getattr(value, one.name)) for one in fields(value)})
    match value:
        case dict():
            return {EVIL + key: poisoned(item) for key, item in value.items()}
        case tuple():
            return tuple(poisoned(item) for item in value)
        case str() if not isinstance(value, Enum):
            return EVIL + value
        case _:
            return value


def page_of(live_page: LivePage, shown: ServiceStatus) -> str:
    return live_page.page(shown, live_page.fragments(shown), nonce="n")


@pytest.mark.parametrize("model", [empty_model(), busy_model(), interrupted_model()])
def test_page_is_well_formed_and_its_ids_are_unique(live_page: LivePage, model: ModelStatus) -> None:
    found = outline(page_of(live_page, status(model, empty_model("digits"))))
    assert len(found.ids) == len(set(found.ids))
    assert found.tags.count("h2") == 2


def test_models_stand_by_cost_in_table_and_page_and_the_dearest_is_open(live_page: LivePage) -> None:
    shown = status(empty_model("digits"), busy_model(), empty_model("words"))
    html = live_page.fragments(shown)
    assert re.findall(r'href="#(m\d)-tiles">([\w-]+)<', html.html["models"]) == [
        ("m1", "inception-v3"), ("m0", "digits"), ("m2", "words")
    ]  # fmt: skip
    assert html.html["models"].count("0.15 USD/h for gateways") == 1
    page = live_page.page(shown, html, nonce="n")
    folds = re.findall(r'<details class="model"( open)?>\s*<summary id="(m\d)-head">', page)
    assert folds == [(" open", "m1"), ("", "m0"), ("", "m2")]


def test_nothing_in_a_status_is_markup(live_page: LivePage) -> None:
    shown = poisoned(status(interrupted_model()))
    text = page_of(live_page, shown)
    assert text.count("<script") == 1
    assert outline(text).tags.count("script") == 1
    assert text.count("&lt;script&gt;") > 40
    for html in live_page.fragments(shown).html.values():
        assert "<script" not in html


def test_service_without_models_says_so(live_page: LivePage) -> None:
    assert "No model is known yet" in page_of(live_page, status())


def test_a_view_of_a_store_that_never_answered_is_shown(live_page: LivePage) -> None:
    away = ServiceStatus(service="mark", now=NOW, store=StoreStatus(reachable=False))
    assert "The store is unreachable" in page_of(live_page, away)


def test_fragments_of_the_same_status_do_not_change(live_page: LivePage) -> None:
    one, other = (live_page.fragments(status(busy_model())) for _ in range(2))
    assert other.changed_since(one) == {}
    assert other.changed_since(None) == other.html


def test_chart_moves_only_by_whole_pixels(live_page: LivePage) -> None:
    one, other = (live_page.fragments(status(busy_model(), now=NOW + shift)) for shift in (0.0, 0.2))
    assert "m0-chart" not in other.changed_since(one)


@pytest.mark.parametrize(
    ("changed", "says", "bad"),
    [
        ({"store": StoreStatus(reachable=False)}, "The store is unreachable", True),
        ({"controller": ControllerStatus()}, "No controller holds the lease", True),
        ({"controller": ControllerStatus(holder="c", silent_s=181.0)}, "silent for 3 min", True),
        (
            {"replays": ReplaysStatus(failed=FailedReplay(day="2026-11-20", error="no memory"))},
            "of 2026-11-20, which",
            False,
        ),
    ],
)
def test_trouble_is_a_banner(changed: dict[str, Any], says: str, bad: bool) -> None:
    (banner,) = banners(status(busy_model(), **changed))
    assert says in banner.text
    assert banner.bad is bad


def test_dead_letters_alarms_and_a_journal_that_is_not_archived_are_banners() -> None:
    well = AlertsStatus(dead_letters=0, ringing=())
    assert banners(status(busy_model(), alerts=well, archive=ArchiveStatus())) == ()
    rings = AlarmStatus(name="mark-shop-deadletters", reason="1 of the last 1 periods break the threshold")
    alerts = AlertsStatus(dead_letters=2, ringing=(rings,))
    failed = ArchiveStatus(failed="PutObject: AccessDenied: no")
    said = banners(status(busy_model(), alerts=alerts, archive=failed))
    assert [(one.text.partition(":")[0], one.bad) for one in said] == [
        ("2 messages about instances are dead letters", True),
        ("The alarm mark-shop-deadletters rings", True),
        ("The journal is not archived, and is tried again", False),
    ]
    silent = AlertsStatus(unknown="GetQueueUrl: AccessDenied")
    (banner,) = banners(status(busy_model(), alerts=silent))
    assert banner.text == "AWS does not report which alarms ring: GetQueueUrl: AccessDenied"


def test_a_service_at_work_has_no_banner_and_an_interruption_one() -> None:
    assert banners(status(busy_model())) == ()
    (banner,) = banners(status(interrupted_model()))
    assert banner.text == "inception-v3: 4 spot instances are being taken away, the first in 81 s."
    fleet = FleetStatus(observed=(instance(1, "c5.large:spot", gone_in_s=80.0),))
    assert (
        banners(status(replace(interrupted_model(), fleet=fleet)))[0].text
        == "inception-v3: 1 spot instance is being taken away, in 80 s."
    )


def test_budget_counts_late_shed_and_failed() -> None:
    model = busy_model()
    objective = replace(model.objective, answered=940, late=5, shed=50)
    budget = budget_of(replace(model, objective=objective, failed=10))
    assert (budget.finished, budget.missed, budget.allowed) == (1000, 65, 20.0)
    assert format_budget(budget) == "325 % of the error budget used"
    assert format_budget(budget_of(empty_model())) == "nothing finished yet"


def test_fleet_is_told_in_three_views() -> None:
    rows = {row.offering: row for row in fleet_rows(interrupted_model())}
    row = rows["c5.large:spot"]
    assert (row.planned, row.requested, row.observed, row.leaving) == (10, 5, 9, 4)
    assert row.states_text == "8 ready, 1 draining; 4 being taken away"
    assert rows["t3.xlarge:spot"].planned == 0


def test_a_plan_says_when_it_was_made_and_for_when() -> None:
    plan = PlanStatus(made_at=1_770_000_000.0, at=1_770_000_300.0)
    assert format_plan_times(replace(empty_model(), plan=plan)) == "Plan made 02:40, for 02:45"
    assert format_plan_times(replace(empty_model(), plan=replace(plan, at=plan.made_at))) == "Plan made 02:40"
    assert format_plan_times(empty_model()) == ""


def test_spend_of_an_hour_says_what_of_and_over_how_long() -> None:
    assert (
        format_hourly(busy_model())
        == "instances 0.80 now; Lambda 0.12, disks and addresses 0.0700 as a mean of 2 h"
    )
    assert format_hourly(empty_model()) == "instances 0.00 now; too early for the rest"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, "updated 2026-02-02 02:40:33 UTC"),
        ({"speed": 20.0}, "the service's clock runs 20x and shows 2026-02-02 02:40:30 UTC"),
        (
            {"speed": 0.0, "clock_stands": True},
            "the service's clock stands at 2026-02-02 02:40:30 UTC until the load begins",
        ),
        ({"behind_wall_s": 43.2}, "updated 2026-02-02 02:41:13 UTC"),  # it stood while the service started
        ({"behind_wall_s": 7200.0}, "updated 2026-02-02 04:40:30 UTC; the service's clock is 2 h behind"),
        ({"behind_wall_s": -10_900.0}, "updated 2026-02-01 23:38:50 UTC; the service's clock is 3 h ahead"),
    ],
)
def test_the_clock_is_the_services_where_it_is_not_the_walls(changed: dict[str, Any], says: str) -> None:
    assert format_clock(status(**changed)) == says


@pytest.mark.parametrize(
    ("target", "name"), [(0.9, "p95"), (0.95, "p95"), (0.98, "p98"), (0.99, "p99"), (0.999, "p99")]
)
def test_the_latency_card_has_the_objectives_quantile(target: float, name: str) -> None:
    model = busy_model()
    model = replace(model, objective=replace(model.objective, target=target))
    assert objective_quantile(model) == (name, getattr(model.latency_ms, name))


def test_a_failure_says_how_often_and_since_when() -> None:
    text = "the model failed: ValueError: row 3"
    assert format_failure(FailureKind(text=text, at=NOW - 25.0), NOW) == f"once, at 02:40:05: {text}"
    often = FailureKind(text=text, count=1200, since=NOW - 86_400.0, at=NOW)
    assert format_failure(often, NOW) == f"1,200 times since 2026-02-01 02:40:30, last 02:40:30: {text}"


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0.4, "0 s"), (-1.0, "0 s"), (81.9, "81 s"), (119.9, "119 s"), (190.0, "3 min"), (9000.0, "2 h")],
)
def test_spans_are_whole(seconds: float, says: str) -> None:
    assert format_span(seconds) == says


def test_steps_have_gaps_where_nothing_is_known() -> None:
    stretch = Stretch(start_at=0.0, unit_s=60, values=(1.0, 2.0, None, 4.0))
    assert stretch.edges() == [[(0, 1), (60, 1), (60, 2), (120, 2)], [(180, 4), (240, 4)]]
    assert stretch.middles() == [[(30, 1), (90, 2)], [(180, 4), (240, 4)]]


def test_a_single_minute_is_drawn_over_its_length() -> None:
    series = LoadSeries(start_at=NOW - 60, mean_rps=(9.0,), max_rps=(12.0,))
    text = load_chart(series, now=NOW, width=360, height=240, prefix="x")
    for name in ("mean", "highest"):
        [drawn] = re.findall(rf'<path class="{name}" d="M([^"]*)"', text)
        (left, _), (right, _) = (point.split() for point in drawn.split("L"))
        assert float(right) - float(left) > 5


def test_a_small_load_is_seen_beside_a_large_capacity() -> None:
    series = LoadSeries(start_at=NOW - 120, mean_rps=(2.0, 3.0), max_rps=(3.0, 4.0), capacity_rps=(900.0, 900.0))
    drawn = [load_chart(series, now=NOW, width=360, height=240, prefix="x", planned_rps=None)]
    drawn.append(load_chart(replace(series, capacity_rps=(9.0, 9.0)), now=NOW, width=360, height=240, prefix="x"))
    ticks = [max(map(float, re.findall(r'text-anchor="end">([\d.]+)</text>', text))) for text in drawn]
    assert ticks == [5, 10]
    assert ["capacity up to 900, above this chart" in text for text in drawn] == [True, False]


def test_chart_of_nothing_says_so() -> None:
    text = load_chart(empty_model().series, now=NOW, width=360, height=240, prefix="x")
    assert "no minute is closed yet" in text
    assert "NaN" not in text


@given(st.floats(1e-6, 1e9), st.sampled_from((4, 5)))
def test_ticks_are_few_and_end_above_the_peak(peak: float, count: int) -> None:
    ticks = rate_ticks(peak, count=count)
    assert ticks[0] == 0
    assert ticks[-1] > peak * (1 - 1e-6)
    assert len(ticks) <= count + 2


@given(st.floats(0, 4e9), st.floats(60, 86_400 * 2), st.integers(3, 20))
def test_time_ticks_lie_within(start_at: float, length: float, most: int) -> None:
    ticks = time_ticks(start_at, start_at + length, most=most)
    assert len(ticks) <= most + 1
    assert all(start_at - 1e-6 <= at <= start_at + length + 1e-6 for at in ticks)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=60), st.floats(0, 7200))
def test_chart_draws_any_series(values: list[float | None], since: float) -> None:
    rates = tuple(value or 0.0 for value in values)
    series = LoadSeries(
        start_at=NOW - since, mean_rps=rates, max_rps=rates, capacity_rps=tuple(values), forecast_start_at=NOW,
        forecast_max_rps=tuple(values),
    )  # fmt: skip
    text = load_chart(series, now=NOW, width=360, height=240, prefix="x")
    assert "nan" not in text
    assert "inf" not in text


def test_fragments_are_json_of_a_modest_size(live_page: LivePage) -> None:
    html = live_page.fragments(status(busy_model())).html
    assert len(json.dumps(html)) < 60_000


def test_the_month_is_one_sentence_and_invents_nothing() -> None:
    assert format_month(status(busy_model())) == ""
    told = status(busy_model(), budget=BudgetStatus(month_usd=12.4))
    assert format_month(told) == "12.40 USD this month so far."
    compared = ComparedCost(policy="sagemaker", usd=9.0, measured_usd=6.0, replayed_s=7 * 86_400.0)
    told = replace(told, budget=BudgetStatus(month_usd=12.4, month_projected_usd=31.2), compared=compared)
    assert format_month(told) == (
        "12.40 USD this month so far, about 31.20 by its end as the last days went; 33 % less than sagemaker, the "
        "cheapest rival that keeps the objective, in the 7 days replayed."
    )
    told = replace(told, compared=replace(compared, measured_usd=18.0, kept=False))
    assert "100 % more than sagemaker, the rival that misses it least, in" in format_month(told)


def test_the_page_shows_month_zones_fan_plan_and_the_parts_of_an_hour(live_page: LivePage) -> None:
    busy = busy_model()
    zoned = tuple(replace(row, zone="us-east-1b") for row in busy.fleet.observed)
    model = replace(busy, fleet=replace(busy.fleet, observed=zoned))
    html = live_page.fragments(status(model, budget=BudgetStatus(month_usd=12.4))).html
    assert "12.40 USD this month" in html["month"]
    assert "us-east-1b 9" in html["m0-fleet"]
    assert "us-east-1b" in html["m0-instances"]
    assert html["m0-chart"].count('<path class="fan"') == 2 * 2 + 2  # wide, narrow, and the legend's
    assert html["m0-chart"].count('<path class="planned"') == 2 + 1
    assert "10, 25, 75, 90 % quantiles" in " ".join(html["m0-chart"].split())
    widths = [
        float(found) for found in re.findall(r'<rect class="\w+" x="[\d.]+" width="([\d.]+)"', html["m0-spend"])
    ]
    assert sum(widths) == pytest.approx(100.0, abs=0.3)
    plain = replace(model, plan=None, series=replace(model.series, fan_levels=(), fan_max_rps=()))
    chart = live_page.fragments(status(plain)).html["m0-chart"]
    assert "fan" not in chart
    assert "planned" not in chart


def test_the_page_shows_a_pool_beside_its_budget_and_each_gateways_share(live_page: LivePage) -> None:
    html = " ".join(live_page.fragments(status(pooled_model())).html["m0-fleet"].split())
    assert "Pool: 0.82 of 0.85 USD/h; chosen for 241.3 items a request" in html
    assert "Central queues by gateway: gateway-0 1 g4dn.xlarge:on-demand, 1 r5n.large:on-demand" in html
    plain = live_page.fragments(status(busy_model())).html["m0-fleet"]
    assert "Pool" not in plain
    assert "gateway" not in plain


def test_spending_by_the_hour_is_stacked_columns_with_the_overhead_on_top(live_page: LivePage) -> None:
    hours = tuple(
        HourSpend(at=NOW // 3600 * 3600 + 3600 * n, instances=0.5 + n / 10, lambda_usd=0.1, overhead=0.05)
        for n in range(8)
    )
    html = live_page.fragments(status(busy_model(), hours=hours)).html["hours"]
    for key in ("instance", "lambda", "overhead"):
        assert html.count(f'<rect class="{key}" x=') == 2 * len(hours)
    assert "cost 1.35 USD, 0.0500 of it overhead." in html
    assert "commitments" not in html
    assert live_page.fragments(status(busy_model())).html["hours"].strip() == ""
    unused = (*hours[:-1], replace(hours[-1], commitments=0.2), replace(hours[-1], at=hours[-1].at + 3600))
    html = live_page.fragments(status(busy_model(), hours=unused)).html["hours"]
    assert html.count('<rect class="commitments" x=') == 2
    assert "commitments beyond what they cover</li>" in html
    saving = tuple(replace(hour, commitments=-0.3) for hour in hours)
    assert "cost 1.05 USD" in live_page.fragments(status(busy_model(), hours=saving)).html["hours"]
