"""What `mark explain` says a tick saw: what the policy has, and nothing that it has not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.app.explaining import explained
from mark.controller.journal import Header, Tick
from mark.controller.policy import ControllerPolicy
from mark.domain.demand import Demand
from mark.domain.orders import SloWindow
from tests.controller.builders import POLICY, WATCHED, instances, seen

WINDOW = SloWindow(closed_at=60.0, requests=1004, missed=3)


@pytest.mark.parametrize(("policy", "told"), [(WATCHED, True), (POLICY, False)])
def test_the_monitors_window_is_told_of_policies_that_have_a_monitor(policy: ControllerPolicy, told: bool) -> None:
    header = Header(policy=policy, catalogue="", seed=0, history=Demand(end_at=0.0, mean_rps=(), max_rps=()))
    tick = Tick(seen=replace(seen(60.0, instances(1), slo=WINDOW), lambda_warm=19), orders=(), notes=())
    said = explained(tick, header, 0.0).seen

    assert ("3 of 1004 requests missed in the monitor's window" in said) is told
    assert "19 warm Lambda environments" in said
