"""The page: needs nothing beside it, escapes what it is given, is written whole, and shows something."""

import dataclasses
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import Misconfigured
from mark.report import page
from mark.report.page import render_notebook, render_report, write_report
from mark.simulator.results import MinuteSeries, SecondSeries
from tests.report.browser import look_at, needs_browser, seen_by_readers
from tests.report.fakes import POLICIES, fake_run

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Open tags, ids and attributes; complains about a tag that is closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


@cache
def rendered(**changed: object) -> str:
    """A page, drawn once for all that ask."""
    runs = [fake_run(name, duration_s=900, **changed) for name in POLICIES[:3]]
    return render_report(runs, title="a day", command="mark simulate --seed 7", assumptions=["prices of 2025"])


ODD: dict[str, object] = {
    "accuracy": 0.975,
    "quality": 0.9714,
    "notes": ("rests for 15 min in 2 places", "<b>5 s</b>"),
    "throttled": 1234,
    "attained": 0.97999,
}
"""What a run need not have, all at once: each page takes a second or more to draw."""


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    assert parser.stack == []
    return parser


def test_quality_stands_beside_accuracy_and_nowhere_without_variants() -> None:
    text = rendered(**ODD)
    outline(text)
    assert '<th scope="col">quality</th>' in text
    assert "97.50\N{NO-BREAK SPACE}% of the answers right, quality 0.9714;" in text
    assert "quality" not in rendered()


def test_page_is_self_contained() -> None:
    text = rendered()
    found = outline(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert found.tags.count("svg") == 12
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    text = rendered(**ODD)
    assert "600\xa0ms" in text
    assert "rests for 15\xa0min in 2 places" in text
    assert "&lt;b&gt;5\xa0s&lt;/b&gt;" in text
    prose = re.sub(r"<(svg|pre|style).*?</\1>|<[^>]+>", "", text, flags=re.DOTALL)
    assert not re.findall(r"\d (?:%|USD|ms|s|min)\b", prose)


def test_the_latency_axis_has_ticks_around_an_objective_below_a_second() -> None:
    ticks = {found.replace("\xa0", " ") for found in re.findall(r">(\d+.(?:ms|s))</text>", rendered())}
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


def test_cold_starts_stand_beside_the_published_rate_and_refusals_of_lambda_are_told() -> None:
    quiet, throttled = rendered(), rendered(**ODD)
    assert "0.23 % at most" in " ".join(quiet.split())
    assert "Lambda refused" not in quiet
    assert throttled.count("Lambda refused 1,234 calls") == 3


def test_names_are_escaped_everywhere() -> None:
    evil = "<script>alert('$x_1$')</script>"
    minutes = fake_run(duration_s=900).result.minutes
    minutes = dataclasses.replace(minutes, offerings=(evil, *minutes.offerings[1:]))
    runs = [fake_run(evil, duration_s=900, trace=evil, minutes=minutes, notes=(evil,), model=evil)]
    text, again = (render_report(runs, title=evil, command=evil, assumptions=[evil]) for _ in range(2))
    assert text == again, "the same runs give the same page"
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "script" not in outline(text).tags


@needs_browser
def test_the_report_of_a_small_load_is_a_screen_and_a_half(tmp_path: Path) -> None:
    tiny = fake_run(duration_s=900)
    minutes = dataclasses.replace(tiny.result.minutes, capacity_rps=1e4 * tiny.result.minutes.capacity_rps)
    runs = [fake_run(name, duration_s=900, minutes=minutes) for name in POLICIES[:4]]
    page = render_report(runs, title="t", command="c")
    assert page.count("<details") == page.count('<details class="fold">') == 5
    assert look_at(tmp_path, page, width=1200, dark=False, folded=True).height <= 1200
    assert rendered().count('<details class="fold" open>') == 3


def test_a_miss_is_written_out() -> None:
    assert "97.99\xa0% &lt; 98\xa0%" in rendered(**ODD)


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


@cache
def of_all_policies() -> str:
    runs = [fake_run(name, duration_s=900) for name in POLICIES]
    command = "mark simulate --seed 7 --policy all"
    return render_report(runs, title="a day", command=command, assumptions=["prices"])


@needs_browser
@seen_by_readers
def test_everything_in_the_report_can_be_read(tmp_path: Path, width: int, dark: bool) -> None:
    look = look_at(tmp_path, of_all_policies(), width=width, dark=dark)
    look.check(dark=dark)
    look.check_drawn(colours=200)
    assert look.width == width
    in_their_boxes = {name.split(" by ")[0] for name in look.scrolled}
    assert in_their_boxes == ({"Comparison of the policies"} if width == 400 else set())


@needs_browser
@seen_by_readers
def test_in_a_notebook_it_can_be_read_and_leaves_the_page_alone(tmp_path: Path, width: int, dark: bool) -> None:
    runs = [fake_run(policy) for policy in POLICIES]
    parts = (render_notebook(runs), render_notebook(runs, drawn="cost"), render_notebook(runs, drawn="load"))
    page = '<!doctype html><meta name="color-scheme" content="light dark"><body style="margin:0">'
    jupyters = (
        "<style>.jupyter table { table-layout: fixed; margin: auto; } .jupyter td { text-align: right; }</style>"
    )
    look = look_at(
        tmp_path, f'{page}{jupyters}<div class="jupyter">{"".join(parts)}</div>', width=width, dark=dark
    )

    look.check(dark=dark)
    assert not any(re.search(r"<a |<img|<script|https?:", part) for part in parts)
