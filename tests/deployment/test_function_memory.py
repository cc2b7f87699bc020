"""Memory of inference functions: what a new account allows, unless more is asked for or needed."""

from __future__ import annotations

from typing import Any

import pytest

from mark.config.policies import chosen_limits
from mark.config.settings import Settings
from mark.deployment.checks.doctor_quotas import check_function_memory
from mark.live.aws_resources import function_of
from mark.live.models import make_live_models


def served(model: str = "inception-v3", **functions: Any) -> Any:
    settings = Settings.model_validate({"model": model, "rollout": {"functions": functions}})
    (made,) = make_live_models(settings)
    return made


@pytest.mark.parametrize(
    ("asked", "mib"),
    [({}, 3008), ({"memory_mib": 4096}, 4096), ({"memory_mib": 512}, 614)],
    ids=["nothing asked for", "more", "less than the model needs"],
)
def test_a_function_is_made_and_billed_with_the_same_memory(asked: dict[str, Any], mib: int) -> None:
    model = served(**asked)
    assert function_of(model.served).memory_mib == mib
    assert model.served.overflow.memory_gib == pytest.approx(mib / 1024, abs=1e-3)


def test_a_replay_of_no_service_has_the_paper_s_three_gigabytes() -> None:
    assert chosen_limits(Settings()).least_memory_gib == 3.0


def test_the_doctor_tells_of_functions_that_a_new_account_may_not_have() -> None:
    assert not list(check_function_memory([served()]))
    (found,) = check_function_memory([served(memory_mib=4096)])
    assert found.state == "warning"
    assert "inception-v3 4096" in found.message
