"""Traces as the commands read them: many formats, filters, bursts, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.config.settings import Settings
from mark.live.commands.load import LoadOptions, due_requests
from mark.offline.trace_source import TraceReading
from mark.offline.workloads import chosen_workload
from mark.simulator.traces.trace import read_trace
from tests.offline.test_sweep import here
from tests.simulator.test_trace_formats import alb, statistics

__all__ = ["here"]
COUNTS = [6000, 6600, 7200, 6600]


def document(answer) -> dict:
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def test_an_export_is_described_replayed_and_planned_as_it_is(mark):
    Path("export").write_text(statistics(COUNTS, 300))
    found = document(mark("trace", "describe", "export", "--json"))
    assert (found["requests"], found["bin_s"]) == (26_400, 300)
    assert "bins of 300 s hide the bursts" in found["notes"][-1]
    plan = document(mark("plan", "--model", "inception-v3", "--forecast", "export", "--json"))
    assert plan["required_rps"] == pytest.approx(22)  # five minutes ahead
    simulate = ["simulate", "--trace", "export", "--model", "inception-v3", "--policy", "reactive", "--json"]
    (run,) = document(mark(*simulate, "--start-s", "600"))["runs"]
    assert run["requests"] == pytest.approx(13_800, rel=0.05)
    assert any("(--bursts typical)" in note for note in run["notes"])


def test_bursts_can_be_left_out_and_change_what_arrives(mark):
    Path("export.json").write_text(statistics(COUNTS, 300))
    bound = ["bound", "--trace", "export.json", "--model", "inception-v3", "--json"]
    typical, strong, flat = (
        document(mark(*bound, *more)) for more in ((), ("--bursts", "strong"), ("--bursts", "none"))
    )
    assert "(--bursts typical)" in typical["notes"][0]
    assert "(--bursts none)" in flat["notes"][0]
    assert flat["reference_usd"] <= typical["reference_usd"] <= strong["reference_usd"]
    assert mark(*bound, "--bursts", "some").status == 2


def test_a_shell_s_pattern_is_many_sources_and_the_last_name_is_written(mark):
    Path("a.log").write_text(alb(0.5) + alb(1.5, path="/health"))
    Path("b.log").write_text(alb(2.5))
    assert mark("trace", "import", "a.log", "b.log", "load.csv", "--where", "path=/v2/*").status == 0
    assert read_trace("load.csv").rates_rps.tolist() == [1, 0, 1]


def test_a_log_that_stands_last_is_not_written_over(mark):
    for name in ("a.log", "b.log", "c.log"):
        Path(name).write_text(alb(0.5))
    answer = mark("trace", "import", "a.log", "b.log", "c.log")
    assert answer.status == 2
    assert "c.log exists and would be written over; name a new file" in answer.err
    assert Path("c.log").read_text() == alb(0.5)


def test_import_keeps_long_bins_and_warns(mark):
    Path("export.json").write_text(statistics(COUNTS, 300))
    answer = mark("trace", "import", "export.json", "load.csv")
    assert answer.status == 0
    assert "note: bins of 300 s hide the bursts within them" in answer.err
    assert read_trace("load.csv").rates_rps.tolist() == [20, 22, 24, 22]


def test_a_settings_file_says_how_its_trace_is_read(mark):
    Path("logs").mkdir()
    Path("logs/a.log").write_text(
        "".join(alb(at + 0.5, path="/health" if at % 2 else "/v2/x") for at in range(120))
    )
    Path("mark.yaml").write_text("model: inception-v3\ntrace: {file: logs, where: [path=/v2/*], start_s: 60}\n")
    (run,) = document(mark("simulate", "--policy", "reactive", "--config", "mark.yaml", "--json"))["runs"]
    assert run["requests"] == 30


def test_a_load_sends_what_a_replay_of_the_same_export_draws(mark):
    Path("export.json").write_text(statistics(COUNTS, 300))
    options = LoadOptions(
        service="mark", model=None, trace="export.json", rate_rps=None, mean_rps=10.0, start_s=300.0,
        duration_s=600.0, speed=1.0, seed=3, reading=TraceReading(bursts="strong"),
    )  # fmt: skip
    trace = {"file": "export.json", "mean_rps": 10, "start_s": 300, "duration_s": 600, "bursts": "strong"}
    workload = chosen_workload(Settings.model_validate({"seed": 3, "trace": trace}))
    assert (due_requests(options)[0] + 300.0).tolist() == pytest.approx(workload.arrivals(300.0, 900.0).tolist())


@pytest.mark.usefixtures("here")
def test_a_sweep_reads_a_trace_by_each_filter(mark):
    Path("a.log").write_text("".join(alb(at + 0.5, path="/health" if at % 3 else "/v2/x") for at in range(120)))
    answer = mark(
        "sweep", "--trace", "a.log", "--model", "inception-v3", "--policy", "reactive", "--out", "grid", "--json",
        "--set", "trace.where=[path=/v2/*],[path=/health]",
    )  # fmt: skip
    rows = document(answer)["rows"]
    assert [row["group"] for row in rows] == ["a, where path=/v2/*", "a, where path=/health"]
    assert rows[0]["serving_usd"]["mean"] < rows[1]["serving_usd"]["mean"]
