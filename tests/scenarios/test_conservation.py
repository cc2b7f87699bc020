"""No request is lost or counted twice, whatever goes wrong: arrivals = served + burst + shed + in flight."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.offerings.offering import Market
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript, Interrupt, LateBoots, Refuse
from mark.simulator.results import RunResult
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from tests.scenarios.builders import HISTORY_S, checked, experiment, run, surging

AT_S = st.floats(0.0, 1200.0)
SHARES = st.sampled_from([0.1, 0.2, 0.5, 0.8, 1.0])
POOLS = st.sampled_from(["", "", "p2.xlarge:spot", "c5.large:spot", "t2.micro:on-demand"])
WINDOWS = st.tuples(AT_S, st.floats(10.0, 900.0)).map(lambda pair: (pair[0], pair[0] + pair[1]))

SCRIPTS = st.builds(
    FaultScript,
    stress=st.sampled_from([0.0, 1.0, 100.0, 3000.0, 20000.0]),
    interrupts=st.lists(st.builds(Interrupt, at_s=AT_S, share=SHARES, offering=POOLS), max_size=4).map(tuple),
    refusals=st.lists(
        st.builds(lambda w, o: Refuse(from_s=w[0], to_s=w[1], offering=o), WINDOWS, POOLS), max_size=3
    ).map(tuple),
    late_boots=st.lists(
        st.builds(
            lambda w, f: LateBoots(from_s=w[0], to_s=w[1], factor=f), WINDOWS, st.sampled_from([1.2, 3.0, 10.0])
        ),
        max_size=2,
    ).map(tuple),
)


def assert_whole(result: RunResult, workload: Workload) -> None:
    arrived = workload.arrivals(workload.start_s, workload.end_s).size
    assert result.requests == arrived
    assert min(result.served.instance, result.served.standby, result.served.lambda_, result.served.shed) >= 0
    assert result.served.in_flight >= 0
    assert 0.0 <= result.attained <= 1.0
    assert result.seconds.arrivals.sum() == arrived


@settings(max_examples=8, deadline=None)
@given(
    script=SCRIPTS,
    case=st.tuples(st.sampled_from(["hedged", "mark", "greedy-oracle"]), st.sampled_from([*Market, Market.SPOT])),
    trace=st.builds(
        lambda rps, plus, seed: surging(rps, plus=plus, seed=seed),
        st.sampled_from([20.0, 45.0, 60.0]),
        st.sampled_from([-0.7, 0.0, 1.0, 3.0]),
        st.integers(0, 5),
    ),
    overflow=st.booleans(),
    types=st.sampled_from([(), ("c5.large", "c5.xlarge")]),
    seed=st.integers(0, 2**31),
)
def test_requests_are_conserved_under_every_fault_script(
    kernel: Kernel,
    script: FaultScript,
    case: tuple[str, Market],
    trace: Trace,
    overflow: bool,
    types: tuple[str, ...],
    seed: int,
) -> None:
    policy, market = case
    given_ = experiment(kernel, market, trace=trace, seed=seed, faults=script, overflow=overflow, types=types)
    with checked() as checks:
        result = run(given_, policy)
    assert_whole(result, given_.spec.workload)
    assert checks.events > 20


@pytest.mark.parametrize("policy", ["sagemaker", "reactive", "static-peak", "lambda-only"])
def test_requests_are_conserved_by_the_baselines(kernel: Kernel, policy: str) -> None:
    script = FaultScript(
        refusals=(Refuse(from_s=200.0, to_s=500.0),), late_boots=(LateBoots(from_s=0.0, to_s=1200.0, factor=2.0),)
    )
    given_ = experiment(kernel, Market.ON_DEMAND, faults=script, trace=surging(plus=2.0))
    with checked():
        result = run(given_, policy)
    assert_whole(result, given_.spec.workload)


def test_the_trace_has_an_hour_of_history() -> None:
    assert surging(minutes=20.0).duration_s == HISTORY_S + 1200.0
