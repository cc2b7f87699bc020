"""The budget of a pool in the settings: which policy keeps it, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mark.config.policies import check_names, chosen_central, chosen_policies
from mark.config.settings import Settings
from mark.dispatch.central.policy import CentralRule, TooLate
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.policies.assemble import Assembly

EMPTY = Demand(end_at=0.0, mean_rps=(), max_rps=())


def settings(budget: float | None, **more: object) -> Settings:
    tree: Mapping[str, object] = {
        "model": "inception-v3",
        "policies": ["kairos"],
        "policy": {} if budget is None else {"budget_usd_per_hour": budget},
        "offerings": {"types": ["c5.large", "c5.xlarge"]},
    }
    return Settings.model_validate({**tree, **more})


def test_the_policy_kairos_needs_a_budget_and_no_other_keeps_one() -> None:
    with pytest.raises(Misconfigured, match="the policy kairos needs a budget: set"):
        check_names(settings(None))
    with pytest.raises(Misconfigured, match="a budget of 2 USD/h for a pool is kept by the policy kairos only"):
        check_names(settings(2.0, policies=["hedged"]))
    check_names(settings(2.0))
    check_names(settings(2.0, policies=["hedged", "kairos"]))
    bounds = [{"start": "08:00", "end": "20:00", "timezone": "UTC", "min_rps": 5.0}]
    with pytest.raises(Misconfigured, match="bounds by the clock might pass it"):
        check_names(settings(2.0, capacity=bounds))


def test_a_budget_below_the_cheapest_instance_is_refused_in_one_line() -> None:
    assembly = Assembly(chosen_policies(settings(0.01)))
    with pytest.raises(Misconfigured, match="buys no instance: the cheapest type, c5") as error:
        assembly.bundle("kairos", assembly.ingredients(EMPTY))
    assert "\n" not in str(error.value)


def test_the_pool_follows_the_budget_and_its_instances_serve_one_at_a_time() -> None:
    assembly = Assembly(chosen_policies(settings(1.5)))
    bundle = assembly.bundle("kairos", assembly.ingredients(EMPTY))
    assert bundle.controller.pool is not None
    assert bundle.controller.pool.budget_usd_per_hour == 1.5
    assert {item.batch.max_batch for item in bundle.controller.offerings} == {1}
    assert bundle.controller.monitor is bundle.controller.standby is None


def test_a_pool_has_a_central_queue_unless_the_settings_name_another_rule() -> None:
    central = chosen_central(settings(1.5), overflows=False)
    assert central is not None
    assert (central.rule, central.too_late) == (CentralRule.KAIROS, TooLate.HOLD)
    named = chosen_central(settings(1.5, dispatch="fcfs"), overflows=False)
    assert named is not None
    assert named.rule is CentralRule.FCFS
    assert chosen_central(settings(1.5, dispatch="least-finish"), overflows=False) is None
    assert chosen_central(settings(None, policies=["hedged"]), overflows=False) is None
