"""Conservation under many more fault scripts than a quick run has time for."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mark.domain.offerings.offering import Market
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript
from tests.scenarios.builders import checked, experiment, run, surging, up_and_down
from tests.scenarios.test_conservation import SCRIPTS, assert_whole


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    script=SCRIPTS,
    policy=st.sampled_from(["mark", "greedy-oracle", "sagemaker", "reactive"]),
    market=st.sampled_from(Market),
    trace=st.one_of(
        st.builds(
            lambda rps, plus, seed: surging(rps, plus=plus, seed=seed),
            st.sampled_from([0.5, 10.0, 60.0]),
            st.sampled_from([-0.9, 0.0, 1.0, 4.0]),
            st.integers(0, 50),
        ),
        st.builds(lambda seed: up_and_down(20.0, seed=seed), st.integers(0, 50)),
    ),
    overflow=st.booleans(),
    types=st.sampled_from([("paper",), ("c5.large",), ("c5.large", "c5.xlarge"), ("p2.xlarge",)]),
    seed=st.integers(0, 2**31),
)
def test_no_request_is_lost_under_600_fault_scripts(
    kernel: Kernel,
    script: FaultScript,
    policy: str,
    market: Market,
    trace: object,
    overflow: bool,
    types: tuple[str, ...],
    seed: int,
) -> None:
    given_ = experiment(kernel, market, trace=trace, seed=seed, faults=script, overflow=overflow, types=types)
    with checked() as checks:
        result = run(given_, policy)
    assert_whole(result, given_.spec.workload)
    assert checks.events > 20
