"""No service is deployed without a limit, and its spending is said beforehand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.deployment import deploy
from mark.deployment.spending import limited, rounded_up, spending_line, spending_of
from mark.domain.errors import Misconfigured
from mark.domain.figures import figure
from mark.live.local.first_price import first_price
from mark.live.models import make_live_models

DIGITS = {"model": "digits", "backend": {"kind": "python", "target": "mark.models.digits:Digits"}}


def service(*serve: dict[str, Any], **more: Any) -> Settings:
    aws = {"aws": more.pop("aws")} if "aws" in more else {}
    return Settings.model_validate({"service": {"serve": list(serve), **aws}, **more})


def emulated(model: str, rps: float, *types: str) -> dict[str, Any]:
    return {"model": model, "expected_rps": rps, "offerings": {"types": types, "overflow": False}}


@given(usd=st.floats(0.001, 10_000.0))
def test_a_limit_is_written_with_two_digits_and_never_rounded_down(usd: float) -> None:
    limit = rounded_up(usd)
    assert usd * (1 - 1e-9) <= limit <= usd * 1.1 + 1e-9
    assert float(f"{limit:.2g}") == pytest.approx(limit)


@pytest.mark.parametrize("rps", [1.0, 40.0, 400.0])
@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_the_limit_that_nobody_named_has_room_for_the_busiest_minute_on_demand_and_one_of_each_type(
    rps: float, market: str
) -> None:
    settings = service(emulated("inception-v3", rps, "c5.large", "c5.4xlarge"), market=market)
    models = make_live_models(settings)
    found = spending_of(settings, models, footprint_of(settings))
    assert not found.named
    assert found.limit_usd >= 2 * 0.68, "a c5.4xlarge, and another one that takes its place"
    assert found.limit_usd >= 2 * first_price(settings, models).instances_usd_per_hour > 0
    assert found.lambda_usd == 0
    assert limited(settings, models).service.aws.max_usd_per_hour == found.limit_usd
    assert f"Instances cost at most {found.limit_usd:g} USD/h" in spending_line(found)
    price = first_price(settings, models)
    assert price.overhead_usd_per_hour == pytest.approx(found.around_usd)
    assert price.lines[-1].startswith(f"first plan: {figure(price.usd_per_hour)} USD an hour")


def test_a_service_of_lambda_alone_has_a_limit_too() -> None:
    settings = service({"model": "inception-v3", "policy_name": "lambda-only"})
    models = make_live_models(settings)
    found = spending_of(settings, models, footprint_of(settings))
    assert found.limit_usd > 0 == first_price(settings, models).instances_usd_per_hour
    assert found.lambda_usd > 0


def test_a_limit_that_is_named_stays_and_lambda_is_told_of_beside_it() -> None:
    settings = service(DIGITS, aws={"max_usd_per_hour": 3.0})
    models = make_live_models(settings)
    assert limited(settings, models) is settings
    found = spending_of(settings, models, footprint_of(settings))
    assert (found.named, found.limit_usd) == (True, 3.0)
    # 998 calls at once for an hour: 998 x 3600 s x 2.9375 GiB x 1.66667e-5 = 175.8975 USD, and the requests.
    (overflow,) = [model.served.overflow for model in models]
    assert overflow is not None
    assert found.lambda_usd == pytest.approx(175.8975 + 998 * 3600 / overflow.latency_s * 0.2e-6, rel=1e-4)
    assert "USD/h (service.aws.max_usd_per_hour), and Lambda" in spending_line(found)


@pytest.mark.parametrize(("named_usd", "limit_usd"), [(None, 1.0), (0.2, 0.2), (4.0, 4.0)])
@pytest.mark.parametrize("rps", [1.0, 40.0, 4_000.0])
def test_a_deploy_asks_for_a_first_plan_above_the_limit_by_its_price(
    rps: float, named_usd: float | None, limit_usd: float
) -> None:
    """The models that a service has already count, too: a new one beside them is asked for in the same way."""
    settings = service(
        emulated("inception-v3", rps, "c5.large"), DIGITS, aws={"ask_above_usd_per_hour": named_usd}
    )
    price = first_price(settings, make_live_models(settings))
    account: Any = SimpleNamespace(id="123456789012", region="us-east-1")
    question = deploy._question(settings, account, price)
    assert question.endswith("Do this in account 123456789012, region us-east-1?")
    costs = f"costs {figure(price.usd_per_hour)} USD an hour, more than {figure(limit_usd)} (service.aws.ask_above"
    assert (costs in question) == (price.usd_per_hour > limit_usd)


def test_an_emulated_model_is_not_deployed() -> None:
    with pytest.raises(Misconfigured, match=r"inception-v3: an emulated backend answers zeros"):
        deploy.deploy(_deployable(emulated("inception-v3", 1.0), DIGITS), yes=True)


def _deployable(*serve: dict[str, Any]) -> Settings:
    node = {
        "name": "api.example.com",
        "certificate": "arn:aws:secretsmanager:us-east-1:123456789012:secret:api-AbCdEf",
    }
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1"
    return service(*serve, rollout={"image": image, "node": node})
