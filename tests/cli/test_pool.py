from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_bad_input import refused

TABLE = """instance_type,model,batch_size,mean_ms,usd_per_hour
fast,m,50,4,0.5
fast,m,200,8,0.5
slow,m,50,6,0.1
slow,m,200,60,0.1
"""
RUN = ["pool", "evaluate", "--profiles", "p.csv", "--model", "m", "--slo-ms", "30", "--pool", "fast=1,slow=3"]
SIZES = ["--sizes", "lognormal:4.3,0.5,1,200", "--queries", "1000"]


@pytest.fixture
def pool(mark):
    Path("p.csv").write_text(TABLE)

    def evaluate(*arguments: str) -> dict:
        answer = mark(*RUN, *SIZES, *arguments, "--json")
        assert answer.status == 0, answer.err
        return json.loads(answer.out)

    return evaluate


def test_the_most_that_a_pool_serves_is_in_time_at_that_rate(pool):
    found = pool()["allowable_qps"]
    run = pool("--qps", str(found))

    assert run["attained"] >= 0.99 - 1e-9
    assert 0 < run["latency_ms"]["p50"] <= run["latency_ms"]["p95"] <= run["latency_ms"]["p99"] <= 30
    assert run["pool"] == {"fast": 1, "slow": 3}


@pytest.mark.parametrize("dispatch", ["fcfs", "drs", "clockwork", "kairos-oracle"])
@pytest.mark.parametrize("arrivals", ["poisson", "integer"])
def test_every_rule_runs_on_both_kinds_of_arrivals(pool, dispatch, arrivals):
    assert pool("--dispatch", dispatch, "--arrivals", arrivals)["allowable_qps"] > 0


def test_the_base_is_the_first_type_of_the_pool(pool):
    """First come, first served on an almost idle pool: every query goes to the type that is named first."""
    first, last = (
        pool("--dispatch", "fcfs", "--qps", "1", "--pool", mix) for mix in ("fast=1,slow=1", "slow=1,fast=1")
    )

    assert first["latency_ms"]["mean"] < last["latency_ms"]["mean"]


def test_it_reads_as_text(mark, pool):
    answer = mark(*RUN, *SIZES, "--qps", "100")

    assert answer.status == 0
    assert "within 30 ms at 100 queries/s" in answer.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pool", "fast"], "a pool reads TYPE=COUNT"),
        (["--pool", "fsat=1"], "did you mean 'fast'?"),
        (["--pool", "fast=0"], "at least one instance"),
        (["--sizes", "constant:201"], "size 201 is beyond the profile of m, which ends at 200"),
        (["--sizes", "constant:many"], "'many' is not a number"),
        (["--sizes", "none.csv"], "cannot be read"),
        (["--dispatch", "kairo"], "did you mean 'kairos'?"),
        (["--latency", "sample"], "no single timings"),
        (["--qps", "0"], "a rate must be above 0"),
        (["--queries", "0"], "at least one query"),
        (["--slo-target", "98"], "target must be in (0, 1]"),
        (["--model", "n"], "unknown model in p.csv 'n'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(mark, pool, arguments, said):
    assert said in refused(mark(*RUN, *SIZES, *arguments))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("slow,m,200,60,0.1\n", ""), "m on slow has no row for batch_size 200"),
        (("200,60,0.1", "200,4,0.1"), "latency must rise with size"),
        (("fast,m,50,", "fast,m,fifty,"), "line 2: batch_size must be a whole number"),
    ],
    ids=["gap", "dip", "no number"],
)
def test_a_wrong_profile_is_one_line(mark, pool, change, said):
    Path("p.csv").write_text(TABLE.replace(*change))

    assert said in refused(mark(*RUN, *SIZES))


def test_gateways_that_share_a_pool_serve_less(pool, mark):
    shares = ["--pool", "fast=2,slow=4", "--gateways"]
    alone, shared = (pool(*shares, count)["allowable_qps"] for count in ("1", "2"))

    assert 0 < shared < alone
    said = refused(mark(*RUN, *SIZES, "--gateways", "5"))
    assert "5 gateways cannot share 4 instances" in said


def test_drs_says_the_size_that_it_found(pool):
    found = pool("--dispatch", "drs", "--qps", "100")

    assert found["threshold"] in {50, 200}
    assert "threshold" not in pool("--dispatch", "kairos", "--qps", "100")
