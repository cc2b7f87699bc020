"""The replay law: replaying a journal through `step`, and planning again, gives all its orders and plans."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mark.cloudmodel.world import IDEAL, TYPICAL
from mark.controller.journal import Tick, entry_line, header_line, read_journal
from mark.controller.policy import ControllerPolicy
from mark.controller.replay_check import Mismatch, mismatches
from mark.controller.state import Decision, State
from mark.controller.step import step
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orders import (
    Drain,
    ForecastFailed,
    Launch,
    LaunchRefused,
    SpotWarned,
    StartStandby,
    StopStandby,
    WarmLambda,
)
from mark.domain.offerings.offering import Market
from mark.plugins.load import build_forecaster
from mark.policies.spec import Overrides
from mark.simulator.engine.compiled import Kernel
from mark.simulator.experiment import Experiment
from mark.simulator.faults import FaultScript, Interrupt, LateBoots, Refuse
from mark.telemetry.journal_file import JournalFile, journal_lines
from tests.controller.state_rules import check_state
from tests.scenarios.builders import MemoryJournal, experiment, run, up_and_down

HARD = FaultScript(
    stress=3000.0,
    interrupts=(Interrupt(at_s=425.0, share=0.5),),
    refusals=(Refuse(from_s=430.0, to_s=700.0), Refuse(from_s=60.0, to_s=300.0, offering="c5.xlarge:spot")),
    late_boots=(LateBoots(from_s=300.0, to_s=900.0, factor=2.0),),
)
POLICIES = ["hedged", "mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only"]


def hard(kernel: Kernel, *, seed: int = 1, faults: FaultScript = HARD) -> Experiment:
    trace = up_and_down()
    return experiment(kernel, Market.SPOT, trace=trace, seed=seed, faults=faults, types=("c5.large", "c5.xlarge"))


@cache
def journal_of(kernel: Kernel, policy: str, *, seed: int = 1, faults: FaultScript = HARD) -> MemoryJournal:
    journal = MemoryJournal()
    run(hard(kernel, seed=seed, faults=faults), policy, journal)
    return journal


def told(lines: list[bytes]) -> list[Mismatch]:
    header, ticks = read_journal(lines)
    return list(mismatches(header, ticks))


@pytest.mark.parametrize("policy", POLICIES)
def test_replaying_a_journal_gives_its_orders_and_its_plans(kernel: Kernel, policy: str) -> None:
    journal = journal_of(kernel, policy)
    assert len(journal.lines) > 25
    assert told(journal.lines) == []


def test_plans_by_spot_prices_that_move_are_made_again_from_the_journal(kernel: Kernel) -> None:
    journal = MemoryJournal()
    zoned = replace(IDEAL, zones=TYPICAL.zones, spot_zone_spread=0.1, spot_drift=0.5)
    moving = experiment(kernel, Market.SPOT, trace=up_and_down(), types=("c5.large", "c5.xlarge"), world=zoned)
    run(moving, "hedged", journal)
    assert told(journal.lines) == []
    assert [tick.seen for tick in read_journal(journal.lines)[1]] == journal.seen
    prices = {seen.fleet.spot_usd_per_hour for seen in journal.seen}
    pools = {f"{kind}:spot{zone}" for kind in ("c5.large", "c5.xlarge") for zone in ("", ":a", ":b", ":c")}
    assert {name for one in prices for name, _ in one} == pools


def test_the_hard_journal_holds_what_can_go_wrong(kernel: Kernel) -> None:
    """Without this, the law would be tried on days on which nothing happens."""
    journal = journal_of(kernel, "mark")
    facts = {type(fact) for seen in journal.seen for fact in seen.facts}
    assert {SpotWarned, LaunchRefused} <= facts
    orders = {type(order) for _, order in journal.orders}
    assert {Launch, Drain, StartStandby, StopStandby, WarmLambda} <= orders
    assert any(seen.slo is not None for seen in journal.seen)
    assert any(seen.now % 60 for seen in journal.seen), "ticks between the minutes"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_round_trip_is_exact(kernel: Kernel, policy: str) -> None:
    journal = journal_of(kernel, policy)
    header, ticks = read_journal(journal.lines)
    read = list(ticks)
    assert header_line(header) == journal.lines[0]
    assert [tick.seen for tick in read] == journal.seen
    assert [(tick.seen.now, order) for tick in read for order in tick.orders] == journal.orders
    before, again = FleetView(), []
    for tick, decision in zip(read, journal.decisions, strict=True):
        again.append(entry_line(before, tick.seen, decision))
        before = tick.seen.fleet
    assert again == journal.lines[1:]


def test_same_seed_same_bytes_other_seed_other_bytes(kernel: Kernel) -> None:
    first, other = (journal_of(kernel, "greedy-oracle", seed=seed).lines for seed in (1, 2))
    again = journal_of.__wrapped__(kernel, "greedy-oracle").lines
    assert first == again
    assert first != other


def tampered(lines: list[bytes], kind: str) -> list[bytes]:
    """One line of the journal with one figure changed."""
    for number, line in enumerate(lines[1:], start=1):
        entry = json.loads(line)
        if kind == "order" and any(order["kind"] == "launch" for order in entry["orders"]):
            order = next(order for order in entry["orders"] if order["kind"] == "launch")
            order["count"] += 1
        elif kind == "missing order" and entry["orders"] and number > 3:
            entry["orders"] = entry["orders"][1:]
        elif kind == "reason" and entry["orders"]:
            entry["orders"][0]["reason"] += "!"
        elif kind == "plan" and number > 5 and entry["seen"]["plan"] and entry["seen"]["plan"]["counts"]:
            entry["seen"]["plan"]["counts"][0]["count"] += 1
        elif kind == "forecast" and number > 5 and entry["seen"]["forecast"]:
            entry["seen"]["forecast"]["max_rps"] = [[400.0]] * len(entry["seen"]["forecast"]["max_rps"])
        elif kind == "fleet" and number > 5 and entry["seen"]["plan"]:
            entry["gone"] = [f"i-{made:06d}" for made in range(1, 10)]
        elif (
            kind == "demand" and number > 5 and entry["seen"]["demand"] and entry["seen"]["demand"]["max_rps"] > 0
        ):
            entry["seen"]["demand"]["max_rps"] = 0.0
            entry["seen"]["demand"]["mean_rps"] = 0.0
        else:
            continue
        return [*lines[:number], json.dumps(entry).encode(), *lines[number + 1 :]]
    raise AssertionError(f"nothing to tamper with: {kind}")


@pytest.mark.parametrize("kind", ["order", "missing order", "reason", "plan", "forecast", "fleet"])
def test_a_journal_that_was_tampered_with_is_found_out(kernel: Kernel, kind: str) -> None:
    lines = journal_of(kernel, "mark").lines
    found = told(tampered(lines, kind))
    assert found
    expected = {
        "order": "orders",
        "missing order": "orders",
        "reason": "orders",
        "plan": "plan",
        "forecast": "plan",
    }
    if kind in expected:
        assert found[0].what == expected[kind]
    assert found[0].recorded != found[0].folded


def test_tampered_demand_is_found_out(kernel: Kernel) -> None:
    """A reactive planner looks at measured load only."""
    lines = journal_of(kernel, "sagemaker").lines
    assert told(tampered(lines, "demand"))


def test_a_restarted_controller_that_folds_its_journal_goes_on_with_the_same_orders(kernel: Kernel) -> None:
    """A crash at any tick: the state folded from the lines so far decides as the one that did not crash."""
    journal = journal_of(kernel, "mark")
    for crash in (1, 5, 12, len(journal.seen) // 2, len(journal.seen) - 2):
        header, ticks = read_journal(journal.lines[: crash + 1])
        state = _folded(list(ticks), header.policy)
        for seen, decision in zip(journal.seen[crash:], journal.decisions[crash:], strict=True):
            again = step(state, seen, header.policy)
            assert again == decision
            state = again.state
            check_state(state)


def _folded(ticks: list[Tick], policy: ControllerPolicy) -> State:
    state = State()
    for tick in ticks:
        state = step(state, tick.seen, policy).state
    return state


def test_the_journal_file_holds_the_same_bytes(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    hard(kernel).run("greedy-oracle", open_journal=lambda header: JournalFile(path, header))
    memory = journal_of(kernel, "greedy-oracle").lines
    assert path.read_bytes() == b"".join(line + b"\n" for line in memory)
    assert told(list(journal_lines(path))) == []


def test_the_journal_of_a_failing_forecaster_keeps_the_law(kernel: Kernel) -> None:
    class Nothing:
        def forecast(self, history: object, horizon: int) -> object:
            raise ValueError("blind")

    journal = MemoryJournal()
    given = experiment(
        kernel,
        build=lambda name, setup: Nothing() if name == "oracle" else build_forecaster(name, setup),  # type: ignore[arg-type, return-value]
    )
    given.run("greedy-oracle", overrides=Overrides(), open_journal=journal.open)
    assert any(isinstance(fact, ForecastFailed) for seen in journal.seen for fact in seen.facts)
    assert told(journal.lines) == []


@pytest.mark.parametrize(
    ("lines", "text"),
    [([], "empty"), ([b"{}"], "line 1"), ([b'{"truncated'], "line 1")],
)
def test_an_unreadable_journal_is_one_clear_line(lines: list[bytes], text: str) -> None:
    with pytest.raises(Misconfigured, match=text):
        read_journal(lines)


def test_a_truncated_line_is_named(kernel: Kernel) -> None:
    lines = journal_of(kernel, "sagemaker").lines
    with pytest.raises(Misconfigured, match="line 4"):
        told([*lines[:3], lines[3][: len(lines[3]) // 2]])


def test_another_version_is_refused(kernel: Kernel) -> None:
    header, _ = read_journal(journal_of(kernel, "lambda-only").lines)
    with pytest.raises(Misconfigured, match="version 99"):
        read_journal([header_line(replace(header, version=99))])


def test_an_entry_says_only_what_changed(kernel: Kernel) -> None:
    journal = journal_of(kernel, "mark", faults=FaultScript(stress=0.0))
    quiet = entry_line(journal.seen[3].fleet, journal.seen[3], Decision(state=journal.decisions[3].state))
    entry = json.loads(quiet)
    assert (entry["changed"], entry["gone"]) == ([], [])
