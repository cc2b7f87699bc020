"""What `mark doctor` says of quotas that several models share."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mark.aws.account.quotas import LambdaConcurrency
from mark.config.rollout import FunctionSettings
from mark.config.settings import Settings
from mark.deployment.checks import doctor_quotas
from mark.deployment.checks.doctor_quotas import check_plan, check_reserved, check_vcpus, require_quota_of_front
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import VcpuQuota
from tests.planner.builders import offering


def model(name: str, peak_rps: float) -> Any:
    """One whose offering carries 10 requests/s with two vCPUs."""
    served = SimpleNamespace(offerings=(offering("c5.large", rps=10.0),))
    return SimpleNamespace(
        name=name, served=served, setup=SimpleNamespace(history=SimpleNamespace(max_rps=(peak_rps,)))
    )


ANYTHING: Any = None
NODES = 6
"""vCPUs of two nodes and the third of an update."""
TWO_NODES = Settings.model_validate({"rollout": {"node": {"instance_type": "t4g.small"}}})


def quota(monkeypatch: pytest.MonkeyPatch, vcpus: float) -> None:
    there = (VcpuQuota(family="standard", market=Market.ON_DEMAND, vcpus=vcpus),)
    monkeypatch.setattr(doctor_quotas, "read_quotas", lambda _aws: there)


@pytest.mark.parametrize(
    ("offered", "may", "state", "remedy"),
    [
        (["c5.large"], {"t3.small", "t4g.small"}, "error", "it launches t3.small, t4g.small"),
        (["c5.large"], {"c5.large"}, "error", "the service itself"),
        (["c5.large", "t3.small"], {"t3.small", "t4g.small"}, "warning", "offerings.types: [t3.small]"),
        (["t3.small"], {"t3.small", "t4g.small"}, "ok", ""),
    ],
    ids=["no instance", "no node", "some", "all"],
)
def test_the_free_plan_launches_few_types(
    monkeypatch: pytest.MonkeyPatch, offered: list[str], may: set[str], state: str, remedy: str
) -> None:
    """Nodes are t4g.small."""
    monkeypatch.setattr(doctor_quotas, "is_on_free_plan", lambda _aws: True)
    monkeypatch.setattr(doctor_quotas, "free_plan_types", lambda _aws: frozenset(may))
    served = SimpleNamespace(offerings=[offering(name) for name in offered])
    one: Any = SimpleNamespace(name="a", served=served)
    (found,) = check_plan(TWO_NODES, [one], ANYTHING)
    assert found.state == state
    assert remedy in f"{found.message} {found.remedy}"
    assert ("upgrade-account-plan" in found.remedy) == (state != "ok")


def test_the_models_of_a_service_share_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    item = offering("c5.large", rps=10.0)
    each = 4 * item.instance_type.vcpus
    quota(monkeypatch, NODES + 1.5 * each)

    (one,) = check_vcpus(TWO_NODES, [model("a", 40.0)], ANYTHING)
    assert one.state == "ok"
    (both,) = check_vcpus(TWO_NODES, [model("a", 40.0), model("b", 40.0)], ANYTHING)
    assert both.state == "warning"
    assert f"takes {2 * each} with" in both.message


@pytest.mark.parametrize(
    ("nodes", "vcpus", "state"),
    [(1, 3.0, "error"), (1, 5.0, "ok"), (2, 5.0, "error"), (2, 7.0, "error"), (2, 8.0, "ok")],
)
def test_nodes_take_of_the_quota_and_one_more_of_two_while_they_are_updated(
    monkeypatch: pytest.MonkeyPatch, nodes: int, vcpus: float, state: str
) -> None:
    """A new account has 5: two nodes of two vCPUs begin there, and the third of their first update does not."""
    quota(monkeypatch, vcpus)
    settings = Settings.model_validate({"rollout": {"nodes": nodes, "node": {"instance_type": "t4g.small"}}})
    (found,) = check_vcpus(settings, [model("a", 1.0)], ANYTHING)
    assert found.state == state
    assert "during an update" in found.message
    assert ("--quota-code L-1216C47A --desired-value" in found.remedy) == (state == "error")
    if nodes == 2 and vcpus < NODES:
        with pytest.raises(Misconfigured, match=r"nodes of the type t4g\.small take 6 .*L-1216C47A"):
            require_quota_of_front(settings, 1, ANYTHING)
    else:
        require_quota_of_front(settings, 1, ANYTHING)


def test_a_fleet_on_spot_leaves_the_quota_on_demand_to_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor_quotas,
        "read_quotas",
        lambda _aws: tuple(VcpuQuota(family="standard", market=market, vcpus=5.0) for market in Market),
    )
    spot = SimpleNamespace(offerings=(replace(offering("c5.large"), market=Market.SPOT),))
    on_spot: Any = SimpleNamespace(name="a", served=spot, setup=model("a", 1.0).setup)
    found = {one.check: one.state for one in check_vcpus(TWO_NODES, [on_spot], ANYTHING)}
    assert found == {"vCPUs standard on-demand": "error", "vCPUs standard spot": "ok"}


@pytest.mark.parametrize(
    ("limit", "unreserved", "state"),
    [(10, 10, "error"), (50, 50, "error"), (139, 139, "error"), (140, 140, "ok"), (1000, 130, "warning")],
)
def test_what_functions_reserve_leaves_as_many_calls_as_aws_wants(limit: int, unreserved: int, state: str) -> None:
    served = SimpleNamespace(overflow=object(), function_versions=True)
    alone: Any = [SimpleNamespace(served=served), SimpleNamespace(served=SimpleNamespace(overflow=None))]
    concurrency = LambdaConcurrency(limit=limit, unreserved=unreserved)

    (found,) = check_reserved(FunctionSettings(reserved=20, provisioned=2), alone, concurrency)
    assert found.state == state
    assert "rollout.functions.reserved takes 40 of" in found.message
    assert list(check_reserved(FunctionSettings(), alone, concurrency)) == []
