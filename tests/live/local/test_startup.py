"""A start that fails says why, and does so as soon as that is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mark.domain.errors import Misconfigured
from mark.live.local.startup import (
    MOST_STARTS,
    ModelStart,
    check_children,
    check_models,
    findings,
    hopeless,
    last_log_line,
    start_lines,
)
from mark.store.published_status import PlanStatus, PublishedModel, RestartStatus

REASON = "20 requests/s expected: nothing is worth its rent, 20 overflow more cheaply"


def model(
    planned: dict[str, int] | None = None, *, overflows: bool = False, has_plan: bool = True, **changed: Any
) -> ModelStart:
    plan = PlanStatus(reason=REASON) if has_plan else None
    published = PublishedModel(planned=planned or {}, plan=plan, notes=("a note",))
    given: dict[str, Any] = {
        "name": "m", "published": published, "overflows": overflows, "agents": {}, "instances": (), **changed
    }  # fmt: skip
    return ModelStart(**given)


def instance(starts: int) -> dict[str, Any]:
    return {"id": "i-1", "state": "running", "starts": starts}


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (model(), "the first plan holds no instance"),
        (model(overflows=True), None),
        (model({"c5.large": 1}), None),
        (model(published=None), None),
        (model(has_plan=False), None),  # a tick before the first plan
        (model({"c5.large": 1}, instances=[instance(MOST_STARTS)]), None),
        (model({"c5.large": 1}, instances=[instance(MOST_STARTS + 1)]), "instance i-1 ended 3 times"),
    ],
)
def test_it_is_known_early_that_a_model_will_not_serve(start: ModelStart, says: str | None) -> None:
    reason = hopeless(start)
    assert reason is None if says is None else says in str(reason)


def test_the_first_hopeless_model_ends_the_start() -> None:
    with pytest.raises(Misconfigured, match="m: the first plan holds no instance"):
        check_models([model({"c5.large": 1}), model()])


def test_a_process_that_ends_again_and_again_ends_the_start(tmp_path: Path) -> None:
    check_children({"controller-0": RestartStatus(count=MOST_STARTS - 1, status=1)}, tmp_path)
    with pytest.raises(Misconfigured, match="controller-0 ended 3 times while the service started"):
        check_children({"controller-0": RestartStatus(count=MOST_STARTS, status=1)}, tmp_path)


def test_lines_hold_the_plan_its_reason_and_what_is_there() -> None:
    lines = start_lines(model({"c5.large": 2}, agents={"starting": 1}, instances=[instance(1)]))
    assert lines == [
        "m: planned 2 c5.large; instances: 1 running; agents: 1 starting",
        f"m: the plan's reason: {REASON}",
        "m: a note",
    ]
    assert start_lines(model(published=None)) == ["m: no plan yet"]


def test_findings_hold_the_last_words_of_agents_and_processes_that_ended(tmp_path: Path) -> None:
    (tmp_path / "i-1.log").write_text(
        "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: no x\n"
    )
    logged = {"level": "error", "message": "could not go on", "error": "Traceback\n  ...\nValueError: bad"}
    later = {"level": "info", "message": "bye"}
    (tmp_path / "gateway-0.log").write_text("\n".join(map(json.dumps, (logged, later))))
    found = findings(
        [model({"c5.large": 1}, instances=[instance(2)])],
        {"gateway-0": RestartStatus(count=1, status=1)},
        tmp_path,
    )
    assert "the agent of i-1 logged last: ModuleNotFoundError: no x" in found
    assert "gateway-0 ended 1 times and logged last: could not go on; ValueError: bad" in found


def test_a_log_without_an_error_gives_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    assert last_log_line(path) == []
    path.write_text("")
    assert last_log_line(path) == []
    path.write_text("loading\nkilled\n\n")
    assert last_log_line(path) == ["killed"]
