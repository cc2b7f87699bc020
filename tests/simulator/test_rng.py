import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.simulator.rng import stream


def draws(seed, name):
    return stream(seed, name).integers(0, 2**63, 8).tolist()


@given(seed=st.integers(0, 2**64), name=st.text(max_size=20))
def test_a_stream_depends_on_seed_and_name_alone(seed, name):
    before = draws(seed, name)
    draws(seed, name + "-another")
    assert draws(seed, name) == before


@given(seed=st.integers(0, 2**32), names=st.lists(st.text(max_size=8), min_size=2, max_size=5, unique=True))
def test_streams_of_other_names_differ(seed, names):
    assert len({tuple(draws(seed, name)) for name in names}) == len(names)


def test_seeds_differ():
    assert draws(1, "boots") != draws(2, "boots")


def test_streams_are_the_same_in_another_process():
    """Python's `hash` of a string would not be."""
    code = "from mark.simulator.rng import stream; print(stream(7, 'boots').integers(0, 2**63, 8).tolist())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert other.stdout.strip() == str(draws(7, "boots"))


def test_streams_are_uncorrelated():
    one, two = stream(3, "a").standard_normal(20_000), stream(3, "b").standard_normal(20_000)
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / np.sqrt(20_000)


def test_a_negative_seed_is_refused():
    with pytest.raises(Misconfigured, match="seed must be 0 or more, not -1"):
        stream(-1, "boots")
