"""An instance that drains answers what it holds, whatever the routing rule has looked at meanwhile."""

from __future__ import annotations

import pytest

from mark.dispatch.policy import Bounced, DispatchPolicy, Routing
from mark.simulator.engine.compiled import Kernel
from tests.simulator.engines import batching, engine


@pytest.mark.parametrize("routing", list(Routing))
def test_what_a_draining_instance_holds_is_answered_in_time(kernel: Kernel, routing: Routing) -> None:
    dispatch = DispatchPolicy(routing=routing, bounced=Bounced.NOWHERE, admission_factor=None)
    made = engine(kernel, [0.1, 0.2, 1.3, 1.4, 3.9], dispatch=dispatch, duration_s=5.0)
    slots = [made.add(batching(1, 1.0, 1.0), standby=False) for _ in range(2)]
    made.run_until(0.5)
    made.stop_accepting(slots[0])
    assert not made.is_idle(slots[0])
    # The routing of later arrivals looks at the other instance alone, which is busy again beyond 2 s.
    made.run_until(2.0)
    assert made.is_idle(slots[0])
