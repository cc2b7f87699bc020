"""`mark qos`: a policy is trained, judged beside the others, and refused where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mark.simulator.qos.checkpoint import checkpoint_bytes, read_checkpoint
from mark.studies.fang.published import pool_of
from tests.cli.test_bad_input import refused

TRACE = ["--trace", "waves.csv", "--qps", "25"]
SHORT = ["--jobs", "1", "--job-s", "20"]


@pytest.fixture
def waves(mark):
    Path("plan.yaml").write_text("dispatch: qos-rl")
    rates = 50 + 10 * np.sin(np.arange(2 * 1440) / 229)
    lines = "".join(f"{60 * i},{rate:.3f}\n" for i, rate in enumerate(rates))
    Path("waves.csv").write_text(f"timestamp_s,rate_rps\n{lines}")


def test_a_policy_is_trained_and_judged_beside_the_others(mark, waves):
    trained = mark("qos", "train", *TRACE, "--iterations", "1", "--job-s", "10", "--json")
    assert trained.status == 0, trained.err
    document = json.loads(trained.out)
    assert document["iterations"] == len(document["lost"]) == 1
    assert Path(document["policy"]).is_file()
    for scheduler in ("qos-fixed", "qos-heuristic", "qos-rl"):
        judged = mark("qos", "evaluate", *TRACE, *SHORT, "--scheduler", scheduler, "--json")
        assert judged.status == 0, judged.err
        found = json.loads(judged.out)
        assert found["scheduler"] == scheduler
        assert 0 < found["quality"] <= 1
        assert 0 <= found["small_percent"] <= 100
    text = mark("qos", "evaluate", *TRACE, *SHORT)
    assert "qos-rl: quality" in text.out
    again = mark("qos", "train", *TRACE, "--iterations", "1", "--job-s", "10")
    assert "1 iterations on 1 days" in again.out
    slower = mark("qos", "evaluate", "--trace", "waves.csv", "--qps", "20", *SHORT, "--json")
    assert json.loads(slower.out)["qps"] == 20
    assert "trained at 25 queries/s, judged at 20" in slower.err
    other = ["--pool", "g2.2xlarge=1"]
    assert "was trained for the pool p2.xlarge=1" in refused(mark("qos", "evaluate", *TRACE, *SHORT, *other))


def test_a_policy_of_a_models_instances_serves_in_a_replay(mark, waves):
    own = ["--model", "supernet", "--trace", "waves.csv", "--accuracy-floor", "0.97"]
    train = ["qos", "train", *own, "--qps", "900", "--iterations", "1", "--job-s", "0.5"]
    assert mark(*train).status == 0
    judged = mark("qos", "evaluate", *own, "--qps", "900", "--jobs", "1", "--job-s", "1", "--json")
    assert judged.status == 0, judged.err
    assert json.loads(judged.out)["pool"] == {"c5.large": 1}

    replay = ["simulate", *own, "--policy", "reactive", "--start-s", "600", "--duration-s", "300"]
    served = mark(*replay, "--dispatch", "qos-rl", "--json")
    (learned,) = json.loads(served.out)["runs"]
    assert 0 < learned["quality"] <= learned["accuracy"] <= 1
    trained_on = "the policy of qos-rl was trained on 1 day of this replay"
    assert any(trained_on in text for text in learned["notes"])
    later = mark(*replay, "--dispatch", "qos-rl", "--start-s", "90000", "--json")
    assert trained_on not in later.out
    with np.load("qos-policy.npz") as found:
        parts = dict(found)
    parts["best_least"][:], parts["best_most"][:] = -np.inf, np.inf  # any state is one that it has learned from
    parts["best_outer_bias"][1] = 1e9  # batches of one, by the least accurate variant that may answer
    np.savez("mine.npz", **parts)
    Path("qos-policy.npz").unlink()
    again = mark(*replay, "--dispatch", "qos-rl", "--qos-policy", "mine.npz", "--json")
    assert json.loads(again.out)["runs"][0]["accuracy"] == pytest.approx(0.972222) != learned["accuracy"]

    missing = refused(mark(*replay, "--dispatch", "qos-rl"))
    assert "make one with `mark qos train --model supernet`" in missing
    stricter = [*replay, "--dispatch", "qos-rl", "--qos-policy", "mine.npz", "--accuracy-floor", "0.98"]
    assert "was trained for other variants, or other times of batches" in refused(mark(*stricter))
    assert "--pool c5.large=1, or leave it out" in refused(mark(*train, "--pool", "c5.large=2"))
    nothing = ["simulate", "--trace", "waves.csv", "--model", "inception-v3", "--dispatch", "qos-rl"]
    assert "has no variants" in refused(mark(*nothing))
    assert "needs a policy, which `mark simulate` and `mark up` read" in refused(
        mark("plan", "--config", "plan.yaml", "--model", "supernet", "--rate", "50")
    )


def write_days(name: str, *phases: float) -> list[str]:
    """A trace of one day for each phase of a wave; the arguments that name it."""
    wave = np.arange(1440) / 229
    rates = np.concatenate([50 + 40 * np.sin(wave + phase) for phase in phases])
    lines = "".join(f"{60 * i},{rate:.3f}\n" for i, rate in enumerate(rates))
    Path(name).write_text(f"timestamp_s,rate_rps\n{lines}")
    return ["--trace", name, "--qps", "25"]


def test_only_the_later_days_are_judged(mark):
    def quality(*phases: float) -> float:
        trace = write_days("days.csv", *phases)
        judged = mark("qos", "evaluate", *trace, *SHORT, "--scheduler", "qos-heuristic", "--json")
        assert judged.status == 0, judged.err
        return float(json.loads(judged.out)["quality"])

    assert quality(0.0, 2.0) == quality(1.0, 2.0) != quality(0.0, 3.0)


def test_a_policy_is_not_judged_on_days_that_it_learned_from(mark):
    train = ("--iterations", "1", "--job-s", "10")
    assert mark("qos", "train", *write_days("learned.csv", 0.0, 1.0), *train).status == 0
    later = write_days("later.csv", 2.0, 0.0)
    assert "learned from 1 of the days" in refused(mark("qos", "evaluate", *later, *SHORT))


def test_a_trace_that_repeats_itself_is_parted_all_the_same(mark):
    repeats = write_days("repeats.csv", 0.0, 0.0)
    assert mark("qos", "train", *repeats, "--iterations", "1", "--job-s", "10").status == 0
    judged = mark("qos", "evaluate", *repeats, *SHORT, "--json")
    assert judged.status == 0, judged.err


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")  # the weights are to overflow
def test_decisions_of_the_heuristic_in_a_policys_place_are_counted(mark, waves):
    path = Path("qos-policy.npz")
    assert mark("qos", "train", *TRACE, "--iterations", "1", "--job-s", "10").status == 0
    state, made = read_checkpoint(path, pool_of({"p2.xlarge": 1}))
    huge = state.best._replace(outer=np.full_like(state.best.outer, 1e308), inner_bias=np.full(64, 9.0))
    path.write_bytes(checkpoint_bytes(state._replace(best=huge), made))
    document = json.loads(mark("qos", "evaluate", *TRACE, *SHORT, "--json").out)
    assert document["fallback_decisions"] == document["decisions"] > 0
    assert "decisions were the heuristic's" in mark("qos", "evaluate", *TRACE, *SHORT).out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["evaluate", *TRACE, "--scheduler", "qos-best"], "qos-heuristic"),
        (["evaluate", *TRACE, "--pool", "p3.2xlarge=1"], "no delays are known of p3.2xlarge"),
        (["evaluate", *TRACE, "--policy", "none.npz"], "mark qos train"),
        (["evaluate", *TRACE, "--scheduler", "qos-fixed", "--jobs", "0"], "at least one"),
        (["evaluate", "--trace", "waves.csv", "--qps", "-1"], "--qps must be above 0"),
        (["train", *TRACE, "--iterations", "0"], "--iterations must be 1 or more"),
        (["train", *TRACE, "--job-s", "1"], "--job-s must be 10 to 3600 s"),
        (["train", "--qps", "20"], "--trace"),
    ],
)
def test_bad_input_is_one_line(mark, waves, arguments, reason):
    assert reason in refused(mark("qos", *arguments))
