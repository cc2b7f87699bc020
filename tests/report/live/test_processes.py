"""What status says of processes: restarts in one line, and what is wrong meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mark.report.live.formatting import format_capacity, format_controller
from mark.report.live.processes import format_restarts, process_banners
from mark.report.live.service_status import FleetStatus, LambdaStatus, ServiceStatus
from mark.store.published_status import LostAccount, PlanStatus, RestartStatus
from tests.report.live.fakes import NOW, busy_model, empty_model, status


def ends(count: int, exit_status: int | None = None, why: str = "") -> RestartStatus:
    return RestartStatus(count=count, status=exit_status, why=why, at=NOW if count else None)


def test_restarts_are_one_line_with_time_and_cause() -> None:
    told = status(
        restarts={
            "aws": ends(1, -9),
            "controller-0": ends(0),
            "controller-1": ends(2, 1),
            "gateway-0": ends(3, -9, "silent for 15 s"),
        }
    )
    assert format_restarts(told) == (
        "aws once (last 02:40:30, signal 9), controller-1 twice (last 02:40:30, exit status 1), "
        "gateway-0 3 times (last 02:40:30, silent for 15 s)"
    )


@pytest.mark.parametrize("told", [status(), status(restarts={}), status(restarts={"aws": ends(0)})])
def test_nothing_is_said_where_none_was(told: ServiceStatus) -> None:
    assert format_restarts(told) == ""
    assert process_banners(told) == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"account": LostAccount(since=NOW)}, "The emulated AWS ended at 02:40:30 with all its instances; its"),
        ({"account": LostAccount(since=NOW, why="away")}, "are being made again: away."),
        ({"down": ("gateway-0",)}, "gateway-0 does not run or hang"),
        ({"down": ("aws", "gateway-0")}, "aws, gateway-0 do not run or hang"),
        ({"clock_set_by_s": -3600.0}, "The system's clock was set back by 60 min"),
        ({"clock_set_by_s": 7200.0}, "The system's clock was set forward by 2 h"),
    ],
)
def test_what_is_wrong_is_a_banner(changed: dict[str, Any], says: str) -> None:
    (banner,) = process_banners(status(**changed))
    assert says in banner.text


def test_the_controller_s_line_says_what_its_time_is() -> None:
    assert format_controller(status()) == "controller-0, last tick 4 s ago"


def test_a_plan_without_instances_says_that_none_is_planned_for_the_load() -> None:
    model = replace(empty_model(), plan=PlanStatus(required_rps=19.5))
    assert format_capacity(model) == "0.0 requests/s; 19.5 expected, no instance planned for it"
    lambda_alone = replace(model, lambda_=LambdaStatus(answers=True))
    assert format_capacity(lambda_alone) == "19.5 expected, Lambda answers"
    model = replace(model, fleet=FleetStatus(planned={"c5.large": 2}))
    assert format_capacity(model) == "0.0 requests/s; planned for 19.5"
    assert "planned for" in format_capacity(busy_model())
