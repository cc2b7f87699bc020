"""`mark pool choose`: documents, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_bad_input import refused

TABLE = """instance_type,model,batch_size,mean_ms,usd_per_hour
cpu,m,1,5,0.1
cpu,m,2,60,0.1
gpu,m,1,5,0.5
gpu,m,2,10,0.5
"""
PUBLISHED = ["pool", "choose", "--model", "rm2", "--slo-ms", "350", "--pool-usd-per-hour", "2.5"]
OWN = ["pool", "choose", "--profiles", "own.csv", "--model", "m", "--slo-ms", "20", "--sizes", "sizes.csv"]
SEARCHES = ("kairos+", "random", "genetic", "annealing", "bayesian")


@pytest.fixture(autouse=True)
def own(mark) -> None:
    Path("own.csv").write_text(TABLE)
    Path("sizes.csv").write_text("size,probability\n1,0.8\n2,0.2\n")


def test_the_published_pool_is_chosen_without_a_measurement(mark) -> None:
    document = json.loads(mark(*PUBLISHED, "--json").out)

    assert document["pool"] == {"g4dn.xlarge": 1, "r5n.large": 13}
    assert document["usd_per_hour"] == pytest.approx(2.463)
    assert document["pools"] == 331
    assert (document["evaluations"], document["allowable_qps"], document["measured"]) == (0, None, [])
    assert len(document["best_bounds"]) == 10
    assert document["best_bounds"][0]["bound_qps"] == pytest.approx(144.21, rel=0.02)


def test_the_pool_is_printed_as_evaluate_reads_it(mark) -> None:
    assert mark(*PUBLISHED).out.splitlines()[0] == "g4dn.xlarge=1,r5n.large=13"


@pytest.mark.parametrize("method", SEARCHES)
def test_a_search_measures_and_says_what(mark, method: str) -> None:
    budget = ["--pool-usd-per-hour", "1.0", "--slo-ms", "50", "--queries", "1000", "--method", method]
    answer = mark(*OWN, *budget, "--json")
    document = json.loads(answer.out)

    assert answer.status == 0, answer.err
    assert document["evaluations"] == len(document["measured"]) > 0
    assert document["allowable_qps"] == max(item["allowable_qps"] for item in document["measured"])
    assert all(item["usd_per_hour"] <= 1.0 for item in document["measured"])
    assert "cpu" in document["pool"]
    assert document["base"] == "gpu"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pool-usd-per-hour", "0.05"], "buys no instance: the cheapest type, cpu, costs 0.1 USD/h"),
        (["--pool-usd-per-hour", "0.3"], "the cheapest type that serves the largest sizes in time, gpu, costs"),
        (["--pool-usd-per-hour", "-1"], "a budget must be above 0 USD/h, not -1"),
        (["--pool-usd-per-hour", "1", "--slo-ms", "2"], "no type serves 0.99 of m's queries within 2 ms"),
        (["--pool-usd-per-hour", "1", "--method", "kairos-"], "did you mean 'kairos"),
        (["--pool-usd-per-hour", "1", "--sizes", "constant:3"], "size 3 is beyond the profile of m"),
        (["--pool-usd-per-hour", "1", "--sizes", "constant:x"], "is not a number"),
        (["--pool-usd-per-hour", "1", "--profiles", "none.csv"], "none.csv: cannot be read"),
        (["--pool-usd-per-hour", "1", "--model", "n"], "unknown model in own.csv 'n'"),
        (["--pool-usd-per-hour", "1", "--slo-target", "1.5"], "objective target must be in (0, 1]"),
        (["--pool-usd-per-hour", "1", "--arrivals", "whole"], "unknown --arrivals 'whole'"),
        (["--pool-usd-per-hour", "1e20"], "pools cost at most 1e+20 USD/h"),
    ],
    ids=[
        "cheapest",
        "base",
        "negative",
        "objective",
        "method",
        "size",
        "spec",
        "file",
        "model",
        "target",
        "gaps",
        "too many",
    ],
)
def test_bad_input_is_one_line(mark, arguments: list[str], said: str) -> None:
    assert said in refused(mark(*OWN, *arguments))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TABLE.replace("cpu,m,2,60,0.1\n", ""), "m on cpu has no row for batch_size 2"),
        (TABLE.replace("cpu,m,2,60", "cpu,m,2,3"), "latency must rise with size"),
        (TABLE.replace(",usd_per_hour", "").replace(",0.1", "").replace(",0.5", ""), "no price of cpu, gpu"),
        (f"{TABLE}cpu\n", "line "),
    ],
    ids=["gap", "falling", "price", "short row"],
)
def test_a_bad_table_is_one_line(mark, table: str, said: str) -> None:
    Path("own.csv").write_text(table)

    assert said in refused(mark(*OWN, "--pool-usd-per-hour", "1"))
