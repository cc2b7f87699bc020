"""`mark report` as a cron calls it: a store that the settings name, files, mails, and what cannot be."""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mark.config.settings import load_settings
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments, PlanKind, SavingsPlan
from mark.domain.errors import Misconfigured
from mark.domain.load.announced_events import AnnouncedEvent
from mark.live.cost_report import report
from mark.live.cost_report.replays import replay_days
from mark.live.cost_report.report import parse_period
from mark.report.cost.read import Period
from mark.report.cost.replays import ReplayedPolicy, replayed_days
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import COMMITMENTS, AccountCommitments
from mark.store.service import ServiceStore
from tests.live.served_day import BEGAN, DAY_S, MINUTES, MODEL, RPS, write_service
from tests.planner.builders import overflow


class FakeMail:
    """SES that takes everything."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.mail = self

    def send_email(self, **asked: Any) -> dict[str, str]:
        self.sent.append(asked)
        return {"MessageId": "m-1"}

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServiceStore]]:
    """A service that has served three requests a second for a day and twenty minutes."""
    with EmbeddedRedis(tmp_path_factory.mktemp("store")) as server:
        yield server.url, write_service(server.url)


@pytest.fixture
def config(store: tuple[str, ServiceStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    path = tmp_path / "mark.yaml"
    path.write_text(
        f"""
service:
  name: vision
  store: {store[0]}
  serve:
    - {{model: inception-v3, offerings: {{types: [c5.large]}}, forecaster: last-value, policy_name: mark}}
rollout:
  report: {{sender: mark@example.org}}
""",
        encoding="utf-8",
    )
    return path


def test_whole_days_are_replayed_once_and_kept(mark, store, config) -> None:
    line = ("report", "--config", str(config), "--since", "30d", "--policy", "static-peak", "--json")
    first = mark(*line)
    assert first.status == 0, first.err
    (model,) = json.loads(first.out)["models"]
    assert [baseline["policy"] for baseline in model["baselines"]] == ["static-peak"]
    assert all(baseline["replayed_s"] == 60 * MINUTES for baseline in model["baselines"])
    assert all(baseline["usd"] > 0 for baseline in model["baselines"])

    (kept,) = replayed_days(store[1], MODEL)  # the twenty minutes are not over yet
    assert kept.day == datetime.fromtimestamp(BEGAN, UTC).date()
    assert kept.policies["static-peak"].requests == round(DAY_S * RPS)
    more = mark(*line[:-2], "static-peak,lambda-only", "--json")
    (again,) = json.loads(more.out)["models"]
    known = {baseline["policy"]: baseline for baseline in again["baselines"]}
    assert known["static-peak"] == model["baselines"][0]
    (kept,) = replayed_days(store[1], MODEL)
    assert set(kept.policies) | set(kept.unable) == {"static-peak", "lambda-only"}
    assert kept.lacks(("static-peak", "lambda-only", "reactive")) == ("reactive",)

    handed = mark("report", "--config", str(config), "--since", "30d", "--policy", "none")
    assert "Replayed on the arrivals of 24 h" in handed.out  # as a function would tell it, without replaying


def test_a_file_a_document_and_a_mail_have_the_same_total(mark, config, monkeypatch) -> None:
    ses = FakeMail()
    monkeypatch.setattr(report, "service_aws", lambda _settings, _role: ses)
    line = ("report", "--config", str(config), "--policy", "none")
    document = json.loads(mark(*line, "--json").out)
    total = f"{document['cost_usd']['total']:,.2f}"
    answer = mark(*line, "--to", "report.html", "--email", "a@example.org", "--email", "b@example.org")

    assert answer.status == 0, answer.err
    assert "mailed to b@example.org" in answer.out
    assert f"{total} USD" in Path("report.html").read_text()
    (sent,) = ses.sent
    assert sent["FromEmailAddress"] == "mark@example.org"
    assert sent["Destination"] == {"ToAddresses": ["a@example.org", "b@example.org"]}
    message = email.message_from_bytes(sent["Content"]["Raw"]["Data"], policy=email.policy.default)
    assert f"{total} USD" in message["Subject"]


def test_what_cost_explorer_refuses_is_a_note(mark, config, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise Misconfigured("GetCostAndUsage: AccessDenied")

    monkeypatch.setattr(report, "service_aws", lambda _settings, _role: FakeMail())
    monkeypatch.setattr(report, "daily_usd", refused)
    answer = mark("report", "--config", str(config), "--policy", "none", "--reconcile")
    assert answer.status == 0
    assert "not reconciled with Cost Explorer: GetCostAndUsage: AccessDenied" in answer.err

    day = datetime.fromtimestamp(BEGAN, UTC).date()
    monkeypatch.setattr(report, "daily_usd", lambda *_: {day: 9.5})
    answer = mark("report", "--config", str(config), "--policy", "none", "--reconcile")
    assert "LEDGER AND COST EXPLORER" in answer.out
    assert "9.50" in answer.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "7"), "must be a number with m, h, d or w"),
        (("--since", "0d"), "must be a number with m, h, d or w"),
        (("--policy", "best"), "policy"),
        (("--policy", "none", "--email", "nobody"), "not a mail address"),
        (("--policy", "none", "--out", "/proc/none/report.html"), "there is no folder /proc/none"),
        (("--policy", "none", "--to", "/proc/report.html"), "cannot write"),
        (("--policy", "none", "--to", "."), ". is a folder; name a file with --out, such as report.html"),
    ],
)
def test_wrong_flags_are_one_line(mark, config, monkeypatch, arguments, said) -> None:
    monkeypatch.setattr(report, "service_aws", lambda _settings, _role: FakeMail())
    answer = mark("report", "--config", str(config), *arguments)
    assert answer.status == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_without_a_service_or_a_sender_it_says_what_to_do(mark, config, tmp_path) -> None:
    assert "service.store" in mark("report").err
    text = config.read_text().partition("rollout:")[0]
    config.write_text(text)
    answer = mark("report", "--config", str(config), "--policy", "none", "--email", "a@example.org")
    assert "rollout.report.sender" in answer.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400.0), ("12h", 43200.0), ("7d", 604800.0), ("0.5w", 302400.0)]
)
def test_periods(text, seconds) -> None:
    assert parse_period(text) == seconds


def test_replays_that_call_lambda_pay_for_its_provisioned_environments(store, config) -> None:
    kept, settings = store[1], load_settings(config, {})
    spec = kept.spec()
    (served,) = spec.models
    period = Period(since=BEGAN + 3600.0, until=BEGAN + 7200.0)

    def cost(**changes: Any) -> dict[str, float]:
        kept.put_spec(replace(spec, models=(replace(served, **changes),)))
        found = replay_days(kept, settings, period, ("lambda-only", "sagemaker"), lambda _label, _share: None)
        return {name: run.serving_usd for name, run in found[MODEL][0].policies.items()}

    before, after = cost(), cost(overflow=replace(overflow(), provisioned=3))
    kept.put_spec(spec)
    assert after["lambda-only"] - before["lambda-only"] == pytest.approx(3 * 3.0 * 3600 * 4.1667e-6)
    assert after["sagemaker"] == before["sagemaker"]


def test_a_replayed_day_knows_the_events_that_the_service_counted(store, tmp_path: Path, config: Path) -> None:
    settings = load_settings(config, {})
    period = Period(since=BEGAN, until=BEGAN + 2 * 3600.0)

    def cost(kept: ServiceStore) -> float:
        found = replay_days(kept, settings, period, ("hedged",), lambda *_: None)
        return found[MODEL][0].policies["hedged"].serving_usd

    sale = AnnouncedEvent(name="sale", at=BEGAN + 1800.0, until=BEGAN + 5400.0, least_rps=500.0)
    with EmbeddedRedis(tmp_path / "with") as server:
        assert cost(write_service(server.url, events=(sale,))) > 1.5 * cost(store[1])


def test_replays_of_others_have_the_commitments_that_the_service_has(store, config) -> None:
    """Else the service would be compared, with its commitments paid and covering, with rivals at list prices."""
    kept, settings = store[1], load_settings(config, {})
    period = Period(since=BEGAN + 3600.0, until=BEGAN + 7200.0)

    def run(owned: Commitments) -> ReplayedPolicy:
        COMMITMENTS.write(kept, AccountCommitments(commitments=owned))
        found = replay_days(kept, settings, period, ("static-peak",), lambda *_: None)
        return found[MODEL][0].policies["static-peak"]

    plan = SavingsPlan(name="all", kind=PlanKind.COMPUTE, usd_per_hour=0.02, discounts=((Compute.EC2, 0.5),))
    plain, covered = run(NO_COMMITMENTS), run(Commitments(plans=(plan,)))
    assert plain.commitments_usd == 0.0
    assert covered.commitments_usd == pytest.approx(0.02 - 0.04)  # an hour of it covers twice as much
    over = run(Commitments(plans=(replace(plan, ends_at=BEGAN),)))
    assert over.commitments_usd == 0.0
