from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

BASE = ["simulate", "--model", "inception-v3", "--policy", "reactive"]
RUN = [*BASE, "--trace", "load.csv.gz"]
POOL = ["simulate", "--model", "inception-v3", "--trace", "load.csv.gz", "--pool-usd-per-hour", "1"]
RATES = "timestamp_s,rate_rps\n"


def refused(answer) -> str:
    assert answer.status == 2, answer.err
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("mark: ")
    return answer.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(
            gzip.compress(os.urandom(4000).hex().encode())[:1000],
            "truncated gzip",
            id="half a gzip-truncated gzip",
        ),
        (f"{RATES}0,1\n1,-2\n".encode(), "line 3: rate -2 is negative"),
        (b'{"ts": 17145\n', "begins like JSON but is not valid JSON"),
    ],
)
def test_a_broken_trace(mark, content, said):
    Path("bad.csv").write_bytes(content)

    assert said in refused(mark(*BASE, "--trace", "bad.csv"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*BASE, "--trace", "none.csv"], "no such trace file"),
        (["simulate", "--trace", "load.csv.gz"], "name a model with --model"),
        (["client", "create", "shop", "--models", ""], "--models names no model; leave it out for all"),
        (["client", "create", "shop", "--models", " , "], "--models names no model; leave it out for all"),
        (["client", "create", "shop", "--rate", "1e-320"], "from 1e-06 to 1e+09 requests/s"),
        (["client", "create", "shop", "--rate", "0"], "--rate 0: leave it out for no limit"),
        (["client", "create", "shop", "--concurrency", "0"], "--concurrency 0: leave it out for no limit"),
        (["client", "rotate", "shop", "--keep-old", "31d"], "--keep-old is at most 30d, not 31d"),
        (["client", "create", "shop", "--rate", "1", "--burst", "9" * 30], "burst must be from 1 to 1e+09"),
        (BASE, "name a trace with --trace"),
        ([*RUN, "--model", "inception-v4"], "did you mean 'inception-v3'?"),
        ([*RUN, "--policy", "sagemakr"], "did you mean 'sagemaker'?"),
        ([*RUN, "--policy", "reactive,al"], "did you mean 'all'?"),
        ([*RUN, "--types", "c5.larg"], "did you mean 'c5.large'?"),
        ([*RUN, "--set", "rollout.shap=lean"], "did you mean 'rollout.shape'?"),
        ([*RUN, "--set", "rollout.shape=lean,ha"], "--set rollout.shape takes one value here"),
        ([*RUN, "--set", "rollout.shape=mean"], "--set rollout.shape should be 'lean' or 'ha'"),
        ([*RUN, "--market", "spot", "--set", "market=spot"], "market is given twice: by --market, too"),
        ([*RUN, "--set", "seed=1", "--set", "seed=2"], "seed is given twice: by --set seed, too"),
        ([*RUN, "--types", "m5.large"], "no profile of inception-v3 on m5.large"),
        ([*RUN, "--forecaster", "last-valeu"], "did you mean 'last-value'?"),
        ([*RUN, "--dispatch", "weightd"], "did you mean 'weighted'?"),
        ([*RUN, "--dispatch", "kairos"], "`mark pool evaluate --dispatch kairos` replays it on a fixed pool"),
        (
            [*POOL, "--policy", "kairos", "--dispatch", "kairos"],
            "a replay with a central queue has no Lambda: leave it out with offerings.overflow: false",
        ),
        (
            [*POOL, "--policy", "milp,hedged", "--dispatch", "fcfs"],
            "`mark simulate --policy kairos` on the pool that this policy rents",
        ),
        ([*RUN, "--dispatch", "drs"], "needs the size above which a query goes to the base type, such as drs:64"),
        ([*RUN, "--market", "spto"], "did you mean 'spot'?"),
        ([*RUN, "--profiles", "assumed-lamda"], "did you mean 'assumed-lambda'?"),
        ([*RUN, "--slo-ms", "10"], "no batch keeps the objective of 10 ms"),
        ([*RUN, "--slo-ms", "ten"], "--slo-ms"),
        ([*RUN, "--slo-target", "98"], "--slo-target should be less than or equal to 1"),
        ([*RUN, "--start-s", "1000"], "a start at 1000 s is beyond its end"),
        ([*RUN, "--duration-s", "0.2"], "a replay needs a whole second"),
        ([*RUN, "--interrupt", "7"], "must read MINUTE:SHARE"),
        ([*RUN, "--interrupt", "7:0.4"], "only spot instances are interrupted"),
        ([*RUN, "--market", "spot", "--interrupt", "15:0.4"], "comes after the run's end at minute 15"),
        ([*RUN, "--interrupt", "7:4"], "--interrupt should be less than or equal to 1"),
        ([*RUN, "--out", "load.csv.gz"], "it is not a folder"),
        ([*RUN, "--polcy", "mark"], "--policy"),
        ([*RUN, "--policy", "static-peak"], "give a --start-s above 0"),
        (
            ["simulate", "--trace", "load.csv.gz", "--model", "nasnet", "--policy", "lambda-only"],
            "model on Lambda",
        ),
        (["simulatte"], "simulate"),
        (["trace"], "Missing command"),
        (["trace", "describe", "load.csv.gz", "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'?"),
        (["trace", "describe", "load.csv.gz", "--dates", "ymd"], "--dates should be 'dmy' or 'mdy', not 'ymd'"),
        (["trace", "generate", "flood", "--out", "x.csv"], "did you mean 'diurnal-floods'?"),
        (
            ["trace", "generate", "diurnal-floods", "--rps", "9", "--out", "x.csv"],
            "takes no --rps; it takes --days",
        ),
        (["trace", "generate", "constant", "--out", "none/x.csv"], "cannot be written"),
        (["trace", "generate", "mmpp", "--rates", "a,b", "--out", "x.csv"], "must be numbers"),
        (["plan", "--model", "inception-v3"], "give either --rate or --forecast"),
        (["plan", "--model", "inception-v3", "--rate", "-1"], "0 rps or more"),
        (["plan", "--model", "inception-v3", "--rate", "1e30"], "at most 1e+07, not 1e+30"),
        (["chaos", "slow", "store"], "only kill takes a target"),
        (
            ["status", "--name", "Shop_1"],
            "--name should be a small letter and then at most 30 small letters, digits",
        ),
        (["plan", "--model", "inception-v3", "--rate", "9", "--running", "c5.lage=3"], "did you mean 'c5.large"),
        (["plan", "--model", "inception-v3", "--rate", "9", "--running", "c5.large"], "must read TYPE=NUMBER"),
        (["plan", "--model", "inception-v3", "--rate", "9", "--slo-ms", "20"], "no batch keeps the objective"),
        (["explain", "none"], "is not a folder"),
        (["explain", "."], "holds no journal.jsonl"),
        (["reproduce", "mark-table"], "did you mean 'mark-table5'?"),
        (["reproduce", "mark-fig8", "--pairs", "x.json"], "reads no pairs: leave out --pairs"),
        (["reproduce", "hetsev-fig7", "--pairs", "x.json"], "x.json: cannot be read"),
        (
            ["reproduce", "fang-loads", "--trace", "load.csv.gz", "--others", "load.csv.gz"],
            "two traces are called load: the study tells them apart by it, so rename one",
        ),
        (["models", "--config", "none.yaml"], "No such file"),
        (["rollout", "--config", "mark.yaml"], "as in `mark rollout start --config`"),
    ],
)
def test_one_line_that_says_what_to_do(mark, arguments, said):
    assert said in refused(mark(*arguments))


def test_a_long_list_of_names_is_cut(mark):
    said = refused(mark(*RUN, "--types", "nope"))
    assert said.endswith(" more\n")
    assert len(said) < 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("minute,rate\n0,5\n2,5\n", "line 3: minute 2 where 1 follows"),
        ("minute,rate\n0,-5\n", "line 2: rate -5"),
        ("minute,rate\n0,1e30\n", "line 2: rate 1e+30; rates are 0 rps or more, at most 1e+07"),
        ("minute,rate\n0,5,1\n", "line 2: '0,5,1' is not a row"),
        ("minute,rate\n", "holds no minute"),
    ],
)
def test_a_broken_forecast(mark, text, said):
    Path("forecast.csv").write_text(text)

    assert said in refused(mark("plan", "--model", "inception-v3", "--forecast", "forecast.csv"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("refusals: [{from_min: 2, to_min: 2}]", "must end after it"),
        ("refusals: [{from_min: 2, to_min: 3, offering: c5.lrge}]", "did you mean 'c5.large:on-demand'?"),
        ("late_boots: [{from_min: 20, to_min: 30, factor: 2}]", "after the run's end"),
    ],
)
def test_faults_that_would_hit_nothing(mark, text, said):
    Path("mark.yaml").write_text(f"faults: {{{text}}}\n")

    assert said in refused(mark(*RUN, "--config", "mark.yaml"))


def test_a_torn_journal(mark):
    Path("run").mkdir()
    Path("run/journal.jsonl").write_text('{"policy": 3}\n')

    assert "line 1 of the journal cannot be read" in refused(mark("explain", "run"))


def test_a_closed_pipe_is_no_error() -> None:
    program = "from mark.cli.main import main; main()"
    line = f"{sys.executable} -c '{program}' models | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)  # noqa: S603, S607
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""
