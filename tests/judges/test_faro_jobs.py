"""Our controllers behind Faro's autoscaler interface, with a fake of that interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mark.domain.demand import Demand
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.policies.bundles import Ingredients, make_bundle
from mark.ports import ForecasterSetup
from mark.predictors.naive import LastValue
from scripts.judges.faro_jobs import ByWorth, FirstCome, Given, JobsPolicy, Limit, replica

ASKED_EVERY_S = 10
NO_HISTORY = Demand(end_at=0.0, mean_rps=(), max_rps=())


@dataclass
class Action:
    """Faro's: so many replicas of a deployment."""

    head_name: str
    deployment_name: str
    target: int


@dataclass
class Cluster:
    """Faro's side: evenly arriving requests, replicas that serve ten seconds after they are asked for."""

    rates: Mapping[str, float]
    replicas: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    late: Sequence[str] = ()

    def metrics(self) -> dict[str, dict[str, Any]]:
        self.now += ASKED_EVERY_S
        found: dict[str, dict[str, Any]] = {}
        for job, rate in self.rates.items():
            seen: dict[str, Any] = {"head_queue_len": 0, "queue_len": [0] * self.replicas.get(job, 1)}
            if rate:
                seen["input_rate"] = ([5 * rate, 5 * rate], 9.9)
            found[job] = {"classifier": seen}
        return found

    def take(self, actions: Sequence[Action]) -> None:
        self.replicas = {action.head_name: max(1, action.target) for action in actions}

    def answers(self, job: str) -> Any:
        """Ten answers a second, all late or all in time."""

        def since(last: float) -> list[tuple[float, bool]]:
            count = round(10 * (self.now - last))
            return [(last + (i + 1) / 10, job not in self.late) for i in range(count)]

        return since


def given(policy: str) -> Given:
    offering = replica(0.18)
    bundle = make_bundle(
        policy,
        Ingredients(
            slo=Slo(latency_s=0.72, target=0.99),
            market=Market.ON_DEMAND,
            offerings=(offering,),
            on_demand=(offering,),
            overflow=None,
            standby=None,
            history=NO_HISTORY,
        ),
    )
    forecaster = LastValue(ForecasterSetup(history=NO_HISTORY, seed=1))
    return Given(policy=bundle.controller, forecaster=forecaster, fallback=forecaster, history=NO_HISTORY)


def policy_of(cluster: Cluster, *, policy: str = "mark", limit: Limit | None = None) -> JobsPolicy:
    return JobsPolicy(
        action=Action,
        autoscale_config=None,
        given={job: given(policy) for job in cluster.rates},
        answers={job: cluster.answers(job) for job in cluster.rates},
        limit=limit or FirstCome(100),
    )


def run(policy: JobsPolicy, cluster: Cluster, seconds: int) -> None:
    for _ in range(seconds // ASKED_EVERY_S):
        cluster.take(policy.autoscale(cluster.metrics(), cluster.now))


@pytest.mark.parametrize("name", ["hedged", "mark"])
def test_the_first_plan_follows_the_first_whole_minute_and_carries_the_load(name: str) -> None:
    cluster = Cluster({"a": 20.0})
    policy = policy_of(cluster, policy=name)
    run(policy, cluster, 50)
    assert cluster.replicas == {"a": 1}
    run(policy, cluster, 10)
    assert 20.0 * 0.18 < cluster.replicas["a"] <= 8


def test_bins_are_missing_where_nothing_arrived_and_count_as_no_load() -> None:
    cluster = Cluster({"a": 0.0})
    run(policy_of(cluster), cluster, 120)
    assert cluster.replicas == {"a": 1}


def test_replicas_are_given_back_when_the_load_has_been_low_for_the_cool_down() -> None:
    cluster = Cluster({"a": 30.0})
    policy = policy_of(cluster)
    run(policy, cluster, 120)
    high = cluster.replicas["a"]
    cluster.rates = {"a": 5.0}
    run(policy, cluster, 300)
    assert cluster.replicas["a"] == high
    run(policy, cluster, 200)
    assert cluster.replicas["a"] < high


def test_late_answers_launch_a_replica_between_two_plans() -> None:
    cluster = Cluster({"a": 20.0})
    policy = policy_of(cluster)
    run(policy, cluster, 180)
    planned = cluster.replicas["a"]
    cluster.late = ("a",)
    run(policy, cluster, 50)
    assert cluster.replicas["a"] == planned
    run(policy, cluster, 20)
    assert cluster.replicas["a"] == planned + 1


def test_who_asks_last_gets_what_is_left_and_asks_again_when_there_is_room() -> None:
    cluster = Cluster({"a": 20.0, "b": 20.0})
    policy = policy_of(cluster, limit=FirstCome(6))
    run(policy, cluster, 180)
    first = cluster.replicas["a"]
    assert first > 3
    assert cluster.replicas == {"a": first, "b": 6 - first}
    cluster.rates = {"a": 1.0, "b": 20.0}
    run(policy, cluster, 600)
    assert cluster.replicas["b"] == first


def test_by_worth_jobs_that_are_alike_get_alike_and_the_larger_gets_more() -> None:
    cluster = Cluster({"a": 20.0, "b": 20.0, "c": 10.0})
    run(policy_of(cluster, policy="hedged", limit=ByWorth(9)), cluster, 180)
    assert sum(cluster.replicas.values()) == 9
    assert abs(cluster.replicas["a"] - cluster.replicas["b"]) <= 1
    assert cluster.replicas["c"] < cluster.replicas["a"]
