from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import INTERRUPTED
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.offline import out_folder
from mark.offline.experiments import make_experiment
from mark.offline.simulate import event_remarks
from mark.simulator.experiment import Experiment
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import write_trace

RUN = ["simulate", "--trace", "load.csv.gz", "--model", "inception-v3", "--start-s", "300"]
HEDGED = [*RUN, "--policy", "hedged"]
KEYS = {
    "policy", "market", "model", "trace", "seed", "requests", "duration_s", "cost_usd",
    "reference_usd", "floor_usd", "reference_total_usd",
    "cost_over_reference", "cost_over_floor", "slo", "latency_ms", "served", "cold_start_rate", "assumed_profiles",
    "stand_in_profiles", "launches", "interruptions", "wall_s", "world",
}  # fmt: skip
WORLD_FLAGS = {"default": [], "typical": ["--world", "typical"], "ideal": ["--world", "ideal"]}


def document(answer) -> dict:
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def runs(answer) -> list[dict]:
    return document(answer)["runs"]


def without_wall(found: list[dict]) -> list[dict]:
    return [{key: value for key, value in run.items() if key != "wall_s"} for run in found]


def test_the_document_has_what_is_promised_and_adds_up(mark):
    (run,) = runs(mark(*HEDGED, "--json"))

    assert set(run) >= KEYS
    assert run["policy"] == "hedged"
    assert run["requests"] == sum(run["served"].values()) > 0
    parts = run["cost_usd"]
    assert parts["serving"] == pytest.approx(parts["instances"] + parts["standby"] + parts["lambda"])
    assert parts["total"] == pytest.approx(parts["serving"] + parts["overhead"])
    assert run["floor_usd"] <= run["reference_usd"] < run["reference_total_usd"]


def test_without_policies_a_verdict_names_what_to_run(mark):
    short = [*RUN, "--duration-s", "60", "--no-reference"]
    found = document(mark(*short, "--json"))
    assert next(iter(found)) == "verdict"
    roles = {one["role"]: one["policy"] for one in found["verdict"]["options"]}
    assert roles == {
        "now": "sagemaker",
        "tuned": "autoscaler-spill",
        "lambda": "lambda-only",
        "mark": "hedged",
    }
    costs = {run["policy"]: run["usd_per_month"] for run in found["runs"] if run["slo"]["attained"] >= 0.98}
    assert roles[found["verdict"]["run"]] == min(costs, key=costs.__getitem__)

    answer = mark(*short, "--now", "static:3", "--policy", "static:3", "--out", "run")
    assert answer.out.rstrip().splitlines()[-1].startswith("Nothing that was replayed keeps 98 %")
    assert "3 instances around the clock: " in answer.out
    page = " ".join(Path("run/report.html").read_text().replace("\u00a0", " ").split())
    assert "3 instances around the clock: " in page
    assert mark(*short, "--now", "eks").status == 2
    on_lambda = document(mark(*short, "--now", "lambda", "--policy", "static:3", "--json"))
    assert {run["policy"] for run in on_lambda["runs"]} == {"static:3", "lambda-only"}, (
        "what was named is replayed"
    )
    assert on_lambda["verdict"]["options"][0]["role"] == "now"
    assert on_lambda["verdict"]["sentence"].startswith("Keep Lambda alone: ")


def test_a_replay_says_from_which_load_ours_pays_as_a_plan_does(mark):
    Path("node.yaml").write_text("rollout: {node: {instance_type: t4g.small}}")
    node = ("--config", "node.yaml")  # one that trains no forecaster may be smaller
    line = ("plan", "--model", "inception-v3", "--rate", "10", *node, "--json")
    planned = json.loads(mark(*line).out)["break_even_rps"]
    rolled_out = ("--set", f"policy.overflow_limits.memory_gib={3008 / 1024}")
    short = [*RUN, "--duration-s", "60", "--policy", "reactive", "--no-reference", *rolled_out, *node]
    assert document(mark(*short, "--json"))["verdict"]["break_even_rps"] == pytest.approx(planned)
    said = f"MArk costs less than Lambda alone from a constant load of {planned:.2g} requests/s on"
    assert said in " ".join(mark(*short, "--out", "run").out.split())
    assert said in " ".join(Path("run/report.html").read_text().replace("\u00a0", " ").split())
    Path("alone.yaml").write_text("offerings: {overflow: false}")
    assert document(mark(*short, "--json", "--config", "alone.yaml"))["verdict"]["break_even_rps"] is None


def test_twice_the_load_is_asked_by_a_factor(mark):
    (once,), (twice,) = runs(mark(*HEDGED, "--json")), runs(mark(*HEDGED, "--scale", "2", "--json"))
    assert twice["requests"] == pytest.approx(2 * once["requests"], rel=0.1)
    assert "rates times 2" in " ".join(twice["notes"])


def test_bounds_and_events_go_by_the_dates_of_a_trace(tmp_path):
    """18:00 of 1 December 2026 is the replay's second 0: an event at 18:10 is its second 600."""
    begins = 1_796_148_000
    lines = "".join(f"{begins + 60 * minute},5.0\n" for minute in range(30))
    (tmp_path / "dated.csv").write_text(f"timestamp_s,rate_rps\n{lines}")
    settings = Settings.model_validate(
        {
            "model": "inception-v3",
            "trace": {"file": str(tmp_path / "dated.csv"), "start_s": 300, "duration_s": 1200},
            "offerings": {"types": ["c5.large"]},
            "forecaster": "last-value",
            "capacity": [{"start": "18:15", "end": "18:20", "min_rps": 40}],
            "events": [
                {"name": "sale", "at": "2026-12-01T18:10", "duration": "5m", "expect": "3x"},
                {"name": "over", "at": "2026-12-01T17:00", "duration": "5m", "expect": "3x"},
            ],
        }
    )
    made = make_experiment(settings)
    assert [(event.name, event.at) for event in made.bundle("hedged").controller.events] == [("sale", 600.0)]
    carried = made.run("hedged").minutes.capacity_rps.sum(axis=1)
    assert carried[11:14].min() >= 40.0  # the replay begins at 18:05
    assert carried[:5].max() < 40.0
    (remark,) = event_remarks(made)
    assert remark == (
        "the event over changes nothing: it begins at 2026-12-01T17:00:00, and the trace goes from "
        "2026-12-01T18:00:00 to 2026-12-01T18:25:00"
    )


def test_an_event_beyond_a_trace_without_dates_is_named(tmp_path):
    write_trace(constant(5.0, duration_s=600.0), tmp_path / "load.csv.gz")
    said = {
        "model": "inception-v3",
        "trace": {"file": str(tmp_path / "load.csv.gz"), "start_s": 300},
        "forecaster": "last-value",
        "events": [
            {"name": "sale", "at": "2026-12-01T18:10", "duration": "5m", "expect": "3x"},
            {"name": "learned", "at": 60, "duration": "1m", "expect": "3x"},
        ],
    }
    (remark,) = event_remarks(make_experiment(Settings.model_validate(said)))
    assert "sale changes nothing: it begins at second 1796148600" in remark
    assert "from second 0 to second 600" in remark


def test_a_replay_of_settings_with_a_rollout_offers_what_that_deploys(tmp_path):
    write_trace(constant(5.0, duration_s=600.0), tmp_path / "load.csv.gz")
    said = {
        "trace": {"file": str(tmp_path / "load.csv.gz"), "start_s": 300},
        "model": "inception-v3",
        "profiles": ["assumed-current"],
    }

    def offered(**more):
        experiment = make_experiment(Settings.model_validate({**said, **more}))
        return {item.instance_type.name for item in experiment.supply.offerings}

    with_gpus = {"machines": [{"accelerator": "nvidia"}]}
    assert "g4dn.xlarge" in offered()
    assert offered(rollout={}) == offered() - {"g4dn.xlarge"}
    assert offered(rollout=with_gpus) == {"g4dn.xlarge"}


def test_the_world_is_typical_unless_another_is_named(mark):
    found = {name: runs(mark(*HEDGED, *flags, "--json"))[0] for name, flags in WORLD_FLAGS.items()}

    assert {name: run["world"] for name, run in found.items()} == dict.fromkeys(
        ["default", "typical"], "typical"
    ) | {"ideal": "ideal"}
    assert without_wall([found["default"]]) == without_wall([found["typical"]])
    assert found["ideal"]["latency_ms"] != found["typical"]["latency_ms"]
    refused = mark(*RUN, "--world", "kind")
    assert refused.status == 2
    assert refused.err == "mark: --world: unknown world 'kind'; known: ideal, rough, typical\n"


def test_the_same_seed_gives_the_same_document_and_every_policy_the_same_arrivals(mark):
    spot = [*RUN, "--policy", "hedged,mark", "--policy", "sagemaker", "--market", "spot", "--interrupt", "4:1"]
    first, again = (runs(mark(*spot, "--seed", "3", "--json")) for _ in range(2))

    assert without_wall(first) == without_wall(again)
    assert [run["policy"] for run in first] == ["hedged", "mark", "sagemaker"]
    assert len({run["requests"] for run in first}) == 1
    assert len({run["reference_usd"] for run in first}) == 1
    assert first[0]["interruptions"] > 0 < first[1]["interruptions"]


def test_flags_override_the_configuration(mark):
    Path("mark.yaml").write_text(
        "model: inception-v3\ntrace: {file: load.csv.gz, start_s: 300}\nseed: 5\npolicies: [reactive, sagemaker]\n"
    )

    (run,) = runs(
        mark("simulate", "--config", "mark.yaml", "--policy", "reactive", "--duration-s", "120", "--json")
    )

    assert (run["policy"], run["seed"], run["duration_s"]) == ("reactive", 5, 120)


def test_the_load_is_scaled(mark):
    (run,) = runs(mark(*RUN, "--policy", "reactive", "--mean-rps", "40", "--json"))

    assert run["requests"] == pytest.approx(40 * 600, rel=0.05)


def test_all_leaves_out_what_cannot_run_and_says_so(mark):
    answer = mark("simulate", "--trace", "load.csv.gz", "--model", "nasnet", "--policy", "all", "--json")

    assert {run["policy"] for run in runs(answer)} == {
        "hedged", "mark", "greedy-oracle", "sagemaker", "sagemaker-fast", "reactive",
    }  # fmt: skip
    assert "each is tuned by replays of the day before; name them" in answer.err
    assert "note: static-peak is left out: " in answer.err
    assert "note: lambda-only is left out: " in answer.err


def test_named_beside_all_it_is_an_error(mark):
    answer = mark("simulate", "--trace", "load.csv.gz", "--model", "nasnet", "--policy", "all,lambda-only")

    assert (answer.status, answer.out) == (2, "")


def test_what_is_tuned_is_run_where_it_is_named_and_says_what_it_was_tuned_to(mark):
    answer = mark(*RUN, "--policy", "autoscaler", "--json")

    (run,) = runs(answer)
    assert run["tuned"]["replays"] == 16
    assert run["tuned"]["load_s"] == 240
    assert any(note.startswith("tuned on the 4 minutes before the run: ") for note in run["notes"])


def test_a_trace_too_short_to_tune_on_is_refused_in_one_line_that_says_what_to_do(mark):
    answer = mark(*RUN[:-2], "--policy", "autoscaler")

    assert (answer.status, answer.out) == (2, "")
    assert answer.err == (
        "mark: autoscaler is tuned on the load before the run, two minutes at least: give a --start-s of 120 or "
        "more, or a longer trace\n"
    )


@pytest.mark.usefixtures("drawn")
def test_without_json_a_table_and_where_the_report_is_and_an_earlier_runs_journals_do_not_stay(mark):
    answer = mark(*RUN, "--duration-s", "120", "--policy", "mark,reactive", "--out", "run")

    assert answer.status == 0
    assert "report: run/report.html" in answer.out
    assert "reactive" in answer.out
    assert "<svg" in Path("run/report.html").read_text()
    assert [run["policy"] for run in json.loads(Path("run/runs.json").read_text())["runs"]] == ["mark", "reactive"]
    assert Path("run/journal.jsonl").stat().st_size > 1000
    assert Path("run/reactive/journal.jsonl").stat().st_size > 1000

    mark(*RUN, "--duration-s", "60", "--policy", "sagemaker", "--out", "run")

    assert not Path("run/reactive/journal.jsonl").exists()
    assert mark("explain", "run").out.startswith("sagemaker")


def test_replaced_parts_are_told(mark):
    first, second = runs(
        mark(
            *RUN,
            "--policy",
            "mark,greedy-oracle",
            "--forecaster",
            "last-value",
            "--dispatch",
            "least-finish",
            "--json",
        )
    )

    assert "forecaster last-value instead of the policy's own" in first["notes"]
    assert not [note for note in second["notes"] if note.startswith("forecaster")]
    assert all("dispatch least-finish instead of the policy's own" in run["notes"] for run in (first, second))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_journal_and_not_the_runs(mark):
    Path("run").mkdir()
    Path("run/journal.jsonl").symlink_to("/dev/full")

    answer = mark(*RUN, "--policy", "mark,reactive", "--out", "run", "--json")

    assert answer.status == 2
    assert [run["policy"] for run in json.loads(answer.out)["runs"]] == ["mark", "reactive"]
    assert answer.err.count("\n") == 1
    assert "No space left on device" in answer.err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(Misconfigured("cannot write run/report.html"), 2, "mark: cannot write run/report.html\n"),
     (KeyboardInterrupt(), INTERRUPTED, "")],
)  # fmt: skip
def test_a_report_that_is_not_written_loses_no_figures_and_is_not_named(mark, monkeypatch, error, status, said):
    def broken(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(out_folder, "write_report", broken)

    answer = mark(*RUN, "--policy", "reactive", "--out", "run")

    assert answer.status == status
    assert "reactive" in answer.out
    assert "report:" not in answer.out
    assert answer.err.endswith(said)


def test_a_policy_that_fails_in_the_middle_loses_nothing_before_it(mark):
    Path("late.py").write_text("class Late:\n    def __init__(self, setup): raise ValueError('no')\n")

    answer = mark(*RUN, "--policy", "greedy-oracle,mark", "--forecaster", "late.py:Late", "--json")

    assert answer.status == 2
    assert [run["policy"] for run in json.loads(answer.out)["runs"]] == ["greedy-oracle"]
    assert "late.py:Late" in answer.err


def test_an_unexpected_error_in_the_middle_is_raised_after_what_is_finished_was_printed(mark, monkeypatch, capsys):
    whole = Experiment.run

    def broken(self, policy, **given):
        if policy == "sagemaker":
            raise ZeroDivisionError("a defect")
        return whole(self, policy, **given)

    monkeypatch.setattr(Experiment, "run", broken)

    with pytest.raises(ZeroDivisionError, match="a defect"):
        mark(*RUN, "--policy", "greedy-oracle,sagemaker,reactive", "--json")

    assert [run["policy"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["greedy-oracle"]


def test_policy_settings_change_our_own_policies_and_the_notes_say_so(mark):
    Path("mark.yaml").write_text(
        "policy:\n"
        "  lead_min: 3\n"
        "  monitor: {requests: 500, instance_type: c5.xlarge}\n"
        "  overflow_limits: {concurrency: 40}\n"
        "  managed: {cpu: 1.5}\n"
    )
    command = [*RUN, "--policy", "greedy-oracle,sagemaker,reactive", "--json"]

    usual, tuned = runs(mark(*command)), runs(mark(*command, "--config", "mark.yaml"))

    told = [[note for note in run["notes"] if note.startswith("policy.")] for run in (*usual, *tuned)]
    assert told == [
        [], [], [],
        [
            "policy.lead_min is 3 instead of 5",
            "policy.monitor.requests is 500 instead of 1,000",
            "policy.monitor.instance_type is c5.xlarge instead of c5.large",
            "policy.overflow_limits.concurrency is 40 instead of 1000",
        ],
        ["policy.managed.cpu is 1.5 instead of 1.2"],
        [],
    ]  # fmt: skip
    dear = usual[1]["cost_usd"]["instances"] / 1.2 * 1.5
    assert tuned[1]["cost_usd"]["instances"] == pytest.approx(dear)
    assert tuned[2]["cost_usd"] == usual[2]["cost_usd"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("c5.larg", "unknown instance type 'c5.larg'; did you mean 'c5.large'?"),
        ("c5.xlarge", "unknown instance type in policy.monitor 'c5.xlarge'; did you mean 'c5.large'?"),
    ],
)
def test_a_monitor_cannot_launch_what_is_not_offered(mark, name, said):
    Path("mark.yaml").write_text(f"policy: {{monitor: {{instance_type: {name}}}}}\n")

    answer = mark(*RUN, "--policy", "mark", "--types", "c5.large", "--config", "mark.yaml")

    assert answer.status == 2
    assert said in answer.err


def test_what_lambda_refused_is_counted_and_noted(mark):
    Path("mark.yaml").write_text("policy: {overflow_limits: {concurrency: 5, burst: 5}}\n")

    (run,) = runs(mark(*RUN, "--policy", "lambda-only", "--config", "mark.yaml", "--json"))
    (usual,) = runs(mark(*RUN, "--policy", "lambda-only", "--json"))

    assert (usual["throttled"], run["throttled"] > 0) == (0, True)
    said = f"Lambda refused {run['throttled']:,} calls: a model may have 3 at once, or 5 new environments in 10 s"
    assert said in run["notes"]
    assert run["served"]["shed"] > 0.001 * run["requests"]
    assert any(note.startswith("sheds ") and note.endswith(" %, more than 0.1 %") for note in run["notes"])
    assert not [note for note in usual["notes"] if "refused" in note or "sheds" in note]


def test_ctrl_c_prints_what_is_finished(mark):
    """The second policy's forecaster is interrupted, in the middle of a run."""
    Path("stop.py").write_text(
        "from mark.predictors.naive import LastValue\n"
        "class Stop(LastValue):\n"
        "    calls = 0\n"
        "    def forecast(self, history, horizon):\n"
        "        self.calls += 1\n"
        "        if self.calls == 3:\n"
        "            raise KeyboardInterrupt\n"
        "        return super().forecast(history, horizon)\n"
    )
    command = [*RUN, "--json", "--out", "run", "--policy", "greedy-oracle,mark,reactive"]
    done = mark(*command, "--forecaster", "stop.py:Stop")

    assert done.status == INTERRUPTED
    assert [run["policy"] for run in json.loads(done.out)["runs"]] == ["greedy-oracle"]
    assert done.err == "note: interrupted: 1 of 3 policies finished\n"
    assert Path("run/report.html").exists()


@pytest.mark.usefixtures("drawn")
def test_a_trace_of_zeros_is_replayed_without_a_word_of_the_plots(mark):
    zeros = "".join(f"{second},0\n" for second in range(300))
    Path("zeros.csv").write_text(f"timestamp_s,rate_rps\n{zeros}")
    answer = mark(
        "simulate",
        "--trace",
        "zeros.csv",
        "--model",
        "inception-v3",
        "--policy",
        "lambda-only,reactive",
        "--out",
        "out",
    )

    assert answer.status == 0
    assert "legend" not in answer.err
    assert "100" not in answer.out.split("─\n")[-1].split("- No")[0]


def test_what_a_floor_buys_is_told_beside_the_most_accurate_variant_alone(mark):
    line = [*RUN, "--model", "supernet", "--policy", "reactive", "--no-reference"]
    said = mark(*line, "--accuracy-floor", "0.97", "--out", "run")
    (run,) = json.loads(Path("run/runs.json").read_text())["runs"]
    alone = run["most_accurate"]
    fixed = f"fixed:{alone['variant']}"
    (same,) = runs(mark(*line, "--dispatch", fixed, "--json"))

    assert same["most_accurate"] is None
    assert (alone["accuracy"], alone["cost_usd"], alone["attained"]) == (
        same["accuracy"],
        same["cost_usd"],
        same["slo"]["attained"],
    )
    assert run["accuracy"] <= alone["accuracy"]
    assert f"with {alone['variant']} alone it would have answered" in " ".join(said.out.split())
    assert f"with {alone['variant']} alone it would have answered" in Path("run/report.html").read_text()


def test_one_queue_for_variants_says_what_its_replay_leaves_out(mark):
    line = [*RUN, "--model", "supernet", "--policy", "reactive", "--json"]
    for rule in ("slackfit", "central:slackfit"):
        (run,) = runs(mark(*line, "--dispatch", rule))
        assert any("its next batch at once" in text for text in run["notes"]) == rule.startswith("central")


def test_instances_weigh_quality_where_the_rule_says_so(mark):
    line = [*RUN, "--model", "supernet", "--policy", "reactive", "--json"]
    found = {rule: runs(mark(*line, "--dispatch", rule))[0] for rule in ("qos-fixed", "qos-heuristic", "slackfit")}
    for run in found.values():
        assert 0 < run["quality"] <= run["accuracy"] <= 1
    Path("strict.yaml").write_text("objective: {soft_deadline_ms: 0.5, hard_deadline_ms: 1}")
    (strict,) = runs(mark(*line, "--dispatch", "qos-fixed", "--config", "strict.yaml"))
    assert strict["quality"] < found["qos-fixed"]["quality"]
    Path("wrong.yaml").write_text("objective: {soft_deadline_ms: 5, hard_deadline_ms: 5}")
    refused = mark(*line, "--config", "wrong.yaml")
    assert (refused.status, "objective.hard_deadline_ms" in refused.err) == (2, True)
    (plain,) = runs(mark(*RUN, "--policy", "reactive", "--json"))
    assert plain["quality"] is None


def test_explain_counts_the_instances_that_the_table_counts(mark):
    said = mark(*RUN, "--policy", "reactive", "--world", "rough", "--no-reference", "--out", "run", "--json")
    (one,) = runs(said)
    explained = json.loads(mark("explain", "run", "--json").out)
    assert one["launches"] == sum(explained["launched"].values()) > 0


def test_own_prices_are_billed_and_plan_as_before_where_all_move_alike(mark):
    Path("plain.yaml").write_text("offerings: {overflow: false}")
    Path("own.yaml").write_text("offerings: {overflow: false}\naccount: {price_overlays: [{adjust: -25%}]}")
    short = [*RUN, "--duration-s", "600", "--policy", "mark,sagemaker", "--no-reference", "--json"]
    (plain, managed), (own, still) = (
        [run["cost_usd"] for run in runs(mark(*short, "--config", name))] for name in ("plain.yaml", "own.yaml")
    )
    assert still == managed  # SageMaker has prices of its own
    assert own["instances"] == pytest.approx(0.75 * plain["instances"])
    assert 0 < own["overhead"] < plain["overhead"]
