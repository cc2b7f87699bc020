"""The page: needs nothing beside it, escapes what it is given, is written whole, and shows something."""

import dataclasses
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import Misconfigured
from mark.report import page
from mark.report.page import render_notebook, render_report, write_report
from mark.report.runs.plots import latency_figure
from mark.simulator.results import MinuteSeries, SecondSeries
from tests.report.browser import look_at, needs_browser, seen_by_readers
from tests.report.conftest import leave_out_plots
from tests.report.fakes import POLICIES, fake_run
from tests.report.outline import outline

ODD: dict[str, object] = {
    "accuracy": 0.975,
    "quality": 0.9714,
    "notes": ("rests for 15 min in 2 places", "<b>5 s</b>"),
    "throttled": 1234,
    "attained": 0.97999,
}
"""What a run need not have, all at once."""


def page_of(policies: Sequence[str], **changed: object) -> str:
    runs = [fake_run(name, duration_s=900, **changed) for name in policies]
    return render_report(runs, title="a day", command="mark simulate --seed 7", assumptions=["prices of 2025"])


@cache
def rendered() -> str:
    """A page of all policies, drawn once for all that ask: each figure takes half a second."""
    return page_of(POLICIES)


@pytest.fixture(scope="module")
def odd() -> str:
    """A page of runs that have all, without figures."""
    with pytest.MonkeyPatch.context() as patch:
        leave_out_plots(patch)
        return page_of(POLICIES[:3], **ODD)


def test_quality_stands_beside_accuracy_and_nowhere_without_variants(odd: str) -> None:
    assert '<th scope="col">quality</th>' in odd
    assert "97.50\N{NO-BREAK SPACE}% of the answers right, quality 0.9714;" in odd
    assert "quality" not in rendered()


def test_page_is_self_contained() -> None:
    text = rendered()
    found = outline(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert found.tags.count("svg") == 2 * (3 + len(POLICIES)), "wide and narrow"
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}


def test_no_line_ends_between_a_number_and_its_unit(odd: str) -> None:
    assert "600\xa0ms" in odd
    assert "rests for 15\xa0min in 2 places" in odd
    assert "&lt;b&gt;5\xa0s&lt;/b&gt;" in odd
    prose = re.sub(r"<(svg|pre|style).*?</\1>|<[^>]+>", "", odd, flags=re.DOTALL)
    assert not re.findall(r"\d (?:%|USD|ms|s|min)\b", prose)


def test_the_latency_axis_has_ticks_around_an_objective_below_a_second() -> None:
    drawn = latency_figure([(name, fake_run(name, duration_s=900)) for name in POLICIES[:3]], prefix="p")
    ticks = {found.replace("\xa0", " ") for found in re.findall(r">(\d+.(?:ms|s))</text>", drawn)}
    assert {"200 ms", "500 ms", "1 s"} <= ticks


def test_ids_are_unique_and_references_meet_one() -> None:
    text = rendered()
    ids = outline(text).ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)) != set()
    for pair in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text):
        assert "".join(pair) in ids


def test_page_holds_bill_command_notes_and_headline() -> None:
    text = rendered()
    for part in (
        "mark simulate --seed 7",
        "prices of 2025",
        "c5.2xlarge:on-demand",
        "t2.xlarge from t3.xlarge",
        " a month",
    ):
        assert part in text


def test_cold_starts_stand_beside_the_published_rate_and_refusals_of_lambda_are_told(odd: str) -> None:
    assert "0.23 % at most" in " ".join(rendered().split())
    assert "Lambda refused" not in rendered()
    assert odd.count("Lambda refused 1,234 calls") == 3


def test_names_are_escaped_everywhere() -> None:
    evil = "<script>alert('$x_1$')</script>"
    minutes = fake_run(duration_s=900).result.minutes
    minutes = dataclasses.replace(minutes, offerings=(evil, *minutes.offerings[1:]))
    runs = [fake_run(evil, duration_s=900, trace=evil, minutes=minutes, notes=(evil,), model=evil)]
    text = render_report(runs, title=evil, command=evil, assumptions=[evil])
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "script" not in outline(text).tags


def test_the_same_runs_give_the_same_figures() -> None:
    first, again = (render_notebook([fake_run()], drawn="cost") for _ in range(2))
    assert "<svg" in first
    assert first == again


@needs_browser
def test_the_report_of_a_small_load_is_a_screen_and_a_half(tmp_path: Path) -> None:
    tiny = fake_run(duration_s=900)
    minutes = dataclasses.replace(tiny.result.minutes, capacity_rps=1e4 * tiny.result.minutes.capacity_rps)
    runs = [fake_run(name, duration_s=900, minutes=minutes) for name in POLICIES[:4]]
    page = render_report(runs, title="t", command="c")
    assert page.count("<details") == page.count('<details class="fold">') == 5
    assert look_at(tmp_path, page, width=1200, dark=False, folded=True).height <= 1200
    assert rendered().count('<details class="fold" open>') == 3


def test_a_miss_is_written_out(odd: str) -> None:
    assert "97.99\xa0% &lt; 98\xa0%" in odd


def test_empty_run_and_week_are_drawn() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    empty = fake_run(
        duration_s=900,
        seconds=SecondSeries(arrivals=nothing, answered=nothing, missed=nothing, to_lambda=nothing,
                             latency_sum_s=np.zeros(0), latency_max_s=np.zeros(0)),
        minutes=MinuteSeries(offerings=(), ready=np.zeros((0, 0), dtype=np.int64), capacity_rps=np.zeros((0, 0)),
                             forecast_max_rps=np.zeros(0)),
    )  # fmt: skip
    week = fake_run(duration_s=7 * 86_400)
    text = render_report([empty, week], title="t", command="c")
    assert "days since the start" in text
    assert len(text) < 1_000_000


@pytest.mark.slow
def test_page_of_seven_policies_over_a_day_stays_below_3_mb(tmp_path: Path) -> None:
    runs = [fake_run(name, duration_s=86_400) for name in (*POLICIES, "hedged")]
    written = write_report(tmp_path, runs, title="t", command="c")
    assert written.stat().st_size < 3_000_000


@pytest.mark.usefixtures("without_plots")
def test_report_and_document_are_written_whole(tmp_path: Path) -> None:
    written = write_report(tmp_path / "new", [fake_run(duration_s=120)], title="t", command="c")
    assert written == tmp_path / "new" / "report.html"
    assert sorted(path.name for path in written.parent.iterdir()) == ["report.html", "runs.json"]
    assert json.loads((written.parent / "runs.json").read_text())["runs"][0]["policy"] == "mark"


def test_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured) as caught:
        write_report(tmp_path / "file", [fake_run(duration_s=60)], title="t", command="c")
    assert str(caught.value).endswith("file is not a folder; name another --out")


@pytest.mark.usefixtures("without_plots")
def test_full_disk_keeps_the_old_report_and_the_new_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text("old")
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name == page.REPORT_NAME:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(Misconfigured, match="No space left on device"):
        write_report(tmp_path, [fake_run(duration_s=60)], title="t", command="c")
    assert (tmp_path / "report.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs.json"]


@needs_browser
@seen_by_readers
def test_everything_in_the_report_can_be_read(tmp_path: Path, width: int, dark: bool) -> None:
    look = look_at(tmp_path, rendered(), width=width, dark=dark)
    look.check(dark=dark)
    look.check_drawn(colours=200)
    assert look.width == width
    in_their_boxes = {name.split(" by ")[0] for name in look.scrolled}
    assert in_their_boxes == ({"Comparison of the policies"} if width == 400 else set())


@cache
def shown_in_a_notebook() -> str:
    runs = [fake_run(policy) for policy in POLICIES]
    return render_notebook(runs) + render_notebook(runs, drawn="cost") + render_notebook(runs, drawn="load")


@needs_browser
@seen_by_readers
def test_in_a_notebook_it_can_be_read_and_leaves_the_page_alone(tmp_path: Path, width: int, dark: bool) -> None:
    page = '<!doctype html><meta name="color-scheme" content="light dark"><body style="margin:0">'
    jupyters = (
        "<style>.jupyter table { table-layout: fixed; margin: auto; } .jupyter td { text-align: right; }</style>"
    )
    shown = shown_in_a_notebook()
    look_at(tmp_path, f'{page}{jupyters}<div class="jupyter">{shown}</div>', width=width, dark=dark).check(
        dark=dark
    )
    assert not re.search(r"<a |<img|<script|https?:", shown)
