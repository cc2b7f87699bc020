"""What `mark doctor` says of quotas that several models share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mark.aws.account.quotas import LambdaConcurrency
from mark.config.rollout import FunctionSettings
from mark.deployment import doctor_quotas
from mark.deployment.doctor_quotas import check_reserved, check_vcpus
from mark.domain.quota import VcpuQuota
from tests.planner.builders import offering


def model(name: str, peak_rps: float) -> Any:
    """One whose offering carries 10 requests/s with two vCPUs."""
    served = SimpleNamespace(offerings=(offering("c5.large", rps=10.0),))
    return SimpleNamespace(
        name=name, served=served, setup=SimpleNamespace(history=SimpleNamespace(max_rps=(peak_rps,)))
    )


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
