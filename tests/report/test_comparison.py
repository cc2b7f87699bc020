"""Names, ratios and notes; the terminal's table."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from mark.domain.billing.costs import CostUsd
from mark.domain.errors import Misconfigured
from mark.domain.plan import CostParts, Excuse, PlannedCount
from mark.report.formatting import (
    compared_words,
    format_count,
    format_duration,
    format_rps,
    over_yardstick,
    percent,
    usd,
)
from mark.report.runs.comparison import (
    ComparedRun,
    OneVariant,
    accuracy_sentence,
    comparison_notes,
    cost_ratio,
    headline_run,
    outcomes,
    run_labels,
)
from mark.report.runs.explanation import ExplainedTick, explain_document, explain_text
from mark.report.runs.runs_table import comparison_table
from mark.report.table_layout import fit_table
from mark.simulator.results import Latency, ServedCounts
from tests.report.fakes import POLICIES, fake_run


def costing(policy: str, usd_total: float, **changed: object) -> ComparedRun:
    cost = CostUsd(instances=usd_total, standby=0.0, lambda_=0.0, overhead=0.0)
    return fake_run(policy, **{"duration_s": 120, "cost": cost, **changed})


def printed(renderable: object, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    is_table = isinstance(renderable, Table)
    for part in [*fit_table(console, renderable), renderable.caption] if is_table else [renderable]:
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_cost_far_beyond_a_yardstick_shows_no_digits() -> None:
    shown = [over_yardstick(times) for times in (None, 2.137, 0.999, 8912.52)]
    assert shown == ["-", "114 %", "0 %", "-"]


def test_one_cost_over_another_is_said_in_words() -> None:
    shown = [compared_words(times) for times in (None, 0.672, 1.004, 1.71, 2.46, 12.3, 8912.52)]
    assert shown == ["-", "33 % less", "the same", "71 % more", "2.5 times", "12 times", "8,913 times"]


def test_policies_that_did_the_same_are_one_row() -> None:
    ours, rival = costing("hedged", 1.0), costing("sagemaker", 2.0)
    twin = dataclasses.replace(rival, result=dataclasses.replace(rival.result, policy="static-peak"))
    rows = outcomes([ours, rival, twin])
    assert [label for label, _ in rows] == ["hedged", "sagemaker, static-peak"]
    table = printed(comparison_table([ours, rival, twin]))
    assert "sagemaker," in table
    again = dataclasses.replace(ours, result=dataclasses.replace(ours.result, policy="reactive"))
    label, lead = outcomes([again, ours])[0]
    assert label == "reactive, hedged"
    assert lead is ours


def test_a_forecaster_that_failed_is_in_the_notes() -> None:
    failed = fake_run("mark", duration_s=60, forecasts=10, fallback_forecasts=4, notes=())
    assert "the forecaster failed: last-value stood in 4 of 10 times" in comparison_notes([failed])


def test_reference_is_the_first_of_our_own_policies_else_the_cheapest() -> None:
    mark, cheap, dear = costing("mark", 9.0), costing("reactive", 2.0), costing("sagemaker", 18.0)
    hedged, again = costing("hedged", 10.0), costing("hedged", 8.0)
    assert headline_run([dear, mark, hedged, again, cheap]) is hedged
    assert headline_run([dear, mark, cheap]) is mark
    assert headline_run([dear, cheap]) is cheap
    assert cost_ratio(dear, mark) == 2.0
    assert cost_ratio(dear, costing("mark", 0.0)) is None
    with pytest.raises(Misconfigured, match="no run finished"):
        headline_run([])


@pytest.mark.parametrize(("rps", "said"), [(0.123, "0.12"), (99.4, "99"), (99.7, "100"), (1234.0, "1,234")])
def test_a_rate_has_no_exponent(rps: float, said: str) -> None:
    assert format_rps(rps) == said


def test_labels_tell_runs_apart() -> None:
    runs = [fake_run(duration_s=60), fake_run(duration_s=60, market="spot"), fake_run(duration_s=60)]
    assert run_labels(runs) == ("mark (on-demand)", "mark (spot)", "mark (on-demand) #2")


def test_notes_name_assumed_profiles_and_the_run_they_belong_to() -> None:
    runs = [
        fake_run(duration_s=60, notes=("shared", "own")),
        fake_run("reactive", duration_s=60, notes=("shared",), assumed_profiles=()),
    ]
    first, *others = comparison_notes(runs)
    assert "t2.xlarge from t3.xlarge" in first
    assert others == [
        "a month here is 60 s of load, over and over; replay a day to be surer",
        "shared",
        "mark: own",
    ]


def test_notes_name_what_was_measured_on_another_machine() -> None:
    stand_in = "mine on c5.large: measured on a laptop"
    runs = [fake_run("mark", duration_s=60, assumed_profiles=(), stand_in_profiles=(stand_in,))]

    first, *_ = comparison_notes(runs)

    assert stand_in in first
    assert "measured on another machine" in first
    assert "No assumed profiles" not in first


def test_table_fits_100_columns_and_marks_a_miss_in_words() -> None:
    runs = [fake_run(name, duration_s=120) for name in POLICIES]
    runs[3] = dataclasses.replace(runs[3], result=dataclasses.replace(runs[3].result, attained=0.97999))
    text = printed(comparison_table(runs))
    assert max(map(len, text.splitlines())) <= 100
    assert "97.99 < 98 %" in text
    assert all(name in text for name in POLICIES)
    assert "…" not in text


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.979999, 1, "97.9 %"), (0.98, 1, "98.0 %"), (0.29, 0, "29 %"), (0.9995, None, "99.95 %")],
)
def test_percent_rounds_down(share: float, digits: int | None, text: str) -> None:
    assert percent(share, digits=digits) == text


def test_figures_as_words() -> None:
    assert [usd(value) for value in (1234.5, 0.01234, 0.0, float("nan"))] == ["1,234.50", "0.0123", "0.00", "-"]
    assert [format_count(value) for value in (812, 12_345, 5_600_000)] == ["812", "12.3 k", "5.6 M"]
    assert [format_duration(value) for value in (0.6, 1.5, 900, 86_400, 172_797, 172_800, 604_800)] == [
        "600 ms", "1.5 s", "15 min", "24 h", "2 d", "2 d", "7 d",
    ]  # fmt: skip


def test_explain_prints_and_documents_a_tick() -> None:
    parts = CostParts(rent_usd_per_hour=2.5, risk_usd_per_hour=0.02, launch_usd=0.004, saved_usd_per_hour=7.0)
    tick = ExplainedTick(
        at_s=24_725.0,
        seen="61 rps [peak]",
        forecast="72 rps",
        plan="30 c5.large",
        orders=("launch 2: short by 4 rps",),
        counts=(
            PlannedCount(
                offering="c5.large", count=30, kept=30, usable_rps=2.4, usd_per_hour=0.085, launch_usd=0.002,
                parts=parts,
            ),
        ),
        excuses=(Excuse(offering="m5.large", reason="dearer"),),
    )  # fmt: skip
    idle = dataclasses.replace(tick, orders=(), notes=("forecast failed",))
    text = printed(explain_text([tick, idle]))
    for part in (
        "minute 412 (06:52:05",
        "61 rps [peak]",
        "72 rps",
        "30 c5.large",
        "short by 4 rps",
        "rent 2.5, risk 0.02, saved 7 USD/h",
        "as planned",
        "forecast failed",
    ):
        assert part in text
    assert explain_document([tick])["ticks"] == [
        {"at_s": 24_725.0, "minute": 412, "seen": "61 rps [peak]", "forecast": "72 rps", "plan": "30 c5.large",
         "orders": ["launch 2: short by 4 rps"], "notes": [],
         "counts": [{"offering": "c5.large", "count": 30, "parts": dataclasses.asdict(parts)}],
         "excuses": [{"offering": "m5.large", "reason": "dearer", "parts": None}]}
    ]  # fmt: skip
    assert "no tick" in printed(explain_text([]))


def test_where_nobody_asked_shares_and_latencies_are_dashes() -> None:
    nobody = ServedCounts(instance=0, standby=0, lambda_=0, shed=0, in_flight=0)
    quiet = costing("mark", 1.0, served=nobody, attained=1.0)
    row = next(line for line in printed(comparison_table([quiet])).splitlines() if line.startswith("mark"))
    assert "-/-/-" in row
    assert "100" not in row
    shed = costing("mark", 1.0, served=dataclasses.replace(nobody, shed=9), attained=0.0)
    assert "-/-/-" in printed(comparison_table([shed]))


def test_every_column_is_whole_where_the_headline_policy_has_a_long_name() -> None:
    slow = Latency(
        mean_s=9.0, p50_s=6.72, p95_s=32.87, p99_s=50.9, ccdf_s=np.array([60.0]), ccdf_share=np.array([0.0])
    )
    runs = [costing("reactive", 2.0, latency=slow, attained=0.1204), costing("lambda-only", 1.0)]
    lines = printed(comparison_table(runs)).splitlines()
    assert any(line.rstrip().endswith("lost") for line in lines)
    row = next(line for line in lines if line.startswith("reactive"))
    assert "2.0 times" in row
    assert row.split()[-1] == f"{runs[0].result.launches:,}/{runs[0].result.interruptions:,}"
    assert max(map(len, lines)) <= 100


def test_the_floor_stands_beside_the_reference_after_a_whole_day_only() -> None:
    day, missed = (costing("mark", 3.0, duration_s=86_400, attained=share) for share in (0.99, 0.9))
    shown = printed(comparison_table([day, missed]))
    assert "floor" in shown
    kept_row, missed_row = (line for line in shown.splitlines() if line.startswith("mark"))
    assert f"{100 * (day.cost_over_reference - 1):.0f} %/{100 * (day.cost_over_floor - 1):.0f} %" in kept_row
    assert f"{100 * (missed.cost_over_reference - 1):.0f} %/-" in missed_row
    hours = costing("mark", 3.0, duration_s=3600)
    assert "floor" not in printed(comparison_table([hours]))


def test_quality_stands_beside_accuracy_and_nowhere_without_variants() -> None:
    runs = [fake_run(name, duration_s=120) for name in POLICIES]
    plain = printed(comparison_table(runs))
    assert "quality" not in plain
    with_variants = dataclasses.replace(runs[0].result, accuracy=0.975, quality=0.9714)
    runs[0] = dataclasses.replace(runs[0], result=with_variants)
    shown = printed(comparison_table(runs))
    assert "quality" in shown
    assert "97.50 %" in shown
    assert "0.9714" in shown
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    ("ours_usd", "alone_usd", "ending"),
    [
        (6.0, 10.0, "2.00 points of accuracy less, 40 % less cost."),
        (11.0, 10.0, "2.00 points of accuracy less, 10 % more cost."),
        (10.0, 10.0, "2.00 points of accuracy less, the same cost."),
        (6.0, 0.0, "in time, for 0.00 USD."),
    ],
)
def test_what_points_of_accuracy_bought_is_one_sentence(ours_usd: float, alone_usd: float, ending: str) -> None:
    ours = costing("hedged", ours_usd, accuracy=0.97)
    assert accuracy_sentence([ours]) == ""
    alone = OneVariant(variant="large", result=costing("hedged", alone_usd, accuracy=0.99).result)
    said = accuracy_sentence([dataclasses.replace(ours, most_accurate=alone), costing("reactive", 1.0)])
    assert said.endswith(ending)
    assert "With its variants hedged answered 97.00 % right" in said
    assert "with large alone it would have answered 99.00 % right" in said
