from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from rich.table import Table

from mark import __version__
from mark.catalog.load import load_models
from mark.cli.main import run
from mark.config.policies import sized_model
from mark.config.served import each_model
from mark.config.settings import Settings
from mark.config.trace import TraceSettings
from mark.domain.load.sizes import kairos_sizes, sizes_from_formula
from mark.domain.offerings.offering import Market
from mark.live.commands import demo
from mark.offline.own_model.init_from_target import examined
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import read_trace
from mark.simulator.workload import Workload

PLAN = ["plan", "--model", "inception-v3"]
SIMULATE = ["simulate", "--trace", "load.csv.gz", "--model", "inception-v3", "--start-s", "300", "--out", "run"]


def document(answer) -> dict:
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"mark {__version__}\n"


def test_without_a_command_it_helps(mark):
    answer = mark()

    assert answer.status == 0
    assert "simulate" in answer.out


def test_a_plan_meets_the_rate_and_excuses_the_rest(mark):
    found = document(mark(*PLAN, "--rate", "120", "--json"))

    assert found["required_rps"] == 120
    assert found["capacity_rps"] >= 120
    assert found["usd_per_hour"] == pytest.approx(sum(c["count"] * c["usd_per_hour"] for c in found["counts"]))
    taken = {item["offering"] for item in found["counts"]}
    scored = {item["offering"] for item in found["scores"]}
    excused = {item["offering"] for item in found["excuses"]}
    assert taken <= scored
    assert scored - taken <= excused
    assert not taken & excused
    assert "t2.large:on-demand" in excused


def test_running_instances_are_kept(mark):
    new = document(mark(*PLAN, "--rate", "12", "--types", "c5.large", "--json"))
    kept = document(mark(*PLAN, "--rate", "12", "--types", "c5.large", "--running", "c5.large=2", "--json"))

    assert new["counts"][0]["count"] == kept["counts"][0]["count"]
    assert (new["counts"][0]["kept"], kept["counts"][0]["kept"]) == (0, 2)
    assert kept["launch_usd"] < new["launch_usd"]


def test_a_plan_is_that_of_a_replay_where_no_type_keeps_half_of_the_objective(mark):
    answer = mark("plan", "--model", "opennmt-ende", "--rate", "10", "--json")

    found = document(answer)
    assert found["capacity_rps"] >= 10
    assert "note: no type answers in half of 1400 ms: plans allow a mean of all of it" in answer.err


def test_half_of_the_objective_asked_for_as_a_mean_is_kept_or_refused(mark):
    Path("mark.yaml").write_text("objective: {mean_latency_ms: 700}\n")

    answer = mark("plan", "--model", "opennmt-ende", "--rate", "10", "--config", "mark.yaml")

    assert answer.status == 2
    assert "no type keeps a mean latency of 700 ms" in answer.err


def test_on_demand_twins_that_run_are_candidates_on_spot(mark):
    spot = [*PLAN, "--rate", "12", "--market", "spot", "--types", "c5.large", "--json"]

    without = document(mark(*spot))
    found = document(mark(*spot, "--running", "c5.large:on-demand=2"))

    assert {item["offering"] for item in without["scores"]} == {"c5.large:spot"}
    assert {item["offering"] for item in found["scores"]} == {"c5.large:on-demand", "c5.large:spot"}
    assert "did you mean 'c5.large:on-demand'" in mark(*spot, "--running", "c5.large:ondemand=2").err


def test_a_plan_looks_as_far_ahead_as_the_settings_say(mark):
    Path("mark.yaml").write_text("policy: {lead_min: 3}\n")

    assert document(mark(*PLAN, "--rate", "9", "--config", "mark.yaml", "--json"))["at_s"] == 180


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trace", "describe", "load.csv.gz"], "reading load.csv.gz"),
        (["trace", "import", "load.csv.gz", "copy.csv"], "writing copy.csv"),
        (["bound", "--trace", "load.csv.gz", "--model", "inception-v3"], "reading load.csv.gz"),
    ],
)
def test_a_terminal_sees_what_takes_long(mark, monkeypatch, arguments, said):
    assert said not in mark(*arguments).err
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    monkeypatch.setenv("TERM", "xterm")

    assert said in mark(*arguments).err


def test_a_forecast_by_the_minute_and_as_a_trace(mark):
    Path("minutes.csv").write_text("minute,rate\n0,10\n1,10\n2,10\n3,10\n4,10\n5,80\n")
    Path("rates.csv").write_text(
        "timestamp_s,rate_rps\n" + "".join(f"{60 * m},{80 if m >= 5 else 10}\n" for m in range(60))
    )

    found = [document(mark(*PLAN, "--forecast", name, "--json")) for name in ("minutes.csv", "rates.csv")]

    assert [item["required_rps"] for item in found] == [80, 80]
    assert found[0]["counts"] == found[1]["counts"]


def test_a_plan_in_words(mark):
    answer = mark(*PLAN, "--rate", "120", "--market", "spot")

    assert answer.status == 0
    assert "For 120 requests/s, planned 5 minutes ahead" in answer.out
    assert "c5.large:spot" in answer.out
    assert "burstable: stands by only" in answer.out


def test_reference_and_floor(mark):
    found = document(mark("bound", "--trace", "load.csv.gz", "--model", "inception-v3", "--json"))
    (simulated,) = document(mark(*SIMULATE[:5], "--policy", "reactive", "--json"))["runs"]

    assert 0 < found["floor_usd"] <= found["reference_usd"]
    assert (found["requests"], found["reference_usd"]) == (simulated["requests"], simulated["reference_usd"])


def test_without_lambda_there_may_be_no_reference(mark):
    Path("mark.yaml").write_text("offerings: {overflow: false}\n")

    answer = mark("bound", "--trace", "load.csv.gz", "--model", "inception-v3", "--config", "mark.yaml")

    assert answer.status == 0
    assert "reference" in answer.out


def test_a_trace_is_imported_scaled_and_described(mark):
    Path("arrivals.csv").write_text("arrival_s\n" + "".join(f"{i / 4}\n" for i in range(1200)))

    assert mark("trace", "import", "arrivals.csv", "rates.csv.gz", "--duration-s", "60").status == 0
    found = document(mark("trace", "describe", "rates.csv.gz", "--json"))

    assert (found["duration_s"], found["requests"], found["mean_rps"]) == (60, 240, 4)
    assert mark("trace", "import", "rates.csv.gz", "more.csv", "--mean-rps", "8").status == 0
    assert read_trace(Path("more.csv")).mean_rps == pytest.approx(8)


@pytest.mark.parametrize(
    ("arguments", "length_s"),
    [
        (["constant", "--rps", "5", "--duration-s", "120"], 120),
        (["surge", "--rps", "5", "--plus", "1", "--at-s", "60"], 1800),
        (["mmpp", "--rates", "5,50", "--sojourns-s", "60,60", "--duration-s", "300"], 300),
        (["diurnal-floods", "--days", "1"], 86400),
    ],
)
def test_a_generated_trace_depends_on_its_seed_alone(mark, arguments, length_s):
    for name, seed in (("a.csv.gz", "1"), ("b.csv.gz", "1"), ("c.csv.gz", "2")):
        assert mark("trace", "generate", *arguments, "--seed", seed, "--out", name).status == 0

    assert Path("a.csv.gz").read_bytes() == Path("b.csv.gz").read_bytes() != Path("c.csv.gz").read_bytes()
    assert read_trace(Path("a.csv.gz")).duration_s == length_s


@pytest.mark.usefixtures("undrawn")
def test_explain_reproduces_a_run_and_shows_a_minute(mark):
    assert mark(*SIMULATE, "--policy", "mark,reactive").status == 0

    whole = document(mark("explain", "run", "--json"))
    minute = document(mark("explain", "run", "--at", "2", "--json"))
    other = mark("explain", "run", "--at", "2", "--policy", "reactive")

    assert (whole["policy"], whole["reproduces"], whole["mismatches"]) == ("mark", True, [])
    assert whole["tick_count"] >= 10
    assert sum(whole["launched"].values()) > 0
    assert whole["ticks"][0]["minute"] == 0
    assert {tick["minute"] for tick in minute["ticks"]} == {1, 2, 3}
    assert "replayed, the journal gives the same plans and orders" in other.out
    assert "minute 2 (00:02:00 after the start)" in other.out
    assert "outside" in mark("explain", "run", "--at", "99").err
    assert "--at -1 is outside" in mark("explain", "run", "--at", "-1").err
    assert "did you mean 'mark'?" in mark("explain", "run", "--policy", "mrk").err


@pytest.mark.usefixtures("undrawn")
def test_explain_says_when_a_journal_does_not_reproduce(mark):
    mark(*SIMULATE, "--policy", "mark")
    path = Path("run/journal.jsonl")
    header, first, *rest = path.read_text().splitlines()
    entry = json.loads(first)
    entry["orders"] = entry["orders"][1:]
    path.write_text("\n".join([header, json.dumps(entry), *rest]) + "\n")

    found = document(mark("explain", "run", "--json"))

    assert found["reproduces"] is False
    assert found["mismatches"][0]["what"] == "orders"
    assert found["mismatches"][0]["at_s"] == 0
    assert "differ from the journal, the first at minute 0.0 (orders)" in mark("explain", "run").out


@pytest.mark.usefixtures("undrawn")
def test_explain_reads_the_journal_of_a_run_that_was_killed(mark):
    mark(*SIMULATE, "--policy", "mark")
    path = Path("run/journal.jsonl")
    path.write_bytes(path.read_bytes()[:-50])

    found = document(mark("explain", "run", "--json"))

    assert found["reproduces"] is True
    assert found["tick_count"] == len(path.read_bytes().splitlines()) - 2


def test_lists(mark):
    policies = document(mark("policies", "--json"))
    models = document(mark("models", "--json"))

    assert [item["name"] for item in policies["policies"]][:3] == ["hedged", "fleet-per-model", "mark"]
    assert all(item["about"] for item in policies["policies"])
    assert {"mixture", "lstm-vanilla"} <= set(policies["forecasters"])
    assert next(m for m in models["models"] if m["name"] == "inception-v3")["slo"]["latency_ms"] == 600
    assert "assumed-lambda" in models["assumed_sets"]
    assert models["type_sets"] == ["paper", "current", "cpu"]
    said = mark("models").out
    assert "c5.large" in said
    assert {m["name"]: m["target"] for m in models["to_serve"]} == {
        "digits": "mark.models.digits:Digits",
        "lstm_lm": "mark.models.lstm_lm:LanguageModel",
        "transformer": "mark.models.transformer:Polarity",
    }
    assert all(m["target"] in said and Path(m["card"]).is_file() for m in models["to_serve"])
    assert all("c5.large" in m["profiled_on"] for m in models["to_serve"])
    (snippet,) = (line for line in said.splitlines() if line.strip().startswith("service:"))
    assert Settings.model_validate(yaml.safe_load(snippet)).service.serve[0].model == "digits"
    assert "module:attribute" in mark("policies").out


@pytest.mark.usefixtures("undrawn")
def test_the_demo_says_what_happens_and_where_the_report_is(mark, monkeypatch):
    workload = Workload(trace=constant(20, duration_s=900), seed=0, start_s=600.0)
    monkeypatch.setattr(demo.generators, "demo_workload", lambda _seed: workload)

    answer = mark("demo", "--replay-only", "--out", "demo")

    assert answer.status == 0
    assert "are replayed under every policy" in answer.err
    assert "report: demo/report.html" in answer.out
    assert all(name in answer.out for name in ("hedged", "mark", "greedy-oracle", "sagemaker", "lambda-only"))


def examined_here(options, rps, taken):
    with examined(options, rps, taken) as found:
        return found


def test_the_demo_serves_its_five_models_from_a_file_that_any_command_takes(tmp_path, monkeypatch):
    trace = constant(20, duration_s=900)
    monkeypatch.setattr(demo.generators, "demo_workload", lambda _seed: Workload(trace=trace, seed=0))
    monkeypatch.setattr(demo, "surge_start_s", lambda _trace: 600.0)
    monkeypatch.setattr(demo, "MEASURED_S", 0.01)
    monkeypatch.setattr(demo, "examined_apart", examined_here)
    monkeypatch.setattr(demo, "note", lambda _text: None)
    measured = demo.measured_models(tmp_path / "demo")
    chosen = demo.demo_settings(Settings(seed=3), tmp_path / "demo", measured)
    models = each_model(chosen)
    assert {own.model: own.trace.mean_rps for own, _ in models} == demo.MEAN_RPS
    assert all(own.seed == 3 and own.market is Market.SPOT for own, _ in models)
    assert all(Path(entry.backend.target.rpartition(":")[0]).is_file() for _, entry in models)
    assert list(load_models(chosen.models)) == sorted(demo.MEAN_RPS)


def test_a_study_is_printed_with_its_assumptions(mark, monkeypatch):
    class Study:
        assumptions, provenance = ("a stated one",), ("measured here: ours",)

        def document(self):
            return {"study": "mark-fig9", "rows": [{"ours": 1}], "assumptions": ["a stated one"]}

        def tables(self):
            table = Table("ours")
            table.add_row("1")
            return [table]

    seeds = []
    monkeypatch.setattr(
        "mark.offline.reproduce.STUDIES", {"mark-fig9": lambda context: seeds.append(context.seed) or Study()}
    )

    assert document(mark("reproduce", "mark-fig9", "--seed", "7", "--json"))["rows"] == [{"ours": 1}]
    assert "\nmeasured here: ours\nassumed: a stated one\n" in mark("reproduce", "mark-fig9").out
    assert seeds == [7, 0]


def test_a_plan_counts_the_items_of_requests(mark):
    def instances(*flags):
        found = document(mark("plan", "--model", "rm2", "--rate", "300", *flags, "--json"))
        return sum(item["count"] for item in found["counts"])

    assert instances("--sizes", "constant:200") > instances("--sizes", "constant:1")


def test_a_pool_within_a_budget_is_replayed_with_a_central_queue_where_its_rule_is_named(mark):
    flags = ["--trace", "load.csv.gz", "--start-s", "60", "--duration-s", "120", "--world", "ideal"]
    pool = ["--pool-usd-per-hour", "0.9", "--slo-ms", "370", "--types", "g4dn.xlarge,r5n.large"]

    def run(*dispatch):
        command = ["simulate", "--model", "rm2", "--policy", "kairos", *flags, *pool, *dispatch, "--json"]
        (found,) = document(mark(*command))["runs"]
        return found

    early, central, first = run(), run("--dispatch", "kairos"), run("--dispatch", "fcfs")
    assert any("binds each request when it arrives" in text for text in early["notes"])
    assert any("one central queue" in text for text in central["notes"])
    assert central["requests"] == early["requests"] == sum(central["served"].values())
    assert central["cost_usd"]["instances"] == pytest.approx(early["cost_usd"]["instances"], rel=0.05)
    assert central["slo"]["attained"] >= first["slo"]["attained"]
    assert central["latency_ms"] != first["latency_ms"]


def test_the_shipped_query_size_models_have_sizes_without_the_flag():
    usual = {name: sized_model(Settings(model=name)).sizes for name in ("rm2", "inception-v3")}
    assert usual["rm2"] == kairos_sizes()
    assert usual["inception-v3"] is None
    named = Settings(model="rm2", trace=TraceSettings(sizes="constant:1"))
    assert sized_model(named).sizes == sizes_from_formula("constant:1")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("constant:2000", "sizes 'constant:2000': size 2000 is beyond the profile of rm2, which ends at 1000"),
        ("constant:x", "'x' is not a number"),
        ("nowhere.csv", "nowhere.csv: cannot be read"),
    ],
    ids=["beyond-the-profile", "no-number", "no-file"],
)
def test_bad_sizes_are_refused_in_one_line(mark, spec, said):
    answer = mark("plan", "--model", "rm2", "--rate", "10", "--sizes", spec)
    assert answer.status == 2
    assert said in answer.err
    assert len(answer.err.strip().splitlines()) == 1
