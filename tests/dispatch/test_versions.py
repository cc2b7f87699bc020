"""A canary of 5 % gets 5 % of the requests, and every gateway and each retry choose alike."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.versions import in_share

MANY = 20_000


@pytest.mark.parametrize("name", ["g1-0f%x", "client-%d", "%d"])
@pytest.mark.parametrize("weight", [0.05, 0.25, 0.5])
def test_a_share_of_the_ids_is_the_share_of_the_requests(name: str, weight: float) -> None:
    got = sum(in_share((name % number).encode(), b"bbbb", weight) for number in range(MANY)) / MANY
    assert abs(got - weight) < 0.01


@given(st.binary(max_size=128), st.floats(0, 1), st.floats(0, 1))
def test_larger_shares_hold_the_smaller_ones(request_id: bytes, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert in_share(request_id, b"v", high) >= in_share(request_id, b"v", low)
    assert in_share(request_id, b"v", 1.0)
    assert not in_share(request_id, b"v", 0.0)


def test_another_process_chooses_alike() -> None:
    code = "from mark.dispatch.versions import in_share as f\nprint([f(b'%d' % n, b'v', 0.5) for n in range(64)])"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    assert other.stdout.strip() == str([in_share(b"%d" % number, b"v", 0.5) for number in range(64)])


def test_two_candidates_do_not_meet_the_same_requests() -> None:
    ids = [b"%d" % number for number in range(MANY)]
    both = sum(in_share(one, b"a", 0.1) and in_share(one, b"b", 0.1) for one in ids) / MANY
    assert abs(both - 0.01) < 0.005
