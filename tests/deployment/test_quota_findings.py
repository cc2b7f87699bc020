"""What `mark doctor` says of quotas that several models share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.deployment import doctor_quotas
from mark.deployment.doctor_quotas import check_plan, check_vcpus
from mark.domain.quota import VcpuQuota
from tests.planner.builders import offering


def model(name: str, peak_rps: float) -> Any:
    """One whose offering carries 10 requests/s with two vCPUs."""
    served = SimpleNamespace(offerings=(offering("c5.large", rps=10.0),))
    return SimpleNamespace(
        name=name, served=served, setup=SimpleNamespace(history=SimpleNamespace(max_rps=(peak_rps,)))
    )


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
    anything: Any = None
    settings = Settings.model_validate({"rollout": {"node": {"instance_type": "t4g.small"}}})
    (found,) = check_plan(settings, [SimpleNamespace(name="a", served=served)], anything)  # type: ignore[list-item]
    assert found.state == state
    assert remedy in f"{found.message} {found.remedy}"
    assert ("upgrade-account-plan" in found.remedy) == (state != "ok")


def test_the_models_of_a_service_share_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    item = offering("c5.large", rps=10.0)
    each = 4 * item.instance_type.vcpus
    quota = VcpuQuota(family="standard", market=item.market, vcpus=1.5 * each)
    monkeypatch.setattr(doctor_quotas, "read_quotas", lambda _aws: (quota,))
    anything: Any = None

    (one,) = check_vcpus([model("a", 40.0)], anything)
    assert one.state == "ok"
    (both,) = check_vcpus([model("a", 40.0), model("b", 40.0)], anything)
    assert both.state == "warning"
    assert f"takes {2 * each} with" in both.message
