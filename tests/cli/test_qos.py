"""`mark qos`: a policy is trained, judged beside the others, and refused where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_bad_input import refused

TRACE = ["--trace", "waves.csv", "--qps", "25"]
SHORT = ["--jobs", "1", "--job-s", "20"]


@pytest.fixture
def waves(mark):
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
    other = ["--pool", "g2.2xlarge=1"]
    assert "was trained for the pool p2.xlarge=1" in refused(mark("qos", "evaluate", *TRACE, *SHORT, *other))


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
