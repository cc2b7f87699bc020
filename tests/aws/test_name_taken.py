"""A service's name in a second region of one account."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.aws.session import Aws, AwsSettings
from mark.deployment.deploy import _refuse_taken_name
from mark.deployment.deployment_plan import StackPlan
from mark.domain.errors import Misconfigured


@pytest.mark.usefixtures("moto")
def test_a_new_service_does_not_take_the_name_of_another_region_s() -> None:
    first, second = (Aws(AwsSettings(region=region)) for region in ("us-east-1", "eu-west-1"))
    new: Any = (
        StackPlan(name="mark-shop-archive", act="create"),
        StackPlan(name="mark-shop-launch", act="create"),
    )
    _refuse_taken_name(new, "shop", second)
    first.iam.create_role(RoleName="mark-shop-agent", AssumeRolePolicyDocument="{}")
    with pytest.raises(Misconfigured, match=r"mark-shop-agent already, .*take another service\.name"):
        _refuse_taken_name(new, "shop", second)
    _refuse_taken_name(new, "shop-b", second)
    _refuse_taken_name((StackPlan(name="mark-shop-launch", act="update"),), "shop", first)


def test_whoever_may_not_ask_iam_deploys_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    def get_role(**_: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetRole")

    aws: Any = SimpleNamespace(iam=SimpleNamespace(get_role=get_role))
    _refuse_taken_name((StackPlan(name="mark-shop-launch", act="create"),), "shop", aws)
    assert "IAM could not be asked" in capsys.readouterr().err
