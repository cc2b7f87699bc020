from __future__ import annotations

import pytest

from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import sizes_from_csv
from mark.domain.models.latency_table import parse_pool, read_latency_table

HEADER = "instance_type,model,batch_size,mean_ms,usd_per_hour"
ROWS = ["a,m,10,1.5,0.5", "a,m,20,2.5,0.5", "b,m,20,9,0.1", "b,m,10,4,0.1", "a,other,10,7,0.5"]


def table(*rows: str, header: str = HEADER, model: str = "m"):
    return read_latency_table("p.csv", [header, *rows], model)


def test_a_size_between_two_rows_takes_the_next_larger():
    found = table(*ROWS)

    assert [found.latency_ms("b", size) for size in (1, 10, 11, 20)] == [4.0, 4.0, 9.0, 9.0]
    assert found.usd_per_hour == {"a": 0.5, "b": 0.1}


def test_shares_of_sizes_gather_by_row():
    sizes = sizes_from_csv("s", ["size,probability", "3,0.25", "10,0.25", "11,0.5"])

    assert table(*ROWS).row_shares(sizes) == (0.5, 0.5)


def test_the_mean_of_single_timings_stands_in_for_a_mean_column():
    found = table("a,m,10,1,2", "a,m,20,3,5", header="instance_type,model,batch_size,s0,s1")

    assert found.mean_ms == {"a": (1.5, 4.0)}
    assert found.samples_ms == {"a": ((1.0, 2.0), (3.0, 5.0))}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*ROWS[:3]], "m on b has no row for batch_size 10, which other types have"),
        ([*ROWS, "a,m,30,1,0.5", "b,m,30,12,0.1"], "batch_size 30 takes 1 ms and 20 takes 2.5 ms"),
        ([*ROWS, "a,m,10,2,0.5"], "line 7: a has batch_size 10 twice"),
        (["a,m,ten,1,1"], "line 2: batch_size must be a whole number above 0, not 'ten'"),
        (["a,m,0,1,1"], "line 2: batch_size must be a whole number above 0, not '0'"),
        (["a,m,10,,1"], "line 2: mean_ms must be a number, not ''"),
        (["a,m,10,inf,1"], "line 2: mean_ms must be above 0, not inf"),
        (["a,m,10,1,-2"], "line 2: usd_per_hour must be above 0, not -2"),
        (["a,n,10,1,1"], "unknown model in p.csv 'm'"),
    ],
    ids=["gap", "dip", "twice", "no number", "zero", "empty", "infinite", "price", "model"],
)
def test_a_wrong_table_is_refused_in_one_line(rows, said):
    with pytest.raises(Misconfigured) as refusal:
        table(*rows)

    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_table_without_its_columns_is_refused():
    with pytest.raises(Misconfigured, match="header lacks model, mean_ms"):
        table("a,10", header="instance_type,batch_size")


def test_a_small_dip_is_noise_and_is_kept():
    assert table("a,m,10,2,1", "a,m,20,1.8,1").mean_ms == {"a": (2.0, 1.8)}


def test_a_size_beyond_the_profile_is_refused():
    with pytest.raises(Misconfigured, match="size 21 is beyond the profile of m, which ends at 20"):
        table(*ROWS).row(21)


def test_a_pool_keeps_its_order():
    assert list(parse_pool("b=2, a=0").items()) == [("b", 2), ("a", 0)]


@pytest.mark.parametrize("text", ["", "a", "a=", "a=x", "a=-1", "a=1,a=2", "=3"])
def test_a_pool_that_cannot_be_read_is_refused(text):
    with pytest.raises(Misconfigured, match="pool"):
        parse_pool(text)


@pytest.mark.parametrize(
    ("pool", "said"),
    [({"a": 0}, "at least one"), ({"c": 1}, "unknown instance type of m 'c'")],
    ids=["none", "type"],
)
def test_a_pool_must_fit_the_table(pool, said):
    with pytest.raises(Misconfigured, match=said):
        table(*ROWS).check_pool(pool)
