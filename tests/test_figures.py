"""The acceptance page says what was missed, and so does the exit code."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mark.cloudmodel.world import TYPICAL
from mark.controller import surges
from mark.controller.error_budget import ErrorBudget
from mark.controller.limits.launch_breaker import LaunchBreakerPolicy
from mark.dispatch import routing
from mark.domain.demand import Demand, Forecast
from mark.domain.load.outcomes import Outcomes
from mark.domain.offerings.offering import Market
from mark.domain.plan import PlanRequest
from mark.planner.hedging import shortfall_cost, spot_pools
from mark.plugins.load import build_forecaster
from mark.policies.bundles import PACKED, PolicyBundle, policy_names, tuning_grid
from mark.policies.overrides import OWN_POLICIES
from mark.ports import ForecasterSetup
from mark.simulator.backtest import run_backtest
from mark.simulator.experiment import BuildForecaster, Experiment, ExperimentSpec
from mark.simulator.traces.generators import mmpp
from mark.simulator.traces.trace import Trace
from scripts.acceptance import ablation, days, elsewhere, forecasts, page, rivals, run, sensitivity
from scripts.acceptance import loads as acceptance_loads
from scripts.acceptance.figures_page import (
    CHECKS,
    Check,
    FigureTable,
    Gap,
    Line,
    geometric_mean,
    joined_checks,
    kept,
    line_rows,
    part_tables,
)
from scripts.acceptance.loads import AcceptanceLoad, Foretold, Remembering
from scripts.acceptance.parts import PARTS, FigureTask, Part, tasks
from scripts.acceptance.results import MeasuredFigures, ResultFolder, clean_commit

KEPT = Check("ratio", "1.73", ">= 1.45", True)
MISSED = Check("shed", "2.000%", "<= 0.1%", False)
HOUR_S = 3600.0


@pytest.fixture
def quiet_hour() -> AcceptanceLoad:
    """Five minutes, after a quarter of an hour of history."""
    trace = mmpp((20.0, 40.0), (300.0, 300.0), duration_s=1200.0, seed=1)
    return AcceptanceLoad(label="a quiet hour", trace=trace, start_s=900.0, duration_s=300.0)


@pytest.fixture
def simple(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every forecaster is the one that learns nothing, so that nothing is trained."""
    monkeypatch.setattr(
        acceptance_loads, "build_forecaster", lambda _, setup: build_forecaster("last-value", setup)
    )


def test_a_part_has_a_table_of_each_kind_of_figure() -> None:
    gap = Gap(where="a day", policy="mark", gaps=(0.9, 1.0, 1.0, 1.2))
    figures = FigureTable(checks=[KEPT, MISSED], gaps=[gap], rows=[("1", "2")])
    tables = part_tables(figures, "own", ("a", "b"))
    assert list(tables) == [CHECKS, "own", "gaps"]
    assert tables[CHECKS][1:] == [("ratio", "1.73", ">= 1.45", "yes"), ("shed", "2.000%", "<= 0.1%", "no")]
    assert [kept(check) for check in tables[CHECKS][1:]] == [True, False]
    assert tables["own"] == [("a", "b"), ("1", "2")]
    assert tables["gaps"][1:] == [("a day", "mark", "4", "0.915", "1.000", "1.170", "1.200", "25.0%")]


def line(serving_usd: float, *, over_floor: float | None = 1.5) -> Line:
    return Line(
        where="a day", policy="mark", serving_usd=serving_usd, total_usd=9.0, over_reference=1.2,
        over_floor=over_floor, total_over_reference=1.1, attained=0.99, shed=0.0, p99_ms=400.0, interruptions=0,
        requests=1000,
    )  # fmt: skip


def test_seeds_are_one_row_with_their_range() -> None:
    (row,) = line_rows([line(7.0), line(8.0), line(7.5, over_floor=None)])
    assert row[:2] == ("a day", "mark")
    assert row[2] == "7.50 (7.00 to 8.00)"
    assert row[3] == "9.00"
    assert row[5] == "", "a seed that misses its objective leaves no ratio to the floor"


def test_a_check_is_kept_where_every_seed_keeps_it() -> None:
    other, missed = Check("ratio", "1.80", ">= 1.45", True), Check("ratio", "1.40", ">= 1.45", False)
    assert joined_checks([KEPT, other]) == [Check("ratio", "1.73 / 1.80", ">= 1.45", True)]
    assert joined_checks([KEPT, other, missed])[0].kept is False


def test_the_page_that_ships_is_made_of_the_tables_that_ship() -> None:
    there, texts = page.tables_there(), page.texts_there()
    assert page.PAGE.read_text() == page.page_text(texts)
    assert list(texts) == list(there)
    for name, text in texts.items():
        assert re.search(rf"acceptance.run {name}` at `[0-9a-f]{{12}}`:", text)
        shown = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
        listed = [list(row) for rows in there[name].values() for row in rows]
        for row in (row for row in shown if set(row) != {"---"}):
            plain = [cell.replace("**no**", "no").strip(" |") for cell in row]
            assert any(other[: len(plain)] == plain for other in listed), plain
    assert sum(len(tables) for tables in there.values()) == len(list(page.PAGE.with_suffix("").iterdir()))
    for tables in there.values():
        for head, *rows in tables.values():
            assert rows
            assert {len(row) for row in rows} == {len(head)}


def test_the_summary_that_ships_follows_from_the_cases_behind_it() -> None:
    tables = page.tables_there()["elsewhere"]
    head, *cases = tables["cases"]
    ratios = {}
    for market in Market:
        cells = [row[head.index("/ rival")] for row in cases if row[head.index("market")] == market.value]
        ratios[market.value] = [float(cell) for cell in cells if not cell.startswith("(")]
    means = {row[0]: row[1] for row in tables["means"][1:]}
    for market, named in ((Market.ON_DEMAND, "on demand"), (Market.SPOT, "spot")):
        mean, _, count = means[named].partition(" ")
        assert float(mean) == pytest.approx(geometric_mean(ratios[market.value]), abs=0.001)
        assert count == f"({len(ratios[market.value])})"


WHOLE = FigureTable(
    lines=[line(7.0)], checks=[KEPT], gaps=[Gap(where="a day", policy="mark", gaps=(1.0, 1.1))],
    rows=[("a", "b")], numbers={"ratio": 0.9},
)  # fmt: skip


def test_kept_figures_are_what_was_measured(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path / "figures")
    measured = MeasuredFigures(commit="abc", part="days", task="Twitter day 1, seed 2", figures=WHOLE)
    folder.keep(measured)
    assert folder.find("days", "Twitter day 1, seed 2") == measured
    assert folder.find("days", "Twitter day 1, seed 3") is None
    (file,) = (tmp_path / "figures").iterdir()
    file.write_text("{half a file")
    assert folder.find("days", "Twitter day 1, seed 2") is None


@pytest.fixture
def two_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A page of two parts, of one and of two tasks; the folder of their results."""
    chosen = [FigureTask("days", "first", forbidden), FigureTask("days", "second", forbidden)]
    chosen.append(FigureTask("risk", "only", forbidden))
    parts = {"risk": Part("Risk", "R."), "days": Part("Days", "D.")}
    for module in (page, run):
        monkeypatch.setattr(module, "tasks", lambda: iter(chosen))
        monkeypatch.setattr(module, "PARTS", parts)
    monkeypatch.setattr(page, "PAGE", tmp_path / "figures.md")
    monkeypatch.setattr(run, "clean_commit", lambda: "abc")
    monkeypatch.setenv("MARK_DATA", str(tmp_path))
    return tmp_path / "kept"


def keep(folder: Path, part: str, task: str, *, commit: str = "abc", check: Check = KEPT) -> None:
    figures = FigureTable(checks=[check], lines=[line(7.0)])
    ResultFolder(folder).keep(MeasuredFigures(commit=commit, part=part, task=task, figures=figures))


def test_parts_that_are_not_measured_anew_stay_on_the_page_with_their_commit(
    two_parts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(two_parts, "risk", "only")
    page.main([str(two_parts)])
    for task in ("first", "second"):
        keep(two_parts / "elsewhere", "days", task)
    run.main(["--jobs", "1", "--out", str(two_parts / "elsewhere")])  # measures no part that stands there
    assert "not measured" not in capsys.readouterr().out
    text = page.PAGE.read_text()
    assert text.index("## Risk") < text.index("## Days")
    assert len(list((two_parts.parent / "figures").iterdir())) == 4
    assert "Not measured" not in text
    run.main(["--jobs", "1", "--out", str(two_parts / "elsewhere")])  # nothing misses
    for task in ("first", "second"):
        keep(two_parts / "later", "days", task, commit="def")
    page.main([str(two_parts / "later")])
    text = page.PAGE.read_text()
    assert "`python -m scripts.acceptance.run risk` at `abc`" in text
    assert "`python -m scripts.acceptance.run days` at `def`" in text


def test_tasks_of_different_commits_make_no_part(two_parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(two_parts, "days", "first")
    keep(two_parts, "days", "second", commit="def")
    keep(two_parts, "risk", "only")
    with pytest.raises(SystemExit) as ended:
        page.main([str(two_parts)])
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "days was measured at abc, def" in said
    assert not page.PAGE.exists()


def test_a_part_that_is_not_whole_is_left_out_and_named(
    two_parts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(two_parts, "days", "first")
    with pytest.raises(SystemExit) as ended:
        page.main([str(two_parts)])
    assert ended.value.code == 2
    assert "days (1 of 2 tasks), risk (1 of 1 tasks)" in capsys.readouterr().err
    keep(two_parts, "risk", "only")
    page.main([str(two_parts)])
    text = page.PAGE.read_text()
    assert "Not measured: days." in text
    assert "## Risk" in text
    assert "## Days" not in text


@pytest.mark.parametrize(("found", "code"), [(KEPT, None), (MISSED, "1 figures miss: shed")])
def test_a_miss_is_an_exit_code_and_the_page_is_written(two_parts: Path, found: Check, code: str | None) -> None:
    keep(two_parts, "days", "first")
    keep(two_parts, "days", "second")
    keep(two_parts, "risk", "only", check=found)
    if code is None:
        run.main(["--jobs", "1", "--out", str(two_parts)])
    else:
        for _ in range(2):  # measured once, it misses again
            with pytest.raises(SystemExit, match=code):
                run.main(["--jobs", "1", "--out", str(two_parts)])
    assert page.PAGE.exists()


def test_what_is_measured_at_this_commit_is_not_measured_again(
    two_parts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(two_parts, "days", "first")
    keep(two_parts, "days", "second", commit="older")
    done = partial(FigureTable, checks=[KEPT])
    chosen = [FigureTask("days", "first", forbidden), FigureTask("days", "second", done)]
    found = run.measured(chosen, ResultFolder(two_parts), "abc", jobs=1, now=lambda: "abc")
    assert [(one.task, one.commit) for one in found] == [("first", "abc"), ("second", "abc")]
    assert ResultFolder(two_parts).find("days", "second") == found[1]
    assert "1 of 2 tasks are measured already" in capsys.readouterr().out


def test_what_is_measured_while_the_commit_changes_is_not_kept(two_parts: Path) -> None:
    chosen = [FigureTask("days", "first", FigureTable)]
    with pytest.raises(SystemExit) as ended:
        run.measured(chosen, ResultFolder(two_parts), "abc", jobs=1, now=lambda: "def")
    assert ended.value.code == 2
    assert ResultFolder(two_parts).find("days", "first") is None


def test_a_tree_with_changes_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> None:
        own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: S603, S607

    git("init", "-q")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-qm", "first")
    first = clean_commit(tmp_path, ["code.py"])
    assert len(first) == 12
    (tmp_path / "page.md").write_text("told")
    git("add", ".")
    git("commit", "-qm", "a page")
    assert clean_commit(tmp_path, ["code.py"]) == first, "a page is no part of what is measured"
    (tmp_path / "code.py").write_text("2")
    with pytest.raises(SystemExit) as ended:
        clean_commit(tmp_path, ["code.py"])
    assert ended.value.code == 2
    assert "code.py changed since the last commit" in capsys.readouterr().err


def forbidden() -> FigureTable:
    raise AssertionError("this is not to be measured")


def test_only_known_parts_are_measured(two_parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(two_parts, "risk", "only")
    run.main(["risk", "--out", str(two_parts)])
    assert "at abc these parts are not measured: " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["daze"])
    assert "no part daze" in capsys.readouterr().err


def test_every_part_of_the_page_is_measured() -> None:
    listed = list(tasks())
    assert {task.part for task in listed} == set(PARTS)
    assert len({(task.part, task.label) for task in listed}) == len(listed)
    assert [task.label for task in listed if task.alone] == ["times"], "times are measured alone, and nothing else"


def test_loads_elsewhere_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    day = Trace(name="x", start_at=0.0, bin_s=60.0, rates_rps=np.ones(130_000), whole_counts=False)
    monkeypatch.setattr(acceptance_loads, "trace_of", lambda _: day)
    loads = [make() for make in acceptance_loads.ELSEWHERE.values()]
    assert len({load.label for load in loads}) == len(loads) == 7
    assert all(load.start_s + load.duration_s <= load.trace.duration_s for load in loads)


def test_a_model_is_compared_in_both_markets(
    quiet_hour: AcceptanceLoad, simple: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "tuning_grid", lambda name: tuning_grid(name)[6:7])
    found = elsewhere.compare("lstm-ptb", quiet_hour, Foretold())
    assert [row[2] for row in found.rows] == [market.value for market in Market]
    assert sum("hedged / mark" in check.what for check in found.checks) == 2
    for row, check in zip(found.rows, (c for c in found.checks if "hedged / mark" in c.what), strict=True):
        assert float(row[6]) == float(check.value)
        assert check.kept == (found.numbers[f"a quiet hour, lstm-ptb, {row[2]} / mark"] <= elsewhere.MOST)
    assert elsewhere.tables(found)["means"][1][0] == "all"
    assert all(row[4].strip("()") in ("mark", "autoscaler", "autoscaler-spill", "serverless", "sagemaker",
               "sagemaker-fast") for row in found.rows)  # fmt: skip


def test_inceptions_ratio_stands_beside_the_mixed_one_and_without_what_others_miss() -> None:
    numbers = {
        "a day, inception-v3, spot / mark": 0.8,
        "a day, inception-v3, spot / mark that keeps the objective": 0.8,
        "a day, nasnet, spot / mark": 0.2,
        "a day, inception-v3, on-demand / mark": 0.9,
    }
    means = {row[0]: row[2] for row in elsewhere.tables(FigureTable(numbers=numbers))["means"]}
    assert means["all"] == "0.524 (3)"
    assert means["those where the other keeps the objective"] == "0.800 (1)"
    assert means["Inception-v3, spot"] == "0.800 (1)"
    assert means["Inception-v3, on demand"] == "0.900 (1)"


def test_cases_in_which_no_rival_keeps_the_objective_are_in_no_mean() -> None:
    numbers = {
        "a day, inception-v3, spot / mark": 0.8,
        "a day, inception-v3, spot / rival": 0.6,
        "a day, lstm-ptb, spot / mark": 0.9,
        "a day, lstm-ptb, spot / rival": 0.9,
        "a day, nasnet, spot / mark": 0.2,
        "a day, nasnet, on-demand / mark": 0.2,
        "a day, nasnet, on-demand / rival": 0.5,
    }
    found = elsewhere.completed(FigureTable(numbers=numbers))
    assert elsewhere.tables(found)["means"][1][1:3] == ("0.646 (3)", "0.412 (4)")
    assert [(check.value, check.wanted, check.kept) for check in found.checks] == [
        ("0.500 (1)", "<= 0.8", True),
        ("0.735 (2)", "<= 0.65", False),
    ]


def judged_line(where: str, policy: str, usd: float, attained: float = 0.995, over: float | None = None) -> Line:
    """A line whose overhead is half of what serving costs."""
    made = replace(line(usd / 1.5), where=where, policy=policy, attained=attained, total_usd=usd)
    return replace(made, over_reference=over, total_over_reference=None if over is None else over - 0.1)


@pytest.fixture
def three_days() -> list[Line]:
    """`hedged` beside rivals on the paper's types on spot, the cheapest of which misses the objective."""
    lines = []
    for day, usd in zip(rivals.DAYS, (8.0, 8.0, 4.0), strict=True):
        where = rivals.place(day, "paper", Market.SPOT)
        lines += [judged_line(where, "hedged", usd + more, over=1.4) for more in (-1.0, 0.0, 1.0)]
        lines.append(judged_line(where, "hedged, perfect forecast", usd / 2))
        lines.append(judged_line(where, "hedged, rough", usd, 0.97))
        lines.append(judged_line(where, "hedged, ideal", usd, over=1.3))
        lines.append(judged_line(where, "autoscaler", 1.0, 0.9))
        lines += [judged_line(where, "autoscaler-spill", 10.0 + more) for more in (-2.0, 1.0, 1.0)]
        lines.append(judged_line(where, "mark", (usd - 1.0) / 0.9))
        elsewhere_usd = 5.0 if day == list(rivals.DAYS)[2] else 12.0
        lines.append(judged_line(rivals.place(day, "paper", Market.ON_DEMAND), "reactive", elsewhere_usd))
    return lines


def test_hedged_is_held_against_the_cheapest_rival_of_each_day_that_keeps_the_objective(
    three_days: list[Line],
) -> None:
    found = rivals.completed(FigureTable(lines=three_days))
    ratio = next(check for check in found.checks if "cheapest rival" in check.what)
    assert (ratio.what.partition(":")[0], ratio.value, ratio.kept) == ("paper, spot", "0.800", True)
    assert rivals.tables(found)["ratios"][2] == (
        *(
            "paper",
            "spot",
            "0.800",
            "<= 0.84",
            "yes",
            "0.800",
            "0.464",
            "0.900",
            "0.800 (autoscaler-spill 0.9950)",
        ),
        *("0.800 (autoscaler-spill 0.9950)", "0.800 (reactive 0.9950)"),
    )


def test_serving_over_the_reference_and_what_is_attained_are_checked_by_world(three_days: list[Line]) -> None:
    checks = {check.what: check for check in rivals.completed(FigureTable(lines=three_days)).checks}
    assert checks["paper, spot, ideal: serving, hedged / reference"].value == "1.300"
    assert checks["paper, spot, typical: serving, hedged / reference"].kept
    rough = [check for what, check in checks.items() if "rough: hedged attained" in what]
    assert len(rough) == 3
    assert not any(check.kept for check in rough), "0.97 is below 0.98"
    typical = [check for what, check in checks.items() if "typical: hedged attained" in what]
    assert len(typical) == 3
    assert all(check.kept for check in typical)


def test_a_day_on_which_no_rival_keeps_the_objective_has_no_ratio() -> None:
    day = next(iter(rivals.DAYS))
    where = rivals.place(day, "cpu", Market.ON_DEMAND)
    lines = [judged_line(where, "hedged", 8.0), judged_line(where, "autoscaler", 9.0, 0.97)]
    found = rivals.beside(lines, day, "cpu", Market.ON_DEMAND)
    assert found is not None
    assert found.ratio is None
    assert found.cells == "no rival keeps it (autoscaler 0.9700)"
    assert rivals.beside(lines, day, "cpu", Market.SPOT) is None


def test_a_rival_that_misses_the_objective_by_little_with_one_seed_is_run_with_all() -> None:
    day = next(iter(rivals.DAYS))
    where = rivals.place(day, "cpu", Market.SPOT)
    attained = (0.979, 0.985, 0.984)
    assert rivals.may_keep(attained[0], 0.98)
    assert not rivals.may_keep(0.97, 0.98)
    lines = [judged_line(where, "hedged", 8.0), *(judged_line(where, "autoscaler", 10.0, one) for one in attained)]
    found = rivals.beside(lines, day, "cpu", Market.SPOT)
    assert found is not None
    assert found.ratio == 0.8


def test_every_registered_rival_is_measured_once() -> None:
    measured = (*rivals.IN_MARKET, *rivals.ON_DEMAND)
    assert len(set(measured)) == len(measured)
    assert set(policy_names()) - set(OWN_POLICIES) - set(PACKED) == set(measured), "those that pack want a service"


def test_algorithm_1_is_measured_without_our_choices_and_judged_by_none(
    quiet_hour: AcceptanceLoad, simple: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ExperimentSpec] = []

    def remembered(spec: ExperimentSpec, build: BuildForecaster) -> Experiment:
        asked.append(spec)
        return acceptance_loads.experiment_of(spec, build)

    monkeypatch.setattr(days, "experiment_of", remembered)
    found = days.uncapped(quiet_hour, Market.ON_DEMAND, Foretold(), types=("paper",))
    (spec,), (line,) = asked, found.lines
    assert spec.slo.mean_latency_s == spec.slo.latency_s
    assert spec.tuning == {"cooldown_min": 1.0}
    assert (line.where, line.policy) == ("a quiet hour, on-demand, paper", days.UNCAPPED)
    assert days.UNCAPPED not in days.POLICIES
    assert found.checks == []


@pytest.mark.slow
def test_rivals_are_tuned_and_hedged_runs_in_every_world(
    quiet_hour: AcceptanceLoad, simple: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "DAYS", {"a day": lambda: replace(quiet_hour, duration_s=120.0)})
    found = rivals.of_day("a day", "paper")
    policies = {(line.where, line.policy) for line in found.lines}
    for market in Market:
        named = {policy for where, policy in policies if where == rivals.place("a day", "paper", market)}
        fixed = set(rivals.ON_DEMAND) if market is Market.ON_DEMAND else set()
        ours = {rivals.HEDGED, rivals.PERFECT, rivals.IN_IDEAL, rivals.IN_ROUGH}
        assert named == {*ours, rivals.MARK, *rivals.IN_MARKET} | fixed
    tried = {row[1]: int(row[3]) for row in found.rows}
    assert tried["autoscaler"] == len(tuning_grid("autoscaler"))
    assert tried["serverless"] == len(tuning_grid("serverless")) // 2
    assert all(len(row) == len(rivals.HEAD) for row in found.rows)


def test_paper_types_have_no_quotas_and_the_world_is_typical(quiet_hour: AcceptanceLoad) -> None:
    usual = acceptance_loads.spec_of(quiet_hour, Market.SPOT)
    assert usual.world == TYPICAL
    paper = acceptance_loads.spec_of(quiet_hour, Market.SPOT, types=("paper",))
    assert paper.world == replace(TYPICAL, quotas=())


def test_every_constant_is_told_with_its_source_and_can_be_changed() -> None:
    listed = list(sensitivity.constants())
    assert len({item.name for item in listed}) == len(listed)
    assert all(item.source and item.value for item in listed)
    told = sensitivity.tables(FigureTable())["constants"]
    assert ("1 - planner.hedging.spot_pools.MOST_IN_ONE_POOL", "0.1", "ours (decision 0011)") in told


def place_of(module: ModuleType, name: str) -> str:
    return f"{module.__name__.removeprefix('mark.')}.{name}"


def own_numbers(module: ModuleType) -> set[str]:
    """Names of the numbers that a module itself makes, not those that it imports."""
    names = {
        part.id
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for part in ast.walk(target)
        if isinstance(part, ast.Name)
    }
    return {name for name in names if isinstance(getattr(module, name, None), int | float)}


def test_every_number_that_hedged_decides_by_is_told_or_excused() -> None:
    told = {re.sub(r"^1 - | - 1$", "", item.name) for item in sensitivity.constants()}
    numbers = {place_of(module, name) for module in sensitivity.DECIDING for name in own_numbers(module)}
    assert {"planner.hedged.DEAREST", "controller.error_budget.LEAST_FACTOR"} <= numbers
    assert sorted(numbers - told - set(sensitivity.EXCUSED)) == []
    assert sorted(set(sensitivity.EXCUSED) - numbers) == [], "an excuse for what is no more"
    assert told.isdisjoint(sensitivity.EXCUSED)


def test_no_number_that_is_changed_is_frozen_in_machine_code() -> None:
    told = {re.sub(r"^1 - | - 1$", "", item.name) for item in sensitivity.constants()}
    frozen = {
        place_of(module, part.id)
        for module in sensitivity.DECIDING
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.FunctionDef) and any("njit" in ast.unparse(mark) for mark in node.decorator_list)
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
    }
    assert sorted(told & frozen) == []


def test_what_no_run_changes_is_told_with_its_reason() -> None:
    ((name, value, source),) = sensitivity.UNCHANGED
    assert (name, float(value)) == ("dispatch.routing.OVERDUE_SHARE", routing.OVERDUE_SHARE)
    assert (name, value, source) in sensitivity.tables(FigureTable())["constants"]


def test_the_window_of_the_error_budget_is_changed_with_its_decay() -> None:
    (window,) = (item for item in sensitivity.constants() if item.name == "controller.error_budget.WINDOW_S")
    used = ErrorBudget(finished=1000.0, missed=10.0, known=1.0)
    usual = used.after(Outcomes())
    with window.changed(window.value / 2).around():
        shorter = used.after(Outcomes())
    assert shorter.finished == pytest.approx(1000.0 * (usual.finished / 1000.0) ** 2)
    assert used.after(Outcomes()) == usual


def test_a_constant_is_changed_for_one_run_and_in_every_module_that_has_it() -> None:
    (waking,) = (item for item in sensitivity.constants() if item.name.endswith("WORTH_WAKING"))
    (pool,) = (item for item in sensitivity.constants() if item.name.endswith("MOST_IN_ONE_POOL"))
    before = surges.WORTH_WAKING
    with waking.changed(0.8).around(), pool.changed(0.2).around():
        assert surges.WORTH_WAKING == shortfall_cost.WORTH_WAKING == 0.8
        assert spot_pools.MOST_IN_ONE_POOL == 0.8
    assert surges.WORTH_WAKING == shortfall_cost.WORTH_WAKING == before


def test_other_seeds_stand_beside_changed_constants(
    quiet_hour: AcceptanceLoad, simple: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [item for item in sensitivity.constants() if item.name.endswith("DETECTION_S")]
    monkeypatch.setattr(sensitivity, "constants", lambda: iter(chosen))
    monkeypatch.setattr(sensitivity, "twitter_day", lambda _: quiet_hour)
    rows = [row for case in sensitivity.CASES for row in sensitivity.of_case(1, Market.SPOT, case).rows]
    assert [row[2:4] for row in rows] == [
        (sensitivity.IN_TIME, "none, seeds 2 and 3"),
        (sensitivity.IN_TIME, "planner.hedging.shortfall_cost.DETECTION_S"),
        *((case, "none, seeds 2 and 3") for case in (sensitivity.LATE, sensitivity.WITHOUT)),
    ]
    assert all(len(row) == len(sensitivity.HEAD) for row in rows)
    assert any("=" not in row for row in rows if row[3].startswith("none")), "another seed is another run"


def test_a_field_of_the_policy_or_its_breaker_is_changed(quiet_hour: AcceptanceLoad, simple: None) -> None:
    bundle = ablation.Ablated(
        acceptance_loads.spec_of(quiet_hour, Market.SPOT), ablation.Variant(label=""), Foretold()
    ).bundle("hedged")
    changed = {item.name: item.changed(item.value * 2).bundle(bundle) for item in sensitivity.constants()}
    assert changed["ControllerPolicy.lead_units"].controller.lead_units == 2 * bundle.controller.lead_units
    breaker = changed["BreakerPolicy.count"].controller.breaker
    assert breaker is not None
    assert breaker.count == 4
    assert changed["BreakerPolicy.open_s"].controller.launch_breaker == bundle.controller.launch_breaker
    launches, usual = changed["LaunchBreakerPolicy.open_s"].controller.launch_breaker, LaunchBreakerPolicy()
    assert launches == replace(usual, open_s=2 * usual.open_s)
    assert changed["LaunchBreakerPolicy.open_s"].controller.breaker == bundle.controller.breaker
    (slack,) = (item.value for item in sensitivity.constants() if item.name == "1 - admission_factor")
    assert bundle.dispatch.admission_factor == pytest.approx(1.0 - slack)
    assert changed["1 - admission_factor"].dispatch.admission_factor == pytest.approx(1.0 - 2 * slack)


def test_each_constant_is_another_at_each_factor(quiet_hour: AcceptanceLoad, simple: None) -> None:
    spec = acceptance_loads.spec_of(quiet_hour, Market.SPOT)
    usual = ablation.Ablated(spec, ablation.Variant(label=""), Foretold()).bundle("hedged")
    for item in sensitivity.constants():
        for factor in sensitivity.FACTORS:
            change = item.changed(item.value * factor)
            assert is_another(change, usual), f"{item.name} x {factor:g}"


def is_another(change: ablation.Variant, usual: PolicyBundle) -> bool:
    """Try a change; true where the policy, or what its planner takes as given, is another."""
    before = given()
    with change.around():
        return change.bundle(usual) != usual or given() != before


def given() -> dict[str, object]:
    """Givens of `hedged` beside its policy: the numbers of all modules, and what a plan may launch."""
    numbers = {
        f"{place}.{name}": value
        for place, module in sys.modules.items()
        if place.startswith("mark.")
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int | float)
    }
    return numbers | {"launchable": PlanRequest.launchable}


def test_each_change_of_hedged_changes_something(quiet_hour: AcceptanceLoad, simple: None) -> None:
    spec = acceptance_loads.spec_of(quiet_hour, Market.SPOT)
    labels = [variant.label for variant in ablation.variants()]
    assert len(set(labels)) == len(labels)
    usual = ablation.Ablated(spec, next(ablation.variants()), Foretold()).bundle("hedged")
    for variant in list(ablation.variants())[1:]:
        experiment = ablation.Ablated(spec, variant, Foretold())
        asks_another = experiment.spec != spec or variant.median  # what `median` is, another test says
        assert asks_another or is_another(variant, usual), variant.label


def test_what_is_changed_is_what_runs(quiet_hour: AcceptanceLoad, simple: None) -> None:
    spec = acceptance_loads.spec_of(quiet_hour, Market.ON_DEMAND)
    runs = {
        variant.label: ablation.Ablated(spec, variant, Foretold()).run("hedged")
        for variant in ablation.variants()
        if variant.label in ("as it is", "no standbys", "standbys are c5.2xlarge")
    }
    assert runs["as it is"].cost.standby > 0
    assert runs["no standbys"].cost.standby == 0
    assert runs["standbys are c5.2xlarge"].cost.standby != runs["as it is"].cost.standby


def test_the_default_forecaster_is_held_against_the_best_single_one() -> None:
    (kept,) = ablation.beside_singles("here", 10.2, {"last-value": 10.0, "ridge": 12.0}).checks
    (missed,) = ablation.beside_singles("here", 10.4, {"last-value": 12.0, "ridge": 10.0}).checks

    assert kept.kept
    assert "best single (last-value)" in kept.what
    assert not missed.kept
    assert "best single (ridge)" in missed.what


@pytest.mark.parametrize(("usd", "value", "kept"), [((10.2, 10.0), "1.010", True), ((10.3, 10.0), "1.015", False)])
def test_the_default_forecaster_is_held_against_the_best_single_ones_of_all_cases(
    usd: tuple[float, float], value: str, kept: bool
) -> None:
    found = FigureTable()
    assert ablation.completed(found) == found
    for where, total in zip(("here", "there"), usd, strict=True):
        found.add(ablation.beside_singles(where, total, {"last-value": 10.0, "ridge": 12.0}))
    *each, over_all = PARTS["ablation"].completed(found).checks
    assert all(check.kept for check in each)
    assert (over_all.value, over_all.wanted, over_all.kept) == (value, "<= 1.01", kept)
    assert "geometric mean of 2" in over_all.what


class Told:
    """A forecaster that counts its questions."""

    asked = 0

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        self.asked += 1
        rows = ((1.0, 2.0, 9.0),) * horizon
        return Forecast(start_at=history.end_at, mean_rps=rows, max_rps=rows, quantiles=(0.25, 0.5, 0.9))


def history(units: int) -> Demand:
    return Demand(end_at=units * 60.0, mean_rps=(1.0,) * units, max_rps=(1.0,) * units)


def test_a_question_is_asked_once() -> None:
    told = Told()
    remembering = Remembering(lambda: told)
    first = remembering.forecast(history(3), 2)
    assert remembering.forecast(history(3), 2) is first
    assert told.asked == 1
    assert remembering.forecast(history(4), 2) is not first
    assert len(remembering.forecast(history(4), 5)) == 5
    assert told.asked == 3


def test_tasks_on_one_load_share_what_is_forecast_of_it(
    quiet_hour: AcceptanceLoad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Told] = []
    monkeypatch.setattr(acceptance_loads, "build_forecaster", lambda *_: made.append(Told()) or made[-1])
    monkeypatch.setattr(acceptance_loads, "_kept_in", tmp_path)
    setup = ForecasterSetup(history=history(3), seed=1)
    with Foretold(quiet_hour) as first:
        told = first.build("mixture", setup).forecast(history(3), 2)
    with Foretold(replace(quiet_hour)) as second:
        assert second.build("mixture", setup).forecast(history(3), 2) == told
        assert len(made) == 1, "a forecaster whose answers are known is not made again"
        second.build("mixture", setup).forecast(history(4), 2)
    assert len(made) == 2, "what nobody asked before is asked"
    others = (quiet_hour, replace(quiet_hour, seed=2), replace(quiet_hour, start_s=60.0))
    for load, seed in zip(others, (2, 1, 1), strict=True):
        Foretold(load).build("mixture", replace(setup, seed=seed))
    assert len(made) == 4, "another seed of training or another load has other answers, a seed of whole counts not"
    failed = Foretold(replace(quiet_hour, start_s=120.0))
    failed.build("mixture", setup).forecast(history(3), 2)
    failed.__exit__(ValueError)
    assert len(list(tmp_path.iterdir())) == 1, "of a task that failed nothing is kept"


def test_the_median_alone_is_a_point() -> None:
    point = ablation.Median(Told()).forecast(history(3), 2)
    assert point.quantiles == (0.5,)
    assert point.mean_rps == point.max_rps == ((2.0,), (2.0,))


def test_forecasts_are_judged_by_what_they_score(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = 50.0 + 10.0 * np.sin(np.arange(1_000) / 20.0)
    trace = Trace(name="waves", start_at=0.0, bin_s=60.0, rates_rps=rates, whole_counts=False)
    monkeypatch.setattr(forecasts, "trace_of", lambda _: trace)
    window = forecasts.Window(
        label="waves", file="waves", start_min=0, train_min=600, test_min=100, names=("last-value", "moving-mean")
    )
    found = forecasts.measure(window)
    assert [row[:3] for row in found.rows] == [
        ("waves", target, name) for target in ("mean", "max") for name in window.names
    ]
    assert found.checks == []
    spans = {"mean": window.span("mean")}
    asked = {
        name: {"mean": run_backtest(spans["mean"], teller, lambda _: None)}
        for name, teller in (
            ("last-value", build_forecaster("last-value", _setup())),
            ("mixture", Told()),
        )
    }
    judged = forecasts.judge(window, "mean", asked)
    (check,) = judged.checks
    assert "mixture / best single (last-value)" in check.what
    assert not check.kept


def _setup() -> ForecasterSetup:
    return ForecasterSetup(history=history(3), seed=1)


def test_times_stand_in_a_table_of_their_own() -> None:
    numbers = {"lstm: made in s": 90.04, "lstm: update ms": 3.1, "a window, mean lstm / classical": 0.9}
    assert forecasts.tables(FigureTable(numbers=numbers)) == {
        "times": [("forecaster", "made in s", "update ms"), ("lstm", "90.0", "3.1")]
    }
    assert forecasts.tables(FigureTable()) == {}


def test_windows_learn_before_they_forecast() -> None:
    labels = [window.label for window in forecasts.windows()]
    assert len(set(labels)) == len(labels) == 13
    for window in forecasts.windows():
        assert window.train_min >= 60
        assert window.is_first_hours == ("after" in window.label)
