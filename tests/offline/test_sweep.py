from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mark.cli.main import INTERRUPTED
from mark.offline.sweep import engines
from mark.offline.sweep.engines import Results
from mark.offline.sweep.job import SweepJob, attempt
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import Trace, write_trace
from tests.waiting import PATIENCE_S

LOAD = ["--model", "inception-v3", "--trace", "load.csv.gz", "--start-s", "300", "--duration-s", "120"]
SWEEP = ["sweep", *LOAD, "--out", "grid"]
ONE_WORKER = ["--workers", "1"]


class Here:
    """An engine without processes; it remembers what it was asked to do."""

    def __init__(self) -> None:
        self.jobs: list[SweepJob] = []

    def run(self, jobs: Sequence[SweepJob], traces: Mapping[str, Trace]) -> Results:
        self.jobs += jobs
        for job in jobs:
            yield attempt(job, traces[job.trace])


@pytest.fixture
def here(monkeypatch) -> Here:
    engine = Here()
    monkeypatch.setattr(engines, "make_engine", lambda *_args, **_kwargs: engine)
    return engine


def document(answer, status: int = 0) -> dict:
    assert answer.status == status, answer.err
    return json.loads(answer.out)


@pytest.mark.usefixtures("here", "drawn")
def test_a_grid_agrees_with_simulate_and_is_not_run_again(mark):
    grid = [*SWEEP, "--policy", "mark,reactive", "--set", "policy.lead_min=3,5", "--json"]

    first_answer = mark(*grid)
    first = document(first_answer)
    min(Path("grid/cells").iterdir()).unlink()
    again_answer = mark(*grid)
    again = document(again_answer)
    untouched = mark(*grid)

    rows = {(row["policy"], row["settings"].get("policy.lead_min")) for row in first["rows"]}
    assert rows == {("mark", 3), ("mark", 5), ("reactive", None)}
    (single,) = json.loads(mark("simulate", *LOAD, "--policy", "reactive", "--json").out)["runs"]
    (cell,) = (cell for cell in first["cells"] if cell["policy"] == "reactive")
    for key in (
        "cost_usd",
        "slo",
        "served",
        "reference_usd",
        "floor_usd",
        "cost_over_reference",
        "cost_over_floor",
    ):
        assert cell[key] == single[key]
    told = [line for line in first_answer.err.splitlines() if not line.startswith("note: compiling ")]
    assert len(told) == 4  # three replays and one load's yardsticks
    assert again_answer.err.count("\n") == 2
    assert again_answer.err.startswith("note: 3 of 4 replays and yardsticks are there already\n[4/4] load ")
    assert again["rows"] == first["rows"]
    assert document(untouched)["rows"] == first["rows"]
    assert untouched.err == "note: 4 of 4 replays and yardsticks are there already\n"
    assert json.loads(Path("grid/sweep.json").read_text()) == document(untouched)
    page = Path("grid/sweep.html").read_text()
    assert "<svg" in page
    assert "No assumed profiles: all are measured or published." in page


def test_a_worker_that_dies_is_reported_and_the_others_go_on(mark, monkeypatch):
    Path("die.py").write_text(
        "import os, signal\n"
        "from pathlib import Path\n"
        "from mark.predictors.naive import LastValue\n"
        "class Die(LastValue):\n"
        "    def forecast(self, history, horizon):\n"
        "        if not Path('live').exists():\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().forecast(history, horizon)\n"
    )
    grid = [*SWEEP, "--policy", "mark", "--set", "forecaster=die.py:Die,last-value", *ONE_WORKER]

    answer = mark(*grid, "--json")
    Path("live").touch()
    monkeypatch.setattr(engines, "make_engine", lambda *_args, **_kwargs: Here())
    later = mark(*grid, "--json")

    found = document(answer, 1)
    assert found["failed"] == [
        {
            "label": "load mark forecaster=die.py:Die seed=0",
            "reason": "its worker was ended by SIGKILL; out of memory?",
        }
    ]
    assert [row["settings"] for row in found["rows"]] == [{"forecaster": "last-value"}]
    assert "note: 1 of 3 jobs failed; the same command tries them again" in answer.err
    assert len(document(later)["rows"]) == 2
    assert later.err.count("\n") == 2  # what is there already, and the one that died


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_at_once_and_keeps_what_is_finished(mark, tmp_path):
    Path("stop.py").write_text(
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from mark.predictors.naive import LastValue\n"
        "class Stop(LastValue):\n"
        "    def forecast(self, history, horizon):\n"
        "        Path('worker').write_text(str(os.getpid()))\n"
        "        os.kill(os.getppid(), signal.SIGINT)\n"
        "        time.sleep(600)\n"
    )
    program = [sys.executable, "-c", "from mark.cli.main import main; main()"]

    done = subprocess.run(  # noqa: S603 - our own program
        [
            *program,
            *SWEEP,
            "--policy",
            "mark",
            "--set",
            "forecaster=last-value,stop.py:Stop",
            *ONE_WORKER,
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` ignores it
    )

    assert done.returncode == INTERRUPTED, done.stderr
    assert [row["settings"] for row in json.loads(done.stdout)["rows"]] == [{"forecaster": "last-value"}]
    assert done.stderr.endswith(
        "note: interrupted: 1 of 2 replays finished; the same command goes on from there\n"
    )
    assert "Traceback" not in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("worker").read_text()), 0)


def test_yardsticks_are_computed_once_a_load(mark, here):
    found = document(
        mark(*SWEEP, "--policy", "mark,sagemaker", "--set", "policy.lead_min=3,5", "--seed", "1,2", "--json")
    )

    loads = [job for job in here.jobs if job.policy is None]
    assert len(loads) == 2  # one a seed
    assert len(here.jobs) == 2 + 2 * 3
    assert all(cell["cost_over_reference"] >= 1 for cell in found["cells"])
    assert len({cell["reference_usd"] for cell in found["cells"] if cell["seed"] == 1}) == 1


def test_what_makes_no_difference_to_a_baseline_is_not_run(mark, here):
    grid = ["--policy", "mark,sagemaker", "--market", "on-demand,spot", "--set", "policy.cooldown_min=3,6"]
    found = document(mark(*SWEEP, *grid, "--json"))

    assert [job.policy for job in here.jobs].count("sagemaker") == 1
    (row,) = (row for row in found["rows"] if row["policy"] == "sagemaker")
    assert row["settings"] == {}
    assert len({tuple(row["settings"].items()) for row in found["rows"] if row["policy"] == "mark"}) == 4


def test_what_is_asked_has_a_front_of_its_own(mark, here):
    write_trace(constant(30, duration_s=900, seed=2), Path("other.csv.gz"))
    found = document(
        mark(
            *SWEEP, "--trace", "other.csv.gz", "--policy", "reactive", "--set", "objective.latency_ms=600,800",
            "--set", "objective.target=0.9,0.98", "--json",
        )
    )  # fmt: skip

    groups = {row["group"] for row in found["rows"]}
    assert groups == {f"{name}, latency_ms {ms}" for name in ("load", "other") for ms in (600, 800)}
    assert all(any(row["on_front"] for row in found["rows"] if row["group"] == group) for group in groups)
    assert {row["settings"]["objective.target"] for row in found["rows"]} == {0.9, 0.98}


def test_an_oracle_is_shown_beside_the_front(mark, here):
    found = document(mark(*SWEEP, "--policy", "greedy-oracle,mark", "--json"))

    assert {row["policy"]: (row["foreseeing"], row["on_front"]) for row in found["rows"]} == {
        "greedy-oracle": (True, False),
        "mark": (False, True),
    }


def test_any_policy_whose_forecaster_is_told_the_load_to_come_is_no_choice(mark, here):
    Path("mine.py").write_text("from mark.predictors.oracle import Oracle as Mine\n")
    found = document(mark(*SWEEP, "--policy", "greedy-oracle,mark", "--set", "forecaster=mine.py:Mine", "--json"))

    assert {row["policy"]: row["foreseeing"] for row in found["rows"]} == {"greedy-oracle": True, "mark": True}


def test_a_forecaster_that_fails_on_every_tick_wins_nothing(mark, here):
    Path("bad.py").write_text(
        "class Raises:\n    def __init__(self, setup): ...\n    def forecast(self, history, horizon): exit(3)\n"
    )
    answer = mark(*SWEEP, "--policy", "mark", "--set", "forecaster=bad.py:Raises,last-value")

    assert answer.status == 0, answer.err
    assert "Cheapest that keeps its objective: mark, forecaster last-value:" in answer.out
    rows = {row["settings"]["forecaster"]: row for row in json.loads(Path("grid/sweep.json").read_text())["rows"]}
    bad, good = rows["bad.py:Raises"], rows["last-value"]
    assert bad["serving_usd"] == good["serving_usd"], "the node of one that may train is larger"
    assert (bad["on_front"], good["on_front"], good["stood_in"]) == (False, True, 0)
    assert bad["stood_in"] == bad["forecasts"] == good["forecasts"] > 0
    said = f"last-value stood in {bad['stood_in']} of {bad['forecasts']} times"
    assert said in answer.out
    assert said in Path("grid/sweep.html").read_text()


def test_another_load_or_setting_is_another_replay(mark, here):
    mark(*SWEEP, "--policy", "reactive")
    mark(*SWEEP, "--policy", "reactive", "--duration-s", "60")
    write_trace(constant(21, duration_s=900, seed=1), Path("load.csv.gz"))
    mark(*SWEEP, "--policy", "reactive")

    assert len({job.key for job in here.jobs}) == 6
    mark(*SWEEP, "--policy", "reactive")
    assert len(here.jobs) == 6


def test_a_torn_result_is_computed_again(mark, here):
    mark(*SWEEP, "--policy", "reactive")
    (cell,) = Path("grid/cells").iterdir()
    cell.write_text(cell.read_text()[:100])

    assert len(document(mark(*SWEEP, "--policy", "reactive", "--json"))["rows"]) == 1
    assert [job.policy for job in here.jobs].count("reactive") == 2


def test_a_failing_replay_is_one_line_and_the_others_go_on(mark, here):
    Path("late.py").write_text("class Late:\n    def __init__(self, setup): raise ValueError('no\\nsuch')\n")
    answer = mark(*SWEEP, "--policy", "mark", "--set", "forecaster=late.py:Late,last-value")

    assert answer.status == 1
    assert "forecaster=late.py:Late seed=0: forecaster '" in answer.out
    assert "late.py:Late' does not load: ValueError: no such" in answer.out
    assert "Cheapest that keeps its objective: mark, forecaster last-value:" in answer.out
    assert "What did not run" in Path("grid/sweep.html").read_text()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_result_that_cannot_be_written_ends_the_sweep(mark, here):
    Path("grid").mkdir()
    Path("grid/cells").symlink_to("/proc/self")
    answer = mark(*SWEEP, "--policy", "reactive")

    assert answer.status == 2
    assert answer.err.splitlines()[-1].startswith("mark: cannot write ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "policy.lead_mni=3"], "unknown setting 'policy.lead_mni'; did you mean 'policy.lead_min'?"),
        (["--set", "policy.lead_min"], "must read SETTING=VALUE,VALUE"),
        (["--set", "policy.lead_min=[3"], "cannot be read as values with commas between them"),
        (["--set", "policy.lead_min=3,99"], "--set policy.lead_min should be less than 60, not 99"),
        (["--set", "policy.lead_min=3", "--set", "policy.lead_min=5"], "policy.lead_min is given twice"),
        (["--set", "market=spot", "--market", "spot"], "market is given twice"),
        (["--set", "trace.file=x"], "has a flag of its own: --trace"),
        (["--set", "service.port=1"], "no replay depends on it"),
        (
            ["--seed", "1," * 400, "--set", f"policy.lead_min={'3,' * 400}"],
            "a grid of 160,000 combinations is too large",
        ),
        (["--seed", "1,x"], "--seed should be a whole number"),
        (["--policy", "mark,sagemakr"], "did you mean 'sagemaker'?"),
        (["--market", "on-demand,spto"], "did you mean 'spot'?"),
        (["--set", "objective.latency_ms=600,10"], "objective.latency_ms=10.0: nothing can serve inception-v3"),
        (["--start-s", "0", "--policy", "reactive,static-peak"], "give a --start-s above 0"),
        (["--trace", "none.csv"], "no such trace file"),
        (["--engine", "rya"], "unknown engine 'rya'; did you mean 'ray'?"),
        (["--engine", "ray", "--workers", "2"], "--workers counts local processes"),
        (["--address", "auto"], "add --engine ray"),
        (["--out", "load.csv.gz"], "it is not a folder"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(mark, arguments, said):
    answer = mark(*SWEEP, *arguments)

    assert answer.status == 2
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert not list(Path().glob("grid/*/*.json"))


def test_without_a_folder_or_a_trace_it_says_so(mark):
    assert "name a folder with --out" in mark("sweep", *LOAD).err
    assert "name a trace with --trace" in mark("sweep", "--model", "inception-v3", "--out", "grid").err


def test_without_ray_it_says_how_to_get_it(mark, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    answer = mark(*SWEEP, "--engine", "ray")

    assert (answer.status, answer.err) == (2, "mark: --engine ray needs ray: pip install 'mark-serving[ray]'\n")
