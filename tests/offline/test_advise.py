"""`mark advise`: what it says is what a replay of the change saves, and bad input is one line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from mark import api
from mark.config.settings import Settings
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import PlanKind, SavingsPlan
from mark.offline.advice import advise
from mark.offline.advice.advice_changes import changes_of, does_settings
from mark.offline.advice.advise import printed
from mark.report.terminal import show
from tests.cli.test_bad_input import refused

DAY_S = 86_400
SETTINGS = """model: inception-v3
policies: [mark]
forecaster: last-value
market: on-demand
offerings: {types: [c5.xlarge, c5.large]}
simulate: {world: typical}
"""


def write_load() -> list[str]:
    """Two days of a wave in the working directory, and settings; the arguments that name them."""
    minutes = np.arange(2 * 1440)
    rates = 12 + 8 * np.sin(minutes / 229) + np.where(minutes % 97 < 3, 10, 0)
    lines = "".join(f"{60 * at},{rate:.3f}\n" for at, rate in zip(minutes, rates, strict=True))
    Path("days.csv").write_text(f"timestamp_s,rate_rps\n{lines}")
    Path("mark.yaml").write_text(SETTINGS)
    return ["--trace", "days.csv", "--config", "mark.yaml"]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return write_load()


ASKED = ("--days", "1", "--savings-plan", "0.3", "--json", "--seed", "3")


def only(monkeypatch: pytest.MonkeyPatch, part: str, *, buys: bool = False) -> None:
    """Try no other changes than those whose setting names this part, and nothing that is bought unless told."""
    monkeypatch.setattr(advise, "changes_of", lambda *given: (c for c in changes_of(*given) if part in c.setting))
    if not buys:
        nothing = SavingsPlan(
            name="none", kind=PlanKind.COMPUTE, usd_per_hour=0.0, discounts=((Compute.EC2, 0.3),)
        )
        monkeypatch.setattr(advise, "sized_plan", lambda *_: nothing)
        monkeypatch.setattr(advise, "sized_reservation", lambda *_: None)


def month_usd(mark, load: list[str], *flags: str) -> float:
    """Cost of the second day as a month, by a replay of its own with another seed, and of no rival."""
    day = ("--start-s", str(DAY_S), "--duration-s", str(DAY_S), "--seed", "7", "--no-reference", "--json")
    alone = () if "--policy" in flags else ("--policy", "mark")
    done = mark("simulate", *load, *day, *alone, *flags)
    assert done.status == 0, done.err
    return float(json.loads(done.out)["runs"][0]["usd_per_month"])


@pytest.mark.slow
def test_the_first_pieces_of_advice_save_what_they_said(mark, load, capsys):
    document = json.loads(mark("advise", *load, *ASKED).out)
    assert len(document["advice"]) >= 3
    before = month_usd(mark, load)
    assert document["usd_per_month"] == pytest.approx(before, rel=0.05)
    for one in document["advice"][:3]:
        if one["commitments_file"] is not None:
            Path("advised.json").write_text(json.dumps(one["commitments_file"]))
        saved = before - month_usd(mark, load, *one["flags"].split())
        assert saved == pytest.approx(one["saved_usd_per_month"], rel=0.1), one["change"]
    savings = [one["saved_usd_per_month"] for one in document["advice"]]
    assert savings == sorted(savings, reverse=True)
    assert all(one["keeps_objective"] for one in document["advice"])
    first, *_ = document["advice"]
    again = json.loads(mark(*shlex.split(first["command"])[1:], "--json").out)  # the replay behind it
    assert again["runs"][0]["usd_per_month"] == pytest.approx(first["usd_per_month"])
    show(*printed(document))
    text = capsys.readouterr().out
    for words in ("a Savings Plan", "USD a month", "market: spot", "policies: [hedged]"):
        assert words in text
    lines = text.splitlines()
    for one in document["advice"]:
        (place,) = (n for n, line in enumerate(lines) if line.endswith(f"{one['change']}: {one['does']}"))
        replay = place + 1
        if one["commitments_file"] is not None:
            replay += 1
            assert lines[place + 1].endswith("> advised.json")
        assert lines[replay].endswith(one["command"])  # the replay behind it
    does = {one["setting"]: one["does"] for one in (*document["advice"], *document["tried"])}
    assert does["market: spot"] == "mark down --config mark.yaml && mark up --config mark.yaml"
    assert "create-savings-plan --commitment 0." in does["AWS console: Billing, Savings Plans"]
    assert "--instance-type c5." in does["AWS console: EC2, Reserved Instances"]
    assert sum(one["commitments_file"] is not None for one in document["advice"]) <= 1


def test_the_file_that_the_replay_of_a_commitment_reads_is_written_by_a_printed_command(capsys):
    owned = {"format": "mark-commitments/1", "savings_plans": [{"name": "it's", "usd_per_hour": 0.25}]}
    plan = {
        "change": "a Savings Plan", "setting": "AWS console", "does": "aws savingsplans", "same_promise": True,
        "flags": "--commitments advised.json", "command": "mark simulate --commitments advised.json",
        "commitments_file": owned, "usd_per_month": 1.0, "saved_usd_per_month": 2.0, "attained": 0.99,
        "keeps_objective": True, "unable": None,
    }  # fmt: skip
    document = {
        "load": "days", "model": "m", "policy": "mark", "days": 1.0, "seed": 0, "world": "typical",
        "usd_per_month": 3.0, "attained": 0.99, "command": "mark simulate", "commitments": None, "advice": [plan],
        "tried": [],
    }  # fmt: skip
    show(*printed(document))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.endswith("> advised.json"))
    command, form, text, _, file = shlex.split(line.partition(": ")[2])
    assert (command, form, file) == ("printf", "%s", "advised.json")
    assert json.loads(text) == owned


def test_a_service_in_an_account_is_deployed_again():
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1"
    there = Settings.model_validate({"rollout": {"image": image}})
    assert does_settings(there, "shop.yaml") == "mark deploy --config shop.yaml"


def test_a_service_on_one_machine_is_ended_by_the_name_that_its_file_gives():
    shop = Settings.model_validate({"service": {"name": "shop"}})
    for command in does_settings(shop, "shop.yaml").split(" && "):
        assert command.endswith("--config shop.yaml")


COVERED = {
    "format": "mark-commitments/1",
    "savings_plans": [{"name": "all", "kind": "compute", "usd_per_hour": 9.0, "discounts": {"ec2": 0.3}}],
}


def test_nothing_is_bought_twice_and_a_type_that_nobody_profiled_is_tried_by_what_is_assumed_of_it(
    mark, load, monkeypatch
):
    only(monkeypatch, "profiles", buys=True)
    Path("owned.json").write_text(json.dumps(COVERED))
    asked = ("advise", *load, "--days", "1", "--savings-plan", "0.3", "--json")
    done = mark(*asked, "--commitments", "owned.json")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    assert "216.00 USD paid" in document["commitments"]
    (plan,) = (one for one in document["tried"] if "Savings Plan" in one["change"])
    assert not any("Reserved" in one["change"] for one in (*document["advice"], *document["tried"]))
    assert (plan["change"].split()[0], plan["saved_usd_per_month"]) == ("another", pytest.approx(0.0))

    (one,) = (one for one in (*document["advice"], *document["tried"]) if one["change"].startswith("profile "))
    assert "c7i.large" in one["change"]
    assert "--types current --profiles assumed-current" in one["flags"]
    profiles, _, serves = one["does"].partition(" && ")
    assert re.fullmatch(r"mark profile --config mark.yaml --on c7i.\S+ --out measured.json", profiles)
    assert serves == "mark down --config mark.yaml && mark up --config mark.yaml"
    assert one["setting"] == "profiles: [measured.json]; offerings.types: [current]"


def test_what_stands_around_the_fleet_is_tried_as_it_would_be_refused_or_replayed(mark, load, monkeypatch):
    """Three zones behind endpoints, which lean nodes do not have, to two; and a peak that they would not carry."""
    only(monkeypatch, "rollout")
    quick = SETTINGS.replace("[mark]", "[static-peak]")
    shape = "shape: ha, network: {egress: private, zones: [us-east-1a, us-east-1b, us-east-1c]}"
    Path("mark.yaml").write_text(f"{quick}rollout: {{{shape}}}\n")
    document = json.loads(mark("advise", *load, "--days", "1", "--json").out)
    found = {one["setting"]: one for one in (*document["advice"], *document["tried"])}
    lean, zones = found["rollout.shape: lean"], found["rollout.network.zones: [us-east-1a,us-east-1b]"]
    assert "no interface endpoints" in lean["unable"]
    assert lean["does"] == "mark deploy --config second.yaml"
    assert zones["flags"] == "--set rollout.network.zones=[us-east-1a,us-east-1b]"
    assert zones["saved_usd_per_month"] > 0.0
    Path("mark.yaml").write_text(f"{quick}rollout: {{shape: ha}}\n")
    high = Path("days.csv").read_text().splitlines()
    high[2000] = f"{high[2000].partition(',')[0]},950"
    Path("days.csv").write_text("\n".join(high) + "\n")
    document = json.loads(mark("advise", *load, "--days", "1", "--json").out)
    (lean,) = (one for one in document["tried"] if one["setting"] == "rollout.shape: lean")
    assert re.fullmatch(
        r"two lean nodes carry 277 requests/s for long, and the highest minute has 9\d\d.*", lean["unable"]
    )


@pytest.mark.slow
def test_python_advises_as_the_command_does(mark, load, monkeypatch):
    only(monkeypatch, "market", buys=True)
    told = json.loads(mark("advise", *load, *ASKED, "--mean-rps", "0.2").out)
    found = api.advise("days.csv", config="mark.yaml", days=1, savings_plan=0.3, mean_rps=0.2, seed=3)

    assert json.loads(json.dumps(found)) == told


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--days", "0"), "--days is above 0"),
        (("--days", "0.5"), "and days has 12 h; give --days 1 or more"),
        (("--savings-plan", "1"), "between 0 and 1"),
        (("--savings-plan", "nan"), "between 0 and 1"),
    ],
)
def test_bad_input_is_one_line(mark, load, arguments, reason):
    assert reason in refused(mark("advise", *load, *arguments))


def test_a_trace_that_is_too_short_is_to_be_named_longer(mark, load):
    Path("short.csv").write_text("\n".join(Path("days.csv").read_text().splitlines()[:100]) + "\n")
    said = refused(mark("advise", *load, "--trace", "short.csv"))
    assert said.endswith("; name a longer trace, or a longer part of it\n")
