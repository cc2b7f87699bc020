"""A user's own policy or dispatch rule: replayed beside the shipped ones, refused or kept going where it fails."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark import api
from mark.config.settings import Settings
from mark.domain.errors import PlanInfeasible
from mark.offline.experiments import line_up, make_experiment
from mark.offline.sweep.keys import forecaster_digest
from mark.plugins import load
from mark.policies.own_policy import OwnPlanner, plan_of_counts
from tests.offline.test_simulate import RUN, document
from tests.planner.builders import offering, request
from tests.test_api import same

SHORT = [*RUN, "--duration-s", "300", "--no-reference"]
A, B = "a:on-demand", "b:on-demand"
ASKED = request([5.0], (offering("a"), offering("b", rps=5.0)), running={A: 2})
FAILS_LATER = """
class Fails:
    def __init__(self):
        unknown = [{f"n{number}": 1} for number in range(9)]
        self.answers = iter([{}, [1], {"nix": 1}, {"FIRST": -1}, {"FIRST": 1.5}, {}, *unknown])
    def plan(self, request):
        first = request.offerings[0].name
        answer = next(self.answers)
        return answer if isinstance(answer, list) else {first if n == "FIRST" else n: c for n, c in answer.items()}
"""


@pytest.fixture
def written(mark) -> Path:
    assert mark("init", "policy").status == 0
    return Path("policy.py")


def test_the_template_is_an_hpa_of_30_lines_and_runs_beside_the_rivals(mark, written):
    assert len(written.read_text().splitlines()) <= 30
    Path("run").mkdir()
    name = f"../{Path.cwd().name}/policy.py:HPA"
    before = set(Path("..").iterdir())
    answer = mark(*SHORT, "--policy", f"hedged,reactive,{name}", "--out", "run", "--json")

    hedged, reactive, own = document(answer)["runs"]
    assert [hedged["policy"], reactive["policy"], own["policy"]] == ["hedged", "reactive", name]
    assert own["slo"]["attained"] > 0.99
    assert own["cost_usd"]["total"] < 2 * reactive["cost_usd"]["total"]
    assert set(Path("..").iterdir()) == before
    assert len(list(Path("run").glob("*/journal.jsonl"))) == 2
    told = mark("explain", "run", "--policy", name)
    assert (told.status, "the policy's own: " in told.out) == (0, True), told.err
    assert "the same orders at every tick" in told.out
    assert mark("init", "policy").status == 2


def test_python_replays_it_as_the_command_does(mark, written):
    answer = mark(*SHORT, "--policy", f"{written}:HPA", "--json")
    options = {"model": "inception-v3", "start_s": 300, "duration_s": 300, "reference": False}

    runs = api.simulate("load.csv.gz", policies=[f"{written}:HPA"], **options)
    assert same(runs, answer)
    assert "your own policy (policy.py:HPA)" in runs.verdict


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "class P:\n def plan(self, request): return None",
            "failed at its first plan: TypeError: it returned a None",
        ),
        (
            "class P:\n def plan(self, request): exit(3)",
            "failed at its first plan: RuntimeError: it called exit(3)",
        ),
        ("class P: pass", "made a P without a method plan(request)"),
        (
            "class P:\n period_s = 0\n def plan(self, request): return {}",
            "period_s must be 5 to 3600 seconds, not 0",
        ),
        ("class Q: pass", "unknown policy in mine.py 'P'"),
        ("1 / 0", "does not load: ZeroDivisionError"),
    ],
)
def test_what_fails_at_once_is_one_line(mark, text, told):
    Path("mine.py").write_text(text)
    answer = mark(*SHORT, "--policy", "mine.py:P,hedged")

    assert (answer.status, answer.out) == (2, "")
    assert told in answer.err
    assert answer.err.count("\n") == 1


def test_what_fails_later_keeps_the_last_plan_and_is_noted(mark):
    Path("mine.py").write_text(FAILS_LATER)
    (run,) = document(mark(*SHORT[:-2], "600", SHORT[-1], "--policy", "mine.py:Fails", "--json"))["runs"]

    noted = [note for note in run["notes"] if note.startswith("plan-failed: own policy: ")]
    assert len(noted) == 5
    assert "forecasts, plans or decisions failed 3 times more, in other ways" in run["notes"]
    assert run["launches"] == 0


def test_what_is_late_is_not_waited_for(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import threading\ngo = threading.Event()\nclass P:\n n = 0\n"
        " def plan(self, request):\n  self.n += 1\n  self.n == 1 or go.wait()\n  return {}\n"
    )
    planner = OwnPlanner(f"{tmp_path / 'slow.py'}:P", deadline_s=0.05)
    assert planner(ASKED).counts == ()
    for told in (r"no plan within 0\.05 s", "late before is not done yet"):
        with pytest.raises(PlanInfeasible, match=told):
            planner(ASKED)
    planner._policy.plan.__globals__["go"].set()
    planner.close()


@given(st.dictionaries(st.sampled_from([A, B]), st.integers(0, 9)))
def test_a_plan_has_what_the_policy_asked_for(counts):
    plan = plan_of_counts(ASKED, counts)

    assert {item.offering: item.count for item in plan.counts} == {name: n for name, n in counts.items() if n}
    assert plan.capacity_rps == 10.0 * counts.get(A, 0) + 5.0 * counts.get(B, 0)
    assert sum(item.kept for item in plan.counts) == min(2, counts.get(A, 0))
    assert {item.offering for item in (*plan.counts, *plan.excuses)} == {A, B}


def test_packages_have_short_names_and_settings_count_from_their_file(mark, written, monkeypatch):
    package = Path("site/my_hpas")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(written.read_text())
    monkeypatch.syspath_prepend("site")
    entry, ours = EntryPoint("my-hpa", "my_hpas:HPA", load.POLICIES), load.entry_points
    monkeypatch.setattr(load, "entry_points", lambda group: [entry] if group == load.POLICIES else ours(group))
    Path("site/mark.yaml").write_text("policies: [../policy.py:HPA]\n")

    assert "my-hpa" in mark("policies").out
    settings = Settings(model="inception-v3", policies=("all", f"{written}:HPA"), trace={"file": "load.csv.gz"})
    assert line_up(settings, make_experiment(settings)).policies[-1] == f"{written}:HPA"
    (short,) = document(mark(*SHORT, "--policy", "my-hpa", "--json"))["runs"]
    filed, *_ = document(mark(*SHORT, "--config", "site/mark.yaml", "--json"))["runs"]
    assert short["cost_usd"] == filed["cost_usd"]
    first = forecaster_digest(f"{written}:HPA", load.load_policy)
    written.write_text(written.read_text() + "\n")
    forecaster_digest.cache_clear()
    assert forecaster_digest(f"{written}:HPA", load.load_policy) != first


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("policies: [policy.py:HPA]", "policy.py:HPA is an own policy, which only replays run"),
        ("dispatch: policy.py:Rule", "policy.py:Rule is an own dispatch rule, which only replays run"),
    ],
)
def test_live_it_is_refused(mark, written, named, told):
    served = "{model: resnet-50, backend: {kind: emulated}, expected_rps: 1}"
    Path("mark.yaml").write_text(f"{named}\nservice: {{serve: [{served}]}}")
    answer = mark("up", "--config", "mark.yaml")

    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert told in answer.err


def test_a_dispatch_rule_is_replayed_on_kairos_pool_beside_other_policies(mark):
    assert mark("init", "dispatch").status == 0
    assert len(Path("dispatch.py").read_text().splitlines()) <= 30
    pool = ["--model", "rm2", "--pool-usd-per-hour", "0.9", "--slo-ms", "370", "--types", "g4dn.xlarge,r5n.large"]
    line = [*RUN, "--duration-s", "60", "--no-reference", *pool, "--world", "ideal"]

    def run(rule, policies="kairos"):
        return mark(*line, "--policy", policies, "--dispatch", rule, "--json")

    first, own = (document(run(rule))["runs"][0] for rule in ("fcfs", "dispatch.py:SlowestInTime"))
    assert own["cost_usd"] == first["cost_usd"]
    assert own["slo"]["attained"] > first["slo"]["attained"]
    Path("late.py").write_text(
        "class Rule:\n n = -2\n"
        " def assign(self, waiting):\n  self.n += 1\n  return [self.n] * waiting.size.size\n"
        "class First:\n def assign(self, waiting): return []\nclass Nothing: pass\n"
        "class Idle:\n def assign(self, waiting): return [-1] * waiting.size.size\n"
    )
    starved = document(run("late.py:Idle"))["runs"][0]
    assert starved["served"]["shed"] > 0.9 * sum(starved["served"].values())
    assert starved["slo"]["attained"] == 0.0
    failing, beside = document(run("late.py:Rule", "kairos,reactive"))["runs"]
    assert any(note.startswith("decision-failed: ValueError: it returned ") for note in failing["notes"])
    assert not any("dispatch" in note for note in beside["notes"])
    for name, told in (
        (
            "First",
            "failed at its first decision: TypeError: it returned float64 of shape (0,), not 1 whole numbers",
        ),
        ("Nothing", "made a Nothing without a method assign(waiting)"),
        ("Ruel", "unknown dispatch rule in late.py 'Ruel'; did you mean 'Rule'?"),
    ):
        answer = run(f"late.py:{name}")
        assert (answer.status, answer.err.count("\n")) == (2, 1)
        assert told in answer.err
