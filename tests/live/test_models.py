"""Which models a live service may hold."""

from __future__ import annotations

import pytest

from mark.aws.names import HANDLERS
from mark.config.settings import Settings
from mark.dispatch.central import CentralPolicy, CentralRule, TooLate
from mark.domain.errors import Misconfigured
from mark.live.models import LEFT_OUT, make_live_models, service_spec
from mark.store.codec import SPEC


@pytest.mark.parametrize("name", HANDLERS)
def test_a_model_bears_no_name_of_the_services_own_functions(name: str) -> None:
    settings = Settings.model_validate({"service": {"serve": [{"model": name}]}})
    with pytest.raises(Misconfigured, match=f"a model cannot be named {name}"):
        make_live_models(settings)


def rates(**trace: str) -> dict[str, float]:
    serve = [{"model": "rm2", "offerings": {"types": ["r5n.large", "c5n.2xlarge"]}}]
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": serve}, "trace": trace}))
    assert model.served.model.sizes is None  # who serves needs no distribution
    return {offering.name: offering.capacity_rps for offering in model.served.offerings}


def test_plans_of_a_live_service_count_requests_of_the_sizes_that_settings_name() -> None:
    one, fifty, hundred = (rates(sizes=f"constant:{size}") for size in (1, 50, 100))
    assert set(one) == set(fifty) == set(hundred)
    assert all(hundred[name] < fifty[name] < 0.1 * one[name] for name in one)


def central(**serve: object) -> CentralPolicy | None:
    one = {"model": "inception-v3", "offerings": {"overflow": False}, **serve}
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": [one]}}))
    return model.served.central


def test_a_model_has_a_central_queue_where_its_dispatch_names_one() -> None:
    assert central() is None
    assert central(dispatch="weighted") is None
    assert central(dispatch="kairos") == CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.HOLD)
    found = central(dispatch="drs:64", too_late="commit")
    assert found == CentralPolicy(rule=CentralRule.DRS, threshold=64, too_late=TooLate.COMMIT)
    (model,) = make_live_models(
        Settings.model_validate({"service": {"serve": [{"model": "inception-v3"}]}, "dispatch": "fcfs"})
    )
    assert model.served.central == CentralPolicy(rule=CentralRule.FCFS, too_late=TooLate.OVERFLOW)
    spec = service_spec(Settings(), [model])
    assert SPEC.decode(SPEC.encode(spec)) == spec


def test_without_torch_the_default_service_leaves_out_the_model_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = make_live_models(Settings())
    monkeypatch.setattr("mark.live.models.find_spec", lambda _name: None)
    without = make_live_models(Settings())

    assert [model.name for model in with_it] == ["inception-v3", "digits"]
    assert [model.name for model in without] == ["inception-v3"]
    assert LEFT_OUT in without[0].notes
    assert LEFT_OUT not in with_it[0].notes
