"""`mark plan`: what the service costs around its fleet, and from which load that pays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_a_plan_says_below_which_load_lambda_alone_costs_less(mark) -> None:
    line = ("plan", "--model", "inception-v3", "--rate", "10")
    lean = json.loads(mark(*line, "--json").out)["break_even_rps"]
    assert f"At less than {lean:.2g} requests/s" in mark(*line).out
    Path("ha.yaml").write_text("rollout: {shape: ha, gateway: {instance_type: c5.large}}")
    assert json.loads(mark(*line, "--config", "ha.yaml", "--json").out)["break_even_rps"] > 2 * lean
    Path("alone.yaml").write_text("offerings: {overflow: false}")
    assert json.loads(mark(*line, "--config", "alone.yaml", "--json").out)["break_even_rps"] is None
    assert "At less than" not in mark(*line, "--config", "alone.yaml").out


def test_no_plan_advises_a_lambda_that_is_late(mark) -> None:
    line = ("plan", "--model", "nasnet", "--rate", "10", "--profiles", "assumed-lambda")
    assert json.loads(mark(*line, "--json").out)["break_even_rps"] is None
    assert "At less than" not in mark(*line).out


def test_a_large_load_is_said_in_whole_requests(mark) -> None:
    Path("ha.yaml").write_text("rollout: {shape: ha, gateway: {instance_type: c5.2xlarge}}")
    line = ("plan", "--model", "resnet-50", "--rate", "10", "--profiles", "assumed-lambda", "--config", "ha.yaml")
    rate = json.loads(mark(*line, "--json").out)["break_even_rps"]
    assert rate > 100
    assert f"At less than {rate:.0f} requests/s" in mark(*line).out


@pytest.mark.parametrize(
    ("rate", "said", "made"),
    [
        ("120", "at 120 rollout.shape lean does (2 x t4g.small)", ("lean", 2, None)),
        ("1000", "2 x c6gn.medium (one to spare) and 2 x cache.t4g.small", ("ha", 2, "cache.t4g.small")),
    ],
    ids=["two nodes do", "more than two nodes carry"],
)
def test_a_plan_says_which_rollout_carries_the_rate(mark, rate, said, made) -> None:
    line = ("plan", "--model", "inception-v3", "--rate", rate)
    told = json.loads(mark(*line, "--json").out)["rollout"]
    assert (told["shape"], told["gateways"], told["store_type"]) == made
    words = " ".join(mark(*line).out.split())
    assert said in words
    assert "Two lean nodes carry 277 such requests/s for long" in words
    assert ("write shape: ha and peak_rps: 1000" in words) == (told["shape"] == "ha")


def test_a_plan_in_a_file_keeps_to_the_columns_that_are_asked_for(mark, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = mark("plan", "--model", "inception-v3", "--rate", "120").out.splitlines()

    assert "Beside instances" in "".join(lines)
    assert max(map(len, lines)) <= 80


def test_a_floor_lets_a_plan_count_on_a_faster_variant(mark) -> None:
    line = ("plan", "--model", "supernet", "--rate", "8000", "--json")
    best, floored = (json.loads(mark(*line, *more).out) for more in ([], ["--accuracy-floor", "0.97"]))
    assert floored["usd_per_hour"] < best["usd_per_hour"]
    refused = mark("plan", "--model", "inception-v3", "--rate", "10", "--accuracy-floor", "0.9")
    assert (refused.status, "--accuracy-floor" in refused.err) == (2, True)


def test_a_plan_takes_what_the_account_has_before_it_rents(mark) -> None:
    line = ("plan", "--model", "inception-v3", "--rate", "60", "--types", "c5.large,c5.xlarge")
    plain = json.loads(mark(*line, "--json").out)
    held = {"name": "two", "instance_type": "c5.large", "count": 2, "usd_per_hour": 0.05}
    Path("owned.json").write_text(json.dumps({"format": "mark-commitments/1", "reserved_instances": [held]}))
    found = json.loads(mark(*line, "--commitments", "owned.json", "--json").out)
    assert plain["commitments"] is None
    assert found["commitments"] == {
        "paid_usd_per_hour": pytest.approx(0.1),
        "used_usd_per_hour": pytest.approx(0.1),
        "covered_usd_per_hour": pytest.approx(0.17),
    }
    assert found["usd_per_hour"] < plain["usd_per_hour"]
    assert "covered by commitments" in found["reason"]
    known = mark(*line, "--commitments", "owned.json")
    assert "Commitments of 0.1 USD/h are paid in any case" in known.out
    assert "spelling" not in known.err


def test_a_plan_counts_own_prices_and_shows_the_list_price_beside(mark) -> None:
    line = ("plan", "--model", "inception-v3", "--rate", "60", "--types", "c5.large")
    plain = json.loads(mark(*line, "--json").out)
    Path("mark.yaml").write_text(
        "account: {price_overlays: [{adjust: -50%}, {types: [c5.large], adjust: +0.034, weight: 1}]}"
    )
    line = (*line, "--config", "mark.yaml")
    found = json.loads(mark(*line, "--json").out)
    assert plain["list_usd_per_hour"] == {}
    assert found["list_usd_per_hour"] == {"c5.large:on-demand": 0.085}
    assert found["usd_per_hour"] == pytest.approx(plain["usd_per_hour"] * 0.119 / 0.085)
    assert found["overhead_usd_per_month"] < plain["overhead_usd_per_month"]
    assert "c5.large:on-demand costs you 0.119 USD/h, the list price is 0.085." in mark(*line).out


@pytest.mark.parametrize(
    ("overlays", "why"),
    [
        ("[{types: [c9], adjust: -5%}]", "mark.yaml: account.price_overlays.0: c9 matches no instance type"),
        ("[{types: [c5], adjust: -0.2}]", "would cost -0.115 USD/h"),
        ("[{types: [c5], adjust: 12}]", 'a percentage ends with %, such as "+5%"'),
        ("[{adjust: -1%}, {types: [c5.large], adjust: -2%}]", "give one of them a greater weight"),
        ("[{adjust: 12 percent}]", "should read like"),
        ("[{types: [c5]}]", "name either adjust or usd_per_hour"),
        ("[{markets: [spot], adjust: -0.1}]", "spot prices move"),
    ],
)
def test_a_bad_price_overlay_is_one_line(mark, overlays: str, why: str) -> None:
    Path("mark.yaml").write_text(f"account: {{price_overlays: {overlays}}}")
    refused = mark("plan", "--config", "mark.yaml", "--model", "inception-v3", "--rate", "60")
    assert (refused.status, refused.err.count("\n"), why in refused.err) == (2, 1, True), refused.err


def test_commitments_of_a_type_that_the_price_table_lacks_are_noted(mark) -> None:
    held = {"name": "two", "instance_type": "c5.larg", "count": 2, "usd_per_hour": 0.05}
    plan = {"name": "all", "kind": "ec2-instance", "family": "c55", "usd_per_hour": 0.05}
    file = {"format": "mark-commitments/1", "reserved_instances": [held], "savings_plans": [plan]}
    Path("owned.json").write_text(json.dumps(file))
    said = mark("plan", "--model", "inception-v3", "--rate", "60", "--commitments", "owned.json").err
    assert "the commitments name c5.larg, c55, which the price table lacks; check the spelling" in said
    kept = {"name": "paris", "instance_type": "c5.large", "count": 2, "zone": "eu-west-3a"}
    Path("owned.json").write_text(json.dumps({"format": "mark-commitments/1", "capacity_reservations": [kept]}))
    said = mark("plan", "--model", "inception-v3", "--rate", "60", "--commitments", "owned.json").err
    assert "owned.json: paris not counted: of another region, or zone, than the service's" in said
