"""The plan a service begins with: one that would serve nobody is refused before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.local.first_plan import check_served, first_plan
from mark.live.local.first_price import first_price
from mark.live.models import LiveModel, make_live_models


def digits(**serve: object) -> LiveModel:
    """The shipped digits classifier on demand, as a service would serve it."""
    backend = {"kind": "python", "target": "mark.models.digits:Digits"}
    served = {"model": "digits", "backend": backend, "market": "on-demand", **serve}
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": [served]}}))
    return model


@pytest.mark.parametrize("expected_rps", [0.01, 5.0, 100.0])
def test_without_lambda_the_default_policy_begins_with_instances(expected_rps: float) -> None:
    model = digits(offerings={"overflow": False, "types": ["c5.large"]}, expected_rps=expected_rps)
    first = first_plan(model)
    assert model.bundle.name == "hedged"
    assert first.fleet == "1 c5.large"
    assert first.usd_per_hour > 0
    check_served(first)


def test_a_plan_of_nothing_is_refused_where_there_is_no_lambda_either() -> None:
    model = digits(offerings={"overflow": False, "types": ["c5.large"]})
    idle = replace(model.bundle, controller=replace(model.bundle.controller, planner="nothing"))
    with pytest.raises(Misconfigured, match=r"digits would not be served: .*no instance.*no Lambda"):
        check_served(first_plan(replace(model, bundle=idle)))


def test_a_model_on_lambda_may_begin_without_an_instance() -> None:
    model = digits(expected_rps=0.01)
    first = first_plan(model)
    assert (first.fleet, first.usd_per_hour) == ("", 0.0)
    check_served(first)


def test_models_that_share_an_instance_pay_for_it_once() -> None:
    """Lambda answers nothing, so each has to be somewhere."""
    served = [
        {"model": name, "backend": {"kind": "python", "target": target}, "expected_rps": 5}
        for name, target in (
            ("digits", "mark.models.digits:Digits"),
            ("transformer", "mark.models.transformer:Polarity"),
        )
    ]
    settings = Settings.model_validate(
        {
            "market": "on-demand",
            "offerings": {"overflow": False, "types": ["c5.large"]},
            "service": {"serve": served},
        }
    )
    models = make_live_models(settings)
    together = first_price(settings, models)
    apart = sum(first_plan(model).usd_per_hour for model in models)
    (host,) = together.hosts
    assert together.instances_usd_per_hour == host.usd_per_hour < apart
    assert all(line.endswith("shares 1 instance (c5.large)") for line in together.lines[:2])
    for first in together.plans:
        check_served(first)
