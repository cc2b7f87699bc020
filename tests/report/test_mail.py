"""The mail of a cost report: its numbers, its parts, and how mail programs show it."""

from __future__ import annotations

import email
import email.policy
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from mark.accounting.budget import MonthSpend
from mark.domain.errors import Misconfigured
from mark.report.cost.cost_report import Answers, CostReport, report_document, spend_by_day, spend_by_item
from mark.report.formatting import MISSING, rate_words
from mark.report.mail.message import Mail, mime, render, standalone
from mark.report.mail.text import mail_text
from mark.report.mail.view import mail_view
from tests.report.browser import beside, look_at, needs_browser
from tests.report.cost_fakes import DAY_S, FIRST, cost_report, model_report, rolled_out

MONTH = cost_report(
    rolled_out(model_report(days=30)),
    model_report("digits", days=30, seed=3, missed=True),
    days=30,
    reconciled=True,
)
WEEK = cost_report(model_report(), reconciled=True)
ONE_POINT = cost_report(replace(model_report(days=1), baselines=(), decisions=()), days=1)
NOTHING = CostReport(service="vision", since=FIRST.timestamp(), until=FIRST.timestamp() + DAY_S, models=())
ALL = {"month": MONTH, "week": WEEK, "one": ONE_POINT, "nothing": NOTHING}


class Rows(HTMLParser):
    """The cells of all tables, a list a row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        self._in_cell = tag in ("td", "th")
        if self._in_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def text_of(report: CostReport) -> str:
    """The mail's text alone: its plots take most of the time."""
    return mail_text(mail_view(report))


@pytest.fixture(scope="module")
def mails() -> dict[str, Mail]:
    return {name: render(report) for name, report in ALL.items()}


def told_in_html(mail: Mail) -> dict[str, list[str]]:
    parser = Rows()
    parser.feed(mail.html)
    return {row[0]: row[1:] for row in reversed(parser.rows) if row}


def told_in_text(mail: Mail) -> dict[str, list[str]]:
    lines = [re.split(r"\s{2,}", line.strip()) for line in mail.text.splitlines()]
    return {cells[0]: cells[1:] for cells in reversed(lines) if len(cells) > 1}


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize("told", [told_in_html, told_in_text])
@pytest.mark.parametrize("name", ["month", "week", "one"])
def test_every_day_and_item_is_the_ledgers_to_the_cent(mails, name, told) -> None:
    report, rows = ALL[name], told(mails[name])
    for day, cost in spend_by_day(report.lines).items():
        cells = rows[f"{day:%a %-d %b}"]
        assert [number(cell) for cell in cells[:5]] == [
            pytest.approx(amount, abs=0.005 + 1e-9)
            for amount in (cost.total, cost.instances, cost.standby, cost.lambda_, cost.overhead)
        ]
    for line in spend_by_item(report.lines):
        label = f"Lambda {line.item}" if line.component == "lambda" else line.item
        assert number(rows[label][0]) == pytest.approx(line.usd, abs=0.005 + 1e-9)
    assert number(rows["All"][0]) == pytest.approx(report.cost.total, abs=0.005 + 1e-9)


@pytest.mark.usefixtures("without_plots")
def test_less_than_a_dollar_is_told_with_four_digits() -> None:
    model = model_report(days=1)
    cheap = replace(
        model,
        lines=tuple(replace(item, line=replace(item.line, usd=item.line.usd / 100)) for item in model.lines),
    )
    mail = render(replace(cost_report(cheap, days=1), shared=()))
    total = sum(item.line.usd for item in cheap.lines)
    assert f"{total:.4f} USD" in mail.text
    assert f"{total:.4f} USD" in mail.html


def test_difference_to_cost_explorer_is_printed(mails) -> None:
    for rows in (told_in_html(mails["week"]), told_in_text(mails["week"])):
        own, aws, difference = (number(cell) for cell in rows["Days that AWS has billed"])
        known = [item for item in WEEK.reconciliation if item.aws_usd is not None]
        assert own == pytest.approx(sum(item.ledger_usd for item in known), abs=0.006)
        assert aws - own == pytest.approx(difference, abs=0.016)
        assert difference == pytest.approx(0.04 * own, abs=0.01)


@pytest.mark.parametrize("name", ALL)
def test_mime_has_both_parts_and_each_image_that_the_html_names(mails, name) -> None:
    mail = mails[name]
    message = email.message_from_bytes(
        mime(mail, "mark@example.org", ["a@example.org", "b@example.org"]), policy=email.policy.default
    )
    assert message["Subject"] == mail.subject
    assert message["To"] == "a@example.org, b@example.org"
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().replace("\r\n", "\n") == mail.text
    named = set(re.findall(r'"cid:([^"]+)"', html.get_content()))
    parts = {part["Content-ID"].strip("<>"): part for part in message.walk() if part["Content-ID"]}
    assert named == set(parts) == {image for image, _ in mail.images}
    for image, png in mail.images:
        assert parts[image].get_content() == png
        assert png.startswith(b"\x89PNG")
    if mail.images:
        assert message.get_content_type() == "multipart/alternative"
        assert "multipart/related" in [part.get_content_type() for part in message.walk()]


@pytest.mark.parametrize("name", ALL)
def test_a_file_needs_nothing_else(mails, name) -> None:
    html = standalone(mails[name])
    assert "cid:" not in html
    assert "http" not in re.sub(r'content="[^"]*"', "", html)
    assert html.count("data:image/png;base64,") == len(mails[name].images)


def test_what_is_missing_is_left_out(mails) -> None:
    assert "Nothing was spent and no request arrived" in mails["nothing"].text
    assert "<table" not in mails["nothing"].html
    assert "WHAT OTHER POLICIES WOULD HAVE COST" not in mails["one"].text
    assert mails["month"].text.count("WHAT OTHER POLICIES WOULD HAVE COST") == 2


def test_a_missed_objective_leads_the_subject(mails) -> None:
    assert mails["month"].subject.endswith("digits missed the objective")
    assert mails["week"].subject.endswith("the objective held")
    assert 'class="bad"' in mails["month"].html
    assert 'class="bad"' not in mails["week"].html


def test_the_price_of_a_million_requests_is_told_and_how_much_of_it_the_fleet_is() -> None:
    report = WEEK
    finished = report.models[0].answers.finished
    each, fleet = 1e6 * report.cost.total / finished, 1e6 * report.cost.serving / finished
    assert fleet < each
    said = f"A million requests: {each:,.3g} USD ({fleet:,.3g} of it instances, standbys and Lambda)"
    assert said in text_of(report)
    document = report_document(report)
    assert (document["usd_per_million"], document["fleet_usd_per_million"]) == (each, fleet)
    few = replace(report.models[0], answers=Answers(instance=999), days=())
    assert "A million requests" not in text_of(cost_report(few))


def test_from_which_load_the_service_pays_is_told_beside_what_came() -> None:
    model = replace(model_report(days=1), break_even_rps=2.34)
    mean = model.answers.finished / DAY_S
    words = " ".join(text_of(cost_report(model, days=1)).split())
    said = "This service costs less than Lambda alone from a constant load of 2.3 requests/s on"
    assert f"{said}; {rate_words(mean)} came on average." in words
    two = cost_report(model, replace(model, name="digits", break_even_rps=None), days=1)
    words = " ".join(text_of(two).split())
    assert "inception-v3 by itself costs less than Lambda alone" in words
    assert "digits by itself" not in words
    assert "which load it pays" not in text_of(WEEK)


@pytest.mark.usefixtures("without_plots")
def test_names_cannot_break_the_page() -> None:
    decision = replace(model_report().decisions[0], reason="a < b & <script>alert(1)</script>")
    mail = render(cost_report(replace(model_report(), decisions=(decision,))))
    assert "<script>" not in mail.html
    assert "a &lt; b &amp; &lt;script&gt;" in mail.html
    assert "<script>alert(1)</script>" in mail.text


@pytest.mark.parametrize("address", ["nobody", "a@b\nBcc: c@d.e", "a b@c.d", "@c.d", "a@b,c@d"])
def test_a_wrong_address_is_refused(mails, address) -> None:
    with pytest.raises(Misconfigured, match="not a mail address"):
        mime(mails["nothing"], "mark@example.org", [address])
    with pytest.raises(Misconfigured, match="somebody"):
        mime(mails["nothing"], "mark@example.org", [])


def test_the_document_has_the_same_numbers() -> None:
    document = report_document(MONTH)
    assert document["cost_usd"]["total"] == MONTH.cost.total
    assert sum(day["cost_usd"]["total"] for day in document["days"]) == pytest.approx(MONTH.cost.total)
    lines = [*document["shared"], *(line for model in document["models"] for line in model["lines"])]
    assert sum(line["usd"] for line in lines) == pytest.approx(MONTH.cost.total)
    assert document["models"][1]["objective"]["burn"] > 1


@needs_browser
@pytest.mark.parametrize(
    ("name", "dark", "width"),
    [("week", True, 760), ("month", False, 360), beside("week", False, 760), beside("month", True, 390)],
)
def test_a_browser_shows_the_mail_and_a_telephone_all_its_columns(
    mails, tmp_path: Path, name: str, dark: bool, width: int
) -> None:
    look = look_at(tmp_path, standalone(mails[name]), width=width, dark=dark)
    look.check(dark=dark)
    look.check_drawn(colours=100)
    assert (look.width, look.scrolled) == (width, ())
    bars = np.array([0, 114, 178])  # the plots are there, the same ones in a dark mail program
    assert (np.abs(look.pixels() - bars).max(axis=2) < 4).sum() > 5000


@pytest.mark.usefixtures("without_plots")
def test_rejected_requests_are_told_beside_those_that_count() -> None:
    model = model_report(days=1)
    rejecting = replace(model, answers=replace(model.answers, rejected=52_095))
    sentence = "52,095 more were rejected: wrong in themselves, as the model said, so no objective counts them."
    for models, named in (([rejecting], ""), ([rejecting, model_report("digits", days=1)], "inception-v3: ")):
        mail = render(cost_report(*models, days=1))
        assert f"SERVED BY {named}{sentence} Model" in " ".join(mail.text.split())
        assert f">{named}{sentence}</p>" in mail.html
        assert f"{model.answers.finished:,}" in mail.text
    assert "rejected" not in text_of(cost_report(model, days=1))
    nothing_else = replace(model, lines=(), days=(), answers=Answers(rejected=7))
    assert "7 more were rejected" in text_of(replace(cost_report(nothing_else, days=1), shared=()))


def test_a_table_of_baselines_says_who_missed_the_objective(mails) -> None:
    for told in (told_in_html, told_in_text):
        cells = told(mails["week"])
        assert cells["reactive"][-1].replace("\N{NO-BREAK SPACE}", " ") == "94.20 %, missed"
        assert not cells["sagemaker"][-1].endswith("missed")


@pytest.mark.usefixtures("without_plots")
def test_nobody_is_measured_by_what_knew_what_would_come() -> None:
    model = model_report()
    own = model.baselines[0].measured_usd
    perfect = replace(model.baselines[0], policy="perfect", usd=0.9 * own, attained=0.999, uses_truth=True)
    mail = render(cost_report(replace(model, baselines=(perfect, *model.baselines))))
    assert "Against sagemaker" in mail.text
    assert "Against perfect" not in mail.text
    assert told_in_text(mail)["perfect"]


def test_where_no_baseline_kept_the_objective_the_nearest_is_named_and_said_to_have_missed() -> None:
    model = model_report()
    missed = tuple(replace(one, attained=0.9 + 0.01 * place) for place, one in enumerate(model.baselines[:2]))
    text = " ".join(text_of(cost_report(replace(model, baselines=missed))).split())
    assert f"Against {missed[1].policy}" in text
    assert "no rival kept the objective, this one came nearest" in text


def test_the_month_so_far_and_where_it_leads_are_a_tile() -> None:
    text = " ".join(text_of(replace(WEEK, month=MonthSpend(usd=120.5, projected_usd=310.25))).split())
    assert "This month: 120.50 USD (about 310.25 by its end, as the last days went)" in text
    assert "by its end" not in text_of(replace(WEEK, month=MonthSpend(usd=120.5)))
    assert "This month" not in text_of(WEEK)
    assert report_document(replace(WEEK, month=MonthSpend(usd=1.0)))["month"] == {
        "usd": 1.0,
        "projected_usd": None,
    }


def test_versions_stand_in_the_mail_where_more_than_one_served(mails) -> None:
    (old, new) = MONTH.models[0].versions
    for rows in (told_in_html(mails["month"]), told_in_text(mails["month"])):
        assert rows["Version"] == ["Requests", "In time", "Hours", "Rent", "Lambda", "A million"]
        for one in (old, new):
            cells = [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in rows[one.version]]
            assert cells[1] == f"{100 * one.attained:.2f} %"
            figures = (one.requests, one.instance_hours, one.rent_usd, one.lambda_usd, one.usd_per_million)
            assert [number(cell) for cell in (cells[0], *cells[2:])] == [
                pytest.approx(figure, rel=1e-2, abs=0.005 + 1e-9) for figure in figures
            ]
    assert "INCEPTION-V3: BY VERSION, USD" in mails["month"].text
    assert "BY VERSION" not in mails["week"].text
    told, single = report_document(MONTH)["models"]
    assert [one["usd_per_million"] for one in told["versions"]] == [old.usd_per_million, new.usd_per_million]
    assert single["versions"] == []


@pytest.mark.usefixtures("without_plots")
def test_what_is_not_known_of_a_version_is_not_told() -> None:
    model = rolled_out(model_report(days=1))
    few = replace(model.versions[1], requests=0, attained=None)
    without = tuple(replace(one, lambda_usd=None) for one in (replace(model.versions[0], version=""), few))
    rows = told_in_text(render(cost_report(replace(model, versions=without), days=1)))
    assert rows["Version"] == ["Requests", "In time", "Hours", "Rent", "A million"]
    assert "not told apart" in rows
    assert [rows[few.version][place] for place in (0, 1, -1)] == ["0", MISSING, MISSING]


@pytest.mark.usefixtures("without_plots")
def test_commands_can_be_copied() -> None:
    command = "mark simulate --journal vision --model bert-large-uncased-whole-word-masking --policy all"
    advice = (f"Some other policy would have kept the objective for less. `{command}` compares <them>.",)
    mail = render(replace(WEEK, advice=advice))
    assert command in " ".join(mail.text.split())
    [code] = re.findall(r"<code[^>]*>(.*?)</code> compares &lt;them&gt;\.</li>", mail.html)
    assert re.sub(r"<[^>]+>", "", code) == command
    assert "`" not in mail.html


def test_the_tile_of_a_baseline_says_on_what_its_share_rests(mails) -> None:
    text = mails["week"].text
    own = sum(item.line.usd for model in WEEK.models for item in model.lines)
    assert (
        f"Against sagemaker: -54 % ({own * 2.18:,.2f} USD, this service {own:,.2f}, in the 7 days replayed)"
        in text
    )


@pytest.mark.usefixtures("without_plots")
def test_a_forecaster_is_named_shortly_in_the_table_and_what_it_lacks_above() -> None:
    said = "without lstm: it needs a day of history; without ridge: 1 day of history, it needs 2"
    model = model_report(days=1)
    mail = render(cost_report(replace(model, forecast=replace(model.forecast, degraded=said)), days=1))
    assert told_in_text(mail)["inception-v3"]
    rows = [line for line in mail.text.splitlines() if line.startswith("inception-v3")]
    assert any(re.match(r"inception-v3 +mixture +1,440", row) for row in rows)
    assert f"mixture: {said}." in " ".join(mail.text.split())
    assert max(map(len, rows)) < 100


def test_the_mail_draws_the_hours_and_the_forecast_where_there_are_any(mails) -> None:
    names = {name for name, _ in mails["week"].images}
    assert {"hours", "ahead-0"} <= names
    assert "Spend by hour, USD" in mails["week"].html
    assert "The forecast's highest is" in mails["week"].text
    assert "Load ahead of digits" in mails["month"].html
    assert not {name for name, _ in mails["nothing"].images if name.startswith(("hours", "ahead"))}


def test_a_forecast_with_gaps_and_without_a_plan_or_quantiles_is_drawn() -> None:
    ahead = model_report().ahead
    assert ahead is not None
    series = replace(ahead.series, capacity_rps=(None,) * 59 + (3.0,), fan_levels=(), fan_max_rps=())
    bare = replace(model_report(), ahead=replace(ahead, series=series, planned_rps=None))
    first = replace(cost_report(bare), hours=cost_report(bare).hours[:1])

    assert {"hours", "ahead-0"} <= {name for name, _ in render(first).images}


@pytest.mark.usefixtures("without_plots")
def test_a_mail_begins_with_the_verdict_on_the_services_own_load() -> None:
    model = model_report()
    sagemaker, reactive = (
        replace(model.baselines[0], policy=name, attained=0.99) for name in ("sagemaker", "reactive")
    )
    own = sagemaker.measured_usd
    cheap = replace(sagemaker, policy="lambda-only", usd=0.5 * own)
    mail = render(cost_report(replace(model, baselines=(sagemaker, reactive, cheap))))
    first = " ".join(mail.text.split("\n\n")[0].split())
    assert first.startswith("Run Lambda alone: ")
    for words in (
        "MArk: ",
        "SageMaker as you would set it up: ",
        "The best autoscaler you could build (reactive): ",
    ):
        assert words in first
    assert mail.html.index("Run Lambda alone") < mail.html.index("<h1")
    observed = replace(cost_report(replace(model, baselines=(cheap,))), observed=True, existing_usd=0.1 * own)
    assert "Keep the fleet that serves now, if it keeps the objective" in " ".join(text_of(observed).split())
    alone = text_of(cost_report(replace(model, baselines=())))
    assert not alone.startswith(("Run", "Keep"))
