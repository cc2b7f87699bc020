"""`mark scaler` minute by minute: what it plans from, what it keeps, what it says of what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from mark.config.short_names import settings_named
from mark.domain.demand import Demand, Forecast, point_forecast
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.live.scaler import TRAIN_AGAIN_S, TRAIN_EACH_S, PlanFile, PodPlanner, scaler_policy
from mark.offline.forecast.forecasters import Built
from tests.controller.builders import LARGE, POLICY, SMALL

ALONE = replace(POLICY, overflow=None)
START = 1_714_557_600


class Doubling:
    """Expects twice the last minute's load, or fails."""

    fails = False

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        if self.fails:
            raise ValueError("too tired")
        rates = (2 * history.mean_rps[-1],) * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="doubling")


@dataclass
class Minutes:
    """Rates by the minute, as they are read on; `error` is what the next reads meet."""

    rates: dict[int, float] = field(default_factory=dict)
    coming: float = 30.0
    error: MarkError | None = None

    def read(self, now: float) -> None:
        if self.error is not None:
            raise self.error
        self.rates[int(now // 60 - 1) * 60] = self.coming


@dataclass
class World:
    planner: PodPlanner
    minutes: Minutes
    forecaster: Doubling
    now: float = START + 5.0

    def tick(self, minutes: int = 1) -> tuple[dict[str, int], str]:
        """Counts and the reason after so many minutes."""
        self.now += 60.0 * minutes
        self.planner.tick()
        assert self.planner.plan is not None
        counts = {one.offering.partition(":")[0]: one.count for one in self.planner.plan.pods}
        return counts, self.planner.plan.pods[0].reason


Make = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path) -> Make:
    def make(minutes: Minutes | None = None, making: MarkError | None = None, path: Path | None = None) -> World:
        forecaster = Doubling()

        def built(_: Demand) -> Built:
            if making is not None:
                raise making
            return Built(name="doubling", forecaster=forecaster, train_s=0.0, card=None)

        rates = minutes or Minutes()
        file = PlanFile(path or tmp_path / "kept.json", "m")
        planner = PodPlanner(ALONE, cast("Any", rates), file, built, lambda: made.now)
        made = World(planner, rates, forecaster)
        return made

    return make


def capacity_rps(counts: dict[str, int]) -> float:
    return counts["small"] * SMALL.capacity_rps + counts["large"] * LARGE.capacity_rps


def test_the_forecaster_is_planned_by_once_it_is_made(world: Make) -> None:
    here = world()
    counts, reason = here.tick()
    assert "the last minute's need: the forecaster is being made" in reason
    assert 30 <= capacity_rps(counts) <= 50
    assert here.planner.wants_training()
    here.planner.train()
    assert not here.planner.wants_training()
    counts, reason = here.tick()
    assert reason.startswith("doubling, 5 min ahead: ")
    assert capacity_rps(counts) >= 60
    here.forecaster.fails = True
    _, reason = here.tick()
    assert "the last minute's need: doubling failed: ValueError: too tired" in reason
    here.now += TRAIN_EACH_S
    assert here.planner.wants_training()


def test_a_forecaster_that_cannot_be_made_is_tried_again(world: Make, capsys: pytest.CaptureFixture[str]) -> None:
    here = world(making=Misconfigured("it needs a day"))
    here.tick()
    here.planner.train()
    assert capsys.readouterr().err == "note: no new forecaster of 1 minute: it needs a day\n"
    assert "the last minute's need: it needs a day" in here.tick()[1]
    assert not here.planner.wants_training()
    here.now += TRAIN_AGAIN_S
    assert here.planner.wants_training()


@pytest.mark.parametrize("error", [RetryLater("no route"), Misconfigured("could not evaluate the query")])
def test_demand_that_stays_away_keeps_the_last_answer(world: Make, error: MarkError) -> None:
    here = world()
    counts, _ = here.tick()
    here.minutes.error, here.minutes.coming = error, 300.0
    again, reason = here.tick()
    assert (again, "being made" in reason, here.planner.trouble) == (counts, True, str(error))
    again, reason = here.tick(5)
    assert again == counts
    assert reason == f"demand is 6 min old ({error}): the last answer stays"
    here.minutes.error = None
    again, _ = here.tick()
    assert here.planner.trouble == ""
    assert capacity_rps(again) >= 300


def test_who_starts_next_goes_on_with_the_last_answer(world: Make) -> None:
    first = world()
    counts, _ = first.tick()
    down = Minutes(error=RetryLater("no route"))
    second = world(down)
    assert second.planner.plan == first.planner.plan
    assert second.tick() == (counts, "no demand is known (no route): the last answer stays")
    refused = world(Minutes(error=Misconfigured("could not evaluate the query")))
    assert refused.tick()[0] == counts


def test_without_an_answer_a_refusal_ends_it_and_an_outage_does_not(world: Make, tmp_path: Path) -> None:
    down = world(Minutes(error=RetryLater("no route")))
    down.planner.tick()
    assert (down.planner.plan, down.planner.trouble) == (None, "no demand is known (no route)")
    assert not down.planner.wants_training()
    with pytest.raises(Misconfigured, match="could not evaluate"):
        world(Minutes(error=Misconfigured("could not evaluate the query"))).planner.tick()
    with pytest.raises(Misconfigured, match=r"cannot write --state .*No such file or directory"):
        world(path=tmp_path / "nowhere" / "kept.json").planner.tick()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "holds no answers of `mark scaler`; name another file, or remove it"),
        ('{"model": "m"}', "holds no answers of `mark scaler`"),
        ('{"model": "x", "plan": {"at": 1, "demand_end_at": 1, "pods": []}}', "is of the model x;"),
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_refused(world: Make, tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text)
    with pytest.raises(Misconfigured, match=told):
        world(path=path)
    assert path.read_text() == text


def test_the_policy_counts_on_what_a_cluster_has() -> None:
    policy, forecaster = scaler_policy(settings_named({"model": "inception-v3", "types": "c5.large,c5.xlarge"}))
    assert [item.name for item in policy.offerings] == ["c5.large:on-demand", "c5.xlarge:on-demand"]
    assert (policy.planner, policy.overflow, policy.standby, forecaster) == ("hedged", None, None, "mixture")
    with pytest.raises(Misconfigured, match=r"--types c5.large,c5.xlarge"):
        scaler_policy(settings_named({"model": "inception-v3"}))
